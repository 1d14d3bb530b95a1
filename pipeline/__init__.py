"""The pipeline: mathematics that knows no disk and no cluster, and stages that move rows through it."""
