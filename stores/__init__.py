"""What is kept and how it survives a crash: Parquet partitions, the dataset, models, predictions.

What a store promises:

- All or nothing. Rows and ledger change by one commit; a learner's state, its position and what is served by one more.
  A killed process leaves files that nothing names, and the same command goes on from the last commit or checkpoint.
- Each partition once: the ledger names it with a hash of its values, a model names the segments that it has learned.
- Bits. k nights, killed or not, make the model of one run in ledger order over the same frozen standardization, on one
  machine type and set of versions. Exempt are what a user asks for between nights: `refit`, `guard`, `rollback`; and a
  late file that sorts before others is learned last.
- Readers see a commit whole; a cleaning takes nothing that one of them has open.
- Damage is found, by checksums and by a fill value that no sound array holds, and never averaged in.
- One writer: others wait or leave. On a local folder it is a file lock, on an object store a lease in the repository.
- Stores and models of earlier releases open; those of later ones are refused by both versions.
"""
