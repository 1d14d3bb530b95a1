"""The studies by the names under which they are reproduced."""

from ridgestream.jobs.reproduction import sinc, slides
from ridgestream.jobs.reproduction.study import Study

STUDIES: dict[str, Study] = {"sinc": sinc.STUDY, "slides": slides.STUDY}
"""Every study."""
