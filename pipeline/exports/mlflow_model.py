"""A served model as an MLflow model of the flavour `pyfunc`: its ONNX file, and the code that reads it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ridgestream.pipeline.exports.export_errors import require
from ridgestream.pipeline.exports.onnx.model import to_onnx

if TYPE_CHECKING:
    from mlflow.models import ModelSignature
    from onnx import ModelProto

_CODE = Path(__file__).with_name("mlflow_code.py")
_KINDS = {1: "float", 7: "long", 8: "string", 9: "boolean", 11: "double"}
"""MLflow's names of ONNX's element types."""


def save_mlflow(model: Any, path: Path | str, **options: Any) -> None:  # noqa: ANN401
    """Save a model of a store, or a fitted estimator, as an MLflow model in a new folder.

    `options` are those of `to_onnx`, and besides them those of `mlflow.pyfunc.save_model`. The metadata name the model
    and the snapshot of its store. The loaded model takes frames as the rows learned, and needs onnxruntime and pandas.

    Raises MissingExtra without MLflow, onnx and onnxruntime, and what `to_onnx` raises.
    """
    with _parts(model, options) as (mlflow, parts):
        mlflow.pyfunc.save_model(path, **parts)


def log_mlflow(model: Any, name: str, **options: Any) -> Any:  # noqa: ANN401
    """Log it to the active run of MLflow under a name, as `save_mlflow` saves it, and return MLflow's ModelInfo.

    `options` are those of `to_onnx`, and besides them those of `mlflow.pyfunc.log_model`, such as
    `registered_model_name`.
    """
    with _parts(model, options) as (mlflow, parts):
        return mlflow.pyfunc.log_model(name=name, **parts)


@contextmanager
def _parts(model: Any, options: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:  # noqa: ANN401
    """Yield MLflow, and the arguments by which it keeps the model."""
    require("mlflow", "mlflow", "onnx", "onnxruntime", "pandas")
    import mlflow
    import onnx

    own = {key: options.pop(key) for key in ("std", "classes", "missing", "unseen_categories") if key in options}
    proto = to_onnx(model, **own)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        onnx.save(proto, file)
        yield (
            mlflow,
            {
                "python_model": str(_CODE),
                "artifacts": {"onnx": str(file)},
                "signature": _signature(proto),
                "metadata": {each.key: each.value for each in proto.metadata_props},
                "pip_requirements": ["mlflow-skinny", "numpy", "onnxruntime", "pandas"],
                **options,
            },
        )


def _signature(proto: "ModelProto") -> "ModelSignature":
    """Return the columns of the ONNX file: a number may come in any type of numbers, or as a time stamp."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import AnyType

    inputs = [(each.name, _KINDS[each.type.tensor_type.elem_type]) for each in proto.graph.input]
    taken = [ColSpec("string" if kind == "string" else AnyType(), name, required=False) for name, kind in inputs]
    return ModelSignature(Schema(taken), Schema([spec for each in proto.graph.output for spec in _given(each)]))


def _given(output: Any) -> list[Any]:  # noqa: ANN401
    """Return the columns that an output becomes."""
    from mlflow.types import ColSpec

    tensor = output.type.tensor_type
    kind, sizes = _KINDS[tensor.elem_type], [each.dim_value for each in tensor.shape.dim]
    names = [output.name] if len(sizes) == 1 else [f"{output.name}_{j}" for j in range(sizes[1])]
    return [ColSpec(kind, name) for name in names]
