"""A served model as a pipeline of scikit-learn's own parts, which needs nothing of this package.

The parts are fitted to a row of no meaning, so that they have all that their release expects, and then get what the
model has learned: centres and scales, the metric as the axes of a PCA, the basis vectors as the sample of a
Nystroem map that is not normalized, and the coefficients as those of a ridge regression.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.policies import ERROR
from ridgestream.pipeline.exports.export_errors import NotExportable, require
from ridgestream.pipeline.exports.exported import DROP, IMPUTE, Exported
from ridgestream.pipeline.features.columns import CategoricalColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.one_vs_rest import Label
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.models.predictor import ExpansionModel
from ridgestream.pipeline.sums.basis import Basis

Mask = npt.NDArray[np.bool_]

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


def to_sklearn(
    model: Any,  # noqa: ANN401
    *,
    classes: Sequence[Label] | None = None,
    missing: str | None = None,
    unseen_categories: str | None = None,
) -> "Pipeline":
    """Return a served model, or a fitted estimator's, as a fitted Pipeline of scikit-learn's own parts.

    It takes frames with the model's raw columns (of an estimator that was fitted to an array, arrays): numbers,
    booleans as 0 and 1, time stamps as seconds since 1970 in UTC, categories as text. It predicts numbers, or classes
    with `decision_function` for their scores; probabilities and deviations are left out. skops writes and reads it
    without trusting any type.

    The options are those of `to_onnx`, but that no row can be dropped. Raises NotExportable for local experts and the
    circles of time stamps, which scikit-learn has no parts for, and MissingExtra without scikit-learn and pandas.
    """
    require("sklearn", "sklearn", "pandas")
    exported = Exported.of(model, classes, missing, unseen_categories)
    expansion = _check_parts(exported)
    return _pipeline(exported, expansion)


def _check_parts(exported: Exported) -> ExpansionModel:
    """Return the model; raises NotExportable for what scikit-learn has no part for."""
    model, circles = exported.model, exported.feature_map.circles
    if not isinstance(model, ExpansionModel):
        raise NotExportable("scikit-learn has no part for local experts: export the model as ONNX")
    if circles:
        name = exported.feature_map.numeric[circles[0][0]].name
        raise NotExportable(
            f"scikit-learn has no part for the circles of the time stamp {name!r}: export the model as ONNX, or train "
            'one with timestamps = "elapsed"'
        )
    if exported.missing == DROP:
        raise NotExportable('a pipeline of scikit-learn answers each row: choose missing = "impute" or "error"')
    return model


def _pipeline(exported: Exported, model: ExpansionModel) -> "Pipeline":
    from sklearn.pipeline import Pipeline

    places, is_extra = _places_of(exported)
    steps = [("columns", _columns(exported)), ("standardize", _scaler(exported.feature_map, places, is_extra))]
    if compressed := [position for position, _ in exported.feature_map.compressed]:
        steps.append(("compress", _compression(compressed, len(places))))
    if model.feature_map.metric is not None or is_extra.any() or compressed:
        steps.append(("metric", _linear_map(exported.feature_map, places)))
    return Pipeline([*steps, ("kernel", _kernel_map(model.basis)), ("expansion", _expansion(exported, model))])


def _fills(exported: Exported, column: CategoricalColumn) -> bool:
    """Return whether a missing value of a column counts as one of its categories."""
    return exported.missing == IMPUTE and column.fill_indicator() >= 0


def _places_of(exported: Exported) -> tuple[Integers, Mask]:
    """Return the feature to which each column of the first step belongs, and whether it marks missing values.

    A missing category, None or NaN, has an indicator of its own, which counts as that of the category that fills it.
    """
    n_linear = len(exported.feature_map.linear)
    places, extras, end = list(range(n_linear)), [False] * n_linear, n_linear
    for column in exported.feature_map.categorical:
        n = len(column.categories)
        filled = [end + column.fill_indicator()] * 2 if _fills(exported, column) else []
        places, extras = [*places, *range(end, end + n), *filled], [*extras, *[False] * n, *[True] * len(filled)]
        end += n
    return np.array(places, dtype=np.int64), np.array(extras, dtype=np.bool_)


def _columns(exported: Exported) -> Any:  # noqa: ANN401
    """Return what makes numbers and indicators of columns."""
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import KNNImputer

    numeric, categorical = exported.feature_map.numeric, exported.feature_map.categorical
    row: dict[str, list[float | str]] = {c.name: [c.fill] for c in numeric}
    row |= {c.name: [c.categories[0]] for c in categorical}
    numbers = KNNImputer(n_neighbors=1) if exported.missing == IMPUTE else "passthrough"  # its neighbour is that row
    places: list[Any] = [c.name if exported.is_named else place for place, c in enumerate(numeric)]
    parts = [("numbers", numbers, places)] if numeric else []
    parts += [(f"categories of {c.name}", _indicators(exported, c), [c.name]) for c in categorical]
    return ColumnTransformer(parts, sparse_threshold=0.0).fit(pd.DataFrame(row))


def _indicators(exported: Exported, column: CategoricalColumn) -> Any:  # noqa: ANN401
    from sklearn.preprocessing import OneHotEncoder

    missing = (None, np.nan) if _fills(exported, column) else ()
    names = [np.array([*column.categories, *missing], dtype=object)]
    unknown = "error" if exported.unseen == ERROR else "ignore"
    return OneHotEncoder(categories=names, handle_unknown=unknown, sparse_output=False)


def _scaler(feature_map: FeatureMap, places: Integers, is_extra: Mask) -> Any:  # noqa: ANN401
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(np.zeros((1, len(places))))
    scaler.mean_, scaler.scale_ = np.where(is_extra, 0.0, feature_map.centre[places]), feature_map.scale[places]
    scaler.var_ = scaler.scale_**2
    return scaler


def _compression(positions: list[int], n_columns: int) -> Any:  # noqa: ANN401
    """Return what puts asinh z of these columns first, and the others behind them."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import FunctionTransformer

    parts = [("asinh", FunctionTransformer(np.arcsinh), positions)]
    return ColumnTransformer(parts, remainder="passthrough").fit(np.zeros((1, n_columns)))


