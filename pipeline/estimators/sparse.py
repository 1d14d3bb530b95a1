"""The batch methods as estimators."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from ridgestream.pipeline.estimators.kinds import KernelClassifier, KernelRegressor

if TYPE_CHECKING:
    from ridgestream.pipeline.kernels import Kernel
    from ridgestream.pipeline.training.request import BatchRequest

AUTO = "auto"


class SparseKernelClassifier(KernelClassifier):
    """A classifier by a batch method, which passes over the rows several times and chooses a dictionary from all.

    The same settings and rows give the same bits as a job file with `source.precision = "float64"`. Passes sum products
    of O(max_basis²) memory; `ls-svm`, `sls-svm` and `kernel-ridge` take the kernel matrix of all rows, O(rows²) memory
    and O(rows³) time.

    Args:
        method: "ols", "efvs", "fvs", "orols", "isls-svm", "subset-of-regressors", "shard-merge-select", "ls-svm",
            "sls-svm" or "kernel-ridge".
        kernel: "rbf", "polynomial", "linear", or an object such as `ridgestream.RBF(gamma=0.5)`.
        gamma: The kernel's width, "auto" (chosen by the first rows) or a positive number; where the method compares
            kernels, also several.
        degree, coef0: The other parameters of the polynomial kernel.
        regularization: λ per row, "auto" or a positive number, or several to compare: the penalty is λ times the sum
            of weights. To be left "auto" for "orols", which has none.
        max_basis: The largest dictionary, "auto" (up to 1,000) or a number. To be left "auto" for "ls-svm" and
            "kernel-ridge", whose dictionary is all rows, and "subset-of-regressors", whose size is the `start_basis` of
            `method_options`.
        metric: How distances are measured: "standardized" (all columns alike), "diagonal" or "full" (learned from up to
            50,000 of the first rows), or "auto", either, as rows left out prefer.
        scale: "standardized" gives each column mean 0 and deviation 1, "common" divides all by one scale, None leaves
            numbers as they are.
        timestamps: Time stamps are circles of hour, weekday and day of the year ("calendar"), the time elapsed
            ("elapsed"), or "both"; None is "calendar" with a warning, since no trend in time is followed.
        method_options: Further settings of the method, as in its section of a job file: {"candidates": 59} of "ols".
            Thresholds on the cost, such as a `usefulness_threshold`, are in squared units of the targets, 1 for a row's
            class and −1 for others.
        class_weight: None, "balanced" (all classes weigh the same), or a mapping from classes to weights.
        missing: "error" refuses missing values in X, "impute" fills them by the column's mean or commonest category.
        unseen_categories: What to do about categories that the rows learned do not have: "error", "ignore" (they have
            no indicator).
        random_state: The seed of all that is drawn, or a RandomState, or None for NumPy's own. A job file has 0.
        memory_limit: Bytes that the training may take, by default what is available; it never changes a bit.

    Attributes:
        model_: The served model: feature map, dictionary, coefficients, calibration.
        classes_: The classes, sorted.
        basis_vectors_: The dictionary in the standardized columns, (n_basis, n_features).
        basis_rows_: The number of the row that each of them was, −1 for none.
        coefficients_: (n_functions, n_outputs), a bias last.
        metric_: R of the learned metric, (n_features, n_features), its diagonal, (n_features,), or None.
        feature_importances_: The share of each column in the learned metric, equal shares without one.
        cost_: The regularized squared error of the rows learned, in standardized targets.
        selection_: The models that were compared, or the rows of the dictionary, as a structured array.
        n_features_in_, feature_names_in_: As in scikit-learn.

    Raises InputError, a ValueError, for rows or parameters that cannot be used, MemoryRefused before more than
    `memory_limit` is taken, and NumericalBreakdown where a matrix is singular within rounding.

    Example:
        >>> import numpy as np
        >>> from ridgestream import SparseKernelClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(600, 2))
        >>> y = X[:, 0] * X[:, 1] > 0
        >>> settings = {"gamma": 0.5, "regularization": 1e-4, "max_basis": 30, "metric": "standardized"}
        >>> classifier = SparseKernelClassifier("ols", **settings)
        >>> classifier.fit(X, y).predict([[2.0, 2.0], [-2.0, 2.0]]).tolist()
        [True, False]

    """

    def __init__(
        self,
        method: str = "ols",
        *,
        kernel: "str | Kernel" = "rbf",
        gamma: Any = AUTO,
        degree: int = 3,
        coef0: float = 1.0,
        regularization: Any = AUTO,
        max_basis: int | str | None = AUTO,
        metric: str = AUTO,
        scale: str | None = "standardized",
        timestamps: str | None = None,
        method_options: Mapping[str, Any] | None = None,
        class_weight: Any = None,
        missing: str = "error",
        unseen_categories: str = "error",
        random_state: Any = 0,
        memory_limit: int | None = None,
    ) -> None:
        self.method = method
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.regularization = regularization
        self.max_basis = max_basis
        self.metric = metric
        self.scale = scale
        self.timestamps = timestamps
        self.method_options = method_options
        self.class_weight = class_weight
        self.missing = missing
        self.unseen_categories = unseen_categories
        self.random_state = random_state
        self.memory_limit = memory_limit

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows X (rows, n_features), an array or a table, and targets y (rows,).

        `sample_weight` (rows,) multiplies the squared error of each row. What is "auto" is chosen from the first rows.
        Dask arrays and frames and Zarr arrays are read chunk by chunk, a pyarrow dataset by its row groups, with y and
        sample_weight names of its columns.
        """
        return self._fit(X, y, sample_weight)

    def _request(self, seed: int) -> "BatchRequest":
        from ridgestream.pipeline.estimators.requests import batch_request

        return batch_request(self.get_params(deep=False), seed)


