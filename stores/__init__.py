"""Durable storage: Parquet partitions, the dataset, models and predictions.

What a store guarantees:

- Atomicity. Rows and ledger change by one commit; a learner's state, its position and the served model by another. A
  killed process leaves only unreferenced files, and the same command resumes from the last commit or checkpoint.
- Each partition exactly once: the ledger lists it with a hash of its values, a model lists the segments that it has
  learned.
- Reproducible bits. k nights, interrupted or not, produce the model of a single run in ledger order over the same
  frozen standardization, on one machine type and set of versions. Exceptions are what a user requests between nights
  (`refit`, `guard`, `rollback`) and a late file that sorts before others, which is learned last.
- Readers see complete commits; a cleaning deletes nothing that a reader has open.
- Damage is detected, by checksums and by a fill value that no intact array contains, and never averaged in.
- A single writer: others wait or exit. It is enforced by a file lock on a local folder, by a lease in the repository on
  an object store.
- Stores and models of earlier releases can be opened; those of later releases are refused with both versions named.
"""