def _linear_map(feature_map: FeatureMap, places: Integers) -> Any:  # noqa: ANN401
    """Return what divides compressed columns by their spread, adds up the columns of a feature, applies the metric."""
    from sklearn.decomposition import PCA

    n_features = feature_map.n_features
    root = np.ones(n_features) if feature_map.metric is None else feature_map.metric.root
    pca = PCA(n_features).fit(np.eye(len(places)))
    pca.mean_ = np.zeros(len(places))
    first, spreads = [position for position, _ in feature_map.compressed], np.ones(n_features)
    spreads[first] = [spread for _, spread in feature_map.compressed]
    components = (np.diag(root) if root.ndim == 1 else root.T)[:, places] / spreads[places]
    pca.components_ = components[:, [*first, *np.delete(np.arange(len(places)), first)]]
    return pca


def _kernel_map(basis: Basis) -> Any:  # noqa: ANN401
    from sklearn.kernel_approximation import Nystroem

    n_basis = len(basis.vectors)
    kernel_map = Nystroem(basis.kernel.name, n_components=1, **_parameters(basis.kernel)).fit(basis.vectors[:1])
    kernel_map.components_, kernel_map.component_indices_ = basis.vectors, np.arange(n_basis)
    kernel_map.normalization_ = np.eye(n_basis)
    return kernel_map.set_params(n_components=n_basis)


def _parameters(kernel: Kernel) -> dict[str, float]:
    """Return the parameters of the kernel, whose names are those of scikit-learn."""
    return kernel.parameters()


def _expansion(exported: Exported, model: ExpansionModel) -> Any:  # noqa: ANN401
    """Return the linear model of the kernel's values, in the user's units."""
    from sklearn.linear_model import Ridge, RidgeClassifier

    target, n_basis = exported.feature_map.target, len(model.basis.vectors)
    coefficients = (model.coefficients[:n_basis] * np.array(target.scale)).T
    intercepts = _bias(model) * np.array(target.scale) + np.array(target.centre)
    if exported.classes:
        expansion = RidgeClassifier().fit(np.zeros((len(exported.classes), n_basis)), list(exported.classes))
    else:
        expansion, which = Ridge().fit(np.zeros((2, n_basis)), np.zeros(2)), 0 if target.n_outputs == 1 else slice(None)
        coefficients, intercepts = coefficients[which], intercepts[which]
    expansion.coef_, expansion.intercept_ = coefficients, intercepts
    return expansion


def _bias(model: ExpansionModel) -> Floats:
    return model.coefficients[-1] if model.basis.constant else np.zeros(model.coefficients.shape[1])
