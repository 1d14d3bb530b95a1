"""The code that MLflow keeps with an exported model: rows of a frame through its ONNX file.

MLflow runs this file as it stands where the model is loaded, so it imports nothing of this package.
"""

from typing import Any

import mlflow
import numpy as np
import onnxruntime
import pandas as pd
from mlflow.models import set_model

_EPOCH = pd.Timestamp(0, tz="UTC")


class OnnxPredictor(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """A frame of raw columns in, a frame of predictions out."""

    def load_context(self, context: Any) -> None:  # noqa: ANN401
        """Open the ONNX file."""
        self.session = onnxruntime.InferenceSession(context.artifacts["onnx"])

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:  # noqa: ANN401, ARG002
        """Return the outputs of the ONNX file as columns; one of several columns has their numbers in its names.

        Raises ValueError, naming them, if columns are missing; those of an array are x0, x1 and so on.
        """
        kinds = {each.name: each.type for each in self.session.get_inputs()}
        absent = [name for name in kinds if name not in model_input]
        if absent:
            raise ValueError(f"the rows lack columns of those learned: {', '.join(absent)}")
        inputs = {name: _values_of(model_input[name], kind) for name, kind in kinds.items()}
        names = [each.name for each in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(names, inputs), strict=True))
        columns: dict[str, Any] = {name: values for name, values in outputs.items() if values.ndim == 1}
        for name, values in outputs.items():
            columns |= {f"{name}_{j}": values[:, j] for j in range(values.shape[1])} if values.ndim == 2 else {}
        return pd.DataFrame(columns, index=model_input.index)


def _values_of(column: "pd.Series[Any]", kind: str) -> Any:  # noqa: ANN401
    """Return a column as the file takes it: text, "" where missing; or numbers, time stamps as seconds since 1970."""
    if kind == "tensor(string)":
        return column.astype(object).where(column.notna(), "").to_numpy(object)
    if pd.api.types.is_datetime64_any_dtype(column):
        return ((pd.to_datetime(column, utc=True) - _EPOCH) / pd.Timedelta(seconds=1)).to_numpy(np.float64)
    return pd.to_numeric(column).to_numpy(np.float64, na_value=np.nan)


set_model(OnnxPredictor())
