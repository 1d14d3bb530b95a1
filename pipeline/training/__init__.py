"""Training: online, batch, refit, checkpoints."""
