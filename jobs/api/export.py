"""A served model as a file for other programs, for the command `export`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Self

from ridgestream.jobs.commands.predict import model_with
from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import Served, policies, serve
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.dataset.boolean_columns import with_boolean_fill
from ridgestream.pipeline.exports.export_errors import require
from ridgestream.pipeline.exports.exported import SIGNS
from ridgestream.pipeline.exports.onnx_model import to_onnx
from ridgestream.pipeline.exports.sklearn_pipeline import to_sklearn
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.models.calibration import probabilities_of
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.prediction.prediction_columns import Extras
from ridgestream.stores.catalog.models import list_models
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.files.paths import parse_location, write_atomically
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation


@dataclass(frozen=True)
class ExportRequest:
    """What is exported, and how."""

    file: str
    """The file to write, a path or a URL."""
    format: str | None = None
    """A key of FORMATS; None for that of the file's suffix."""
    model: str | None = None
    """The model; None for the job's, or the only one of the store."""
    snapshot: str | None = None
    """A night, a tag or a snapshot; None for the model that is served."""
    std: bool = False
    """Whether standard deviations are among the outputs."""
    missing: str | None = None
    """What a missing value does; None for the job's policy, or an error."""
    unseen_categories: str | None = None
    """What a category does that the model does not know; None for the job's policy, or an error."""


@dataclass(frozen=True)
class Exportable:
    """A model of a store as the exports take it."""

    model_: Model
    """The model, with its probabilities if it is calibrated, and with its uncertainty if asked for."""
    classes_: tuple[Label, ...]
    """The classes as `predict` names them; empty for numbers."""

    @classmethod
    def of(cls, served: Served, *, std: bool) -> Self:
        """Return what is exported of a served model; O(n_basis³) with `std`."""
        model, schema = model_with(served.record, Extras(std=std)), served.schema
        feature_map, probabilities = with_boolean_fill(model.feature_map, schema), probabilities_of(served.record)
        classes = model.feature_map.target.classes if schema.positive is None else SIGNS
        return cls(model.having(feature_map=feature_map, probabilities=probabilities), classes)


def run_export(location: StoreLocation, job: Job | None, request: ExportRequest) -> dict[str, Any]:
    """Write the model to the file, and return the result."""
    to_bytes = FORMATS[_format_of(request)]
    file = parse_location(request.file, Path.cwd(), "FILE", job.storage.settings if job else None)
    store = Store.open(location)
    served = serve(store, request.model or (job.model.name if job else _only_model(store)), request.snapshot)
    origin = {"model": served.record.name, "snapshot": served.snapshot}
    content = to_bytes(Exportable.of(served, std=request.std), _options(request, job), origin)
    with write_atomically(file) as out:
        out.write(content)
    return {**origin, "output": str(file), "bytes": len(content)}


def _options(request: ExportRequest, job: Job | None) -> dict[str, Any]:
    given = policies(job) if job else Policies()
    unseen = request.unseen_categories or given.unseen_categories
    options = {"missing": request.missing or given.missing, "unseen_categories": unseen}
    return options | ({"std": True} if request.std else {})


def _only_model(store: Store) -> str:
    """Return the name of the store's model; raises ModelError if there is not exactly one."""
    names = list(list_models(store.root()))
    if len(names) == 1:
        return names[0]
    raise ModelError(f"the store {store.location.text} has the models {', '.join(names) or 'none'}: choose by --model")


def _format_of(request: ExportRequest) -> str:
    kind = request.format or PurePosixPath(request.file).suffix.removeprefix(".")
    if kind not in FORMATS:
        known = " or ".join(FORMATS)
        raise JobFileError(f"{request.file} has no format to export to: end its name in, or give --format, {known}")
    if request.std and kind != "onnx":
        raise JobFileError(f"--std is for onnx: {kind} has no standard deviations")
    return kind


def _onnx_bytes(source: Exportable, options: Mapping[str, Any], origin: Mapping[str, str]) -> bytes:
    model = to_onnx(source, **options)
    for key, value in origin.items():
        model.metadata_props.add(key=key, value=value)
    return model.SerializeToString()


def _skops_bytes(source: Exportable, options: Mapping[str, Any], _: Mapping[str, str]) -> bytes:
    require("skops", "skops")
    from skops.io import dumps

    return dumps(to_sklearn(source, **options))


FORMATS: Mapping[str, Callable[[Exportable, Mapping[str, Any], Mapping[str, str]], bytes]] = MappingProxyType(
    {
        "onnx": _onnx_bytes,
        "skops": _skops_bytes,
    }
)
"""What makes the bytes of a file of each format, of a model, the options of the export, and where it is from."""