class SparseKernelRegressor(KernelRegressor):
    """A regressor by a batch method, which passes over the rows several times and chooses a dictionary from all.

    The same settings and rows give the same bits as a job file with `source.precision = "float64"`. Passes sum products
    of O(max_basis²) memory; `ls-svm`, `sls-svm` and `kernel-ridge` take the kernel matrix of all rows, O(rows²) memory
    and O(rows³) time.

    Args:
        method: "ols", "efvs", "fvs", "orols", "isls-svm", "subset-of-regressors", "shard-merge-select", "ls-svm",
            "sls-svm" or "kernel-ridge".
        kernel: "rbf", "polynomial", "linear", or an object such as `ridgestream.RBF(gamma=0.5)`.
        gamma: The kernel's width, "auto" (chosen by the first rows) or a positive number; where the method compares
            kernels, also several.
        degree, coef0: The other parameters of the polynomial kernel.
        regularization: λ per row, "auto" or a positive number, or several to compare: the penalty is λ times the sum
            of weights. To be left "auto" for "orols", which has none.
        max_basis: The largest dictionary, "auto" (up to 1,000) or a number. To be left "auto" for "ls-svm" and
            "kernel-ridge", whose dictionary is all rows, and "subset-of-regressors", whose size is the `start_basis` of
            `method_options`.
        metric: How distances are measured: "standardized" (all columns alike), "diagonal" or "full" (learned from up to
            50,000 of the first rows), or "auto", either, as rows left out prefer.
        scale: "standardized" gives each column mean 0 and deviation 1, "common" divides all by one scale, None leaves
            numbers as they are.
        timestamps: Time stamps are circles of hour, weekday and day of the year ("calendar"), the time elapsed
            ("elapsed"), or "both"; None is "calendar" with a warning, since no trend in time is followed.
        method_options: Further settings of the method, as in its section of a job file: {"candidates": 59} of "ols".
            Thresholds on the cost, such as a `usefulness_threshold`, are in squared units of standardized targets.
        missing: "error" refuses missing values in X, "impute" fills them by the column's mean or commonest category.
        unseen_categories: What to do about categories that the rows learned do not have: "error", "ignore" (they have
            no indicator).
        random_state: The seed of all that is drawn, or a RandomState, or None for NumPy's own. A job file has 0.
        memory_limit: Bytes that the training may take, by default what is available; it never changes a bit.

    Attributes:
        model_: The served model: feature map, dictionary, coefficients, calibration.
        basis_vectors_: The dictionary in the standardized columns, (n_basis, n_features).
        basis_rows_: The number of the row that each of them was, −1 for none.
        coefficients_: (n_functions, n_outputs), a bias last.
        metric_: R of the learned metric, (n_features, n_features), its diagonal, (n_features,), or None.
        feature_importances_: The share of each column in the learned metric, equal shares without one.
        cost_: The regularized squared error of the rows learned, in standardized targets.
        selection_: The models that were compared, or the rows of the dictionary, as a structured array.
        n_features_in_, feature_names_in_: As in scikit-learn.

    Raises InputError, a ValueError, for rows or parameters that cannot be used, MemoryRefused before more than
    `memory_limit` is taken, and NumericalBreakdown where a matrix is singular within rounding.

    Example:
        >>> import numpy as np
        >>> from ridgestream import SparseKernelRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (600, 1))
        >>> y = 100 + np.sin(X[:, 0]) + 0.1 * rng.normal(size=600)
        >>> settings = {"gamma": 0.5, "regularization": 1e-4, "max_basis": 20, "metric": "standardized"}
        >>> regressor = SparseKernelRegressor("ols", **settings)
        >>> regressor.fit(X, y).predict([[-1.5], [1.5]]).round(1).tolist()
        [99.0, 101.0]

    """

    def __init__(
        self,
        method: str = "ols",
        *,
        kernel: "str | Kernel" = "rbf",
        gamma: Any = AUTO,
        degree: int = 3,
        coef0: float = 1.0,
        regularization: Any = AUTO,
        max_basis: int | str | None = AUTO,
        metric: str = AUTO,
        scale: str | None = "standardized",
        timestamps: str | None = None,
        method_options: Mapping[str, Any] | None = None,
        missing: str = "error",
        unseen_categories: str = "error",
        random_state: Any = 0,
        memory_limit: int | None = None,
    ) -> None:
        self.method = method
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.regularization = regularization
        self.max_basis = max_basis
        self.metric = metric
        self.scale = scale
        self.timestamps = timestamps
        self.method_options = method_options
        self.missing = missing
        self.unseen_categories = unseen_categories
        self.random_state = random_state
        self.memory_limit = memory_limit

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows X (rows, n_features), an array or a table, and targets y (rows,) or (rows, n_targets).

        `sample_weight` (rows,) multiplies the squared error of each row. What is "auto" is chosen from the first rows.
        Dask arrays and frames and Zarr arrays are read chunk by chunk, a pyarrow dataset by its row groups, with y and
        sample_weight names of its columns.
        """
        return self._fit(X, y, sample_weight)

    def _request(self, seed: int) -> "BatchRequest":
        from ridgestream.pipeline.estimators.requests import batch_request

        return batch_request(self.get_params(deep=False), seed)
