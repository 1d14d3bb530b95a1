"""The pipeline: mathematics that knows no disk and no cluster, and stages that move rows through it."""

__version__ = "0.1.0"
