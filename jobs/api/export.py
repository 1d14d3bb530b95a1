"""A served model as a file for other programs, for the command `export`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Self, cast

from ridgestream.jobs.commands.predict import model_with
from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import Served, open_served, policies
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.dataset.boolean_columns import with_boolean_fill
from ridgestream.pipeline.exports.export_errors import require
from ridgestream.pipeline.exports.exported import SIGNS
from ridgestream.pipeline.exports.onnx.model import to_onnx
from ridgestream.pipeline.exports.sklearn_pipeline import to_sklearn
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.models.calibration import probabilities_of
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.prediction.prediction_columns import Extras
from ridgestream.stores.files.paths import parse_location, write_atomically


@dataclass(frozen=True)
class ExportRequest:
    """What is exported, and how."""

    file: str
    """The file to write, a path or a URL."""
    format: str | None = None
    """A key of FORMATS; None for that of the file's suffix."""
    snapshot: str | None = None
    """A night, a tag or a snapshot; None for the model that is served."""
    std: bool = False
    """Whether standard deviations are among the outputs."""


@dataclass(frozen=True)
class Exportable:
    """A model of a store as the exports take it."""

    model_: Model
    """The model, with its probabilities if it is calibrated, and with its uncertainty if asked for."""
    classes_: tuple[Label, ...]
    """The classes as `predict` names them; empty for numbers."""
    name: str
    """The model's name."""
    snapshot: str
    """The snapshot of its store."""

    @classmethod
    def of(cls, served: Served, *, std: bool) -> Self:
        """Return what is exported of a served model; O(n_basis³) with `std`."""
        model, schema = model_with(served.record, Extras(std=std)), served.schema
        feature_map, probabilities = with_boolean_fill(model.feature_map, schema), probabilities_of(served.record)
        classes = model.feature_map.target.classes if schema.positive is None else SIGNS
        model = model.having(feature_map=feature_map, probabilities=probabilities)
        return cls(model, classes, served.record.name, served.snapshot)


def run_export(job: Job, request: ExportRequest) -> dict[str, Any]:
    """Write the job's model to the file, with the job's policies, and return the result."""
    to_bytes = FORMATS[_format_of(request)]
    file = parse_location(request.file, Path.cwd(), "FILE", job.storage.settings)
    source, given = Exportable.of(open_served(job, request.snapshot), std=request.std), policies(job)
    content = to_bytes(source, std=request.std, missing=given.missing, unseen_categories=given.unseen_categories)
    with write_atomically(file) as out:
        out.write(content)
    return {"model": source.name, "snapshot": source.snapshot, "output": str(file), "bytes": len(content)}


def _format_of(request: ExportRequest) -> str:
    kind = request.format or PurePosixPath(request.file).suffix.removeprefix(".")
    if kind not in FORMATS:
        known = " or ".join(FORMATS)
        raise JobFileError(f"{request.file} has no format to export to: end its name in, or give --format, {known}")
    return kind


def _onnx_bytes(source: Exportable, **options: Any) -> bytes:  # noqa: ANN401
    return cast("bytes", to_onnx(source, **options).SerializeToString())


def _skops_bytes(source: Exportable, *, std: bool, **options: Any) -> bytes:  # noqa: ANN401
    require("skops", "skops")
    from skops.io import dumps

    if std:
        raise JobFileError("--std is for onnx: a pipeline of scikit-learn has no standard deviations")
    return cast("bytes", dumps(to_sklearn(source, **options)))


FORMATS: Mapping[str, Callable[..., bytes]] = MappingProxyType({"onnx": _onnx_bytes, "skops": _skops_bytes})
"""What makes the bytes of a file of each format."""
