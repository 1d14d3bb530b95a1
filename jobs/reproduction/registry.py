"""The studies by the names under which they are reproduced."""

from ridgestream.jobs.reproduction.jung_polani import benchmarks, sinc, slides
from ridgestream.jobs.reproduction.study import Study

STUDIES: dict[str, Study] = {
    "sinc": sinc.STUDY,
    "boston": benchmarks.BOSTON,
    "abalone": benchmarks.ABALONE,
    "slides": slides.STUDY,
}
"""Every study."""
