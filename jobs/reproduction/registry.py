"""The studies by the names under which they are reproduced."""

from ridgestream.jobs.reproduction.andelic import classification, regression
from ridgestream.jobs.reproduction.andelic import sinc as orols_sinc
from ridgestream.jobs.reproduction.cawley_talbot import efvs, isls
from ridgestream.jobs.reproduction.jung_polani import benchmarks, forest, sinc, slides
from ridgestream.jobs.reproduction.study import Study

STUDIES: dict[str, Study] = {
    "sinc": sinc.STUDY,
    "boston": benchmarks.BOSTON,
    "abalone": benchmarks.ABALONE,
    "forest": forest.STUDY,
    "slides": slides.STUDY,
    "efvs": efvs.STUDY,
    "isls": isls.STUDY,
    "orols-sinc": orols_sinc.STUDY,
    "orols-regression": regression.STUDY,
    "orols-classification": classification.STUDY,
}
"""Every study."""
