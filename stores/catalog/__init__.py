"""What a store contains: ledger, models, snapshots, checkpoints, and what expires."""
