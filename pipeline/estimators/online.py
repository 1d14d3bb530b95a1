"""The online LS-SVM as estimators."""

from typing import TYPE_CHECKING, Any, ClassVar, Self

from ridgestream.pipeline.estimators.kinds import KernelClassifier, KernelRegressor

if TYPE_CHECKING:
    from ridgestream.pipeline.kernels import Kernel
    from ridgestream.pipeline.training.request import OnlineRequest

AUTO = "auto"


class OnlineLSSVMClassifier(KernelClassifier):
    """A classifier by the online LS-SVM, one pass over the rows in their order, and a small dictionary of them.

    The same settings and rows give the same bits as a job file with `source.precision = "float64"` (of the rows as one
    partition, or with `partial_fit` one for each call and `refit = false`). A row costs O(max_basis²), memory does not
    depend on the number of rows. The order of the rows decides which of them are in the dictionary.

    Args:
        kernel: "rbf", "polynomial", "linear", or an object such as `ridgestream.RBF(gamma=0.5)`.
        gamma: The kernel's width, "auto" (chosen by the first rows) or a positive number.
        degree, coef0: The other parameters of the polynomial kernel.
        regularization: λ per row, "auto" or a positive number: the penalty is λ times the sum of weights.
        max_basis: The largest dictionary, "auto" (up to 1,000) or a number.
        metric: How distances are measured: "standardized" (all columns alike), "diagonal" or "full" (learned from up to
            50,000 of the first rows), or "auto", either, as rows left out prefer.
        scale: "standardized" gives each column mean 0 and deviation 1, "common" divides all by one scale, None leaves
            numbers as they are.
        timestamps: Time stamps are circles of hour, weekday and day of the year ("calendar"), the time elapsed
            ("elapsed"), or "both"; None is "calendar" with a warning, since no trend in time is followed.
        novelty_threshold: TOL1, in units of k(x, x): a row further from the dictionary's span is a candidate; "auto"
            is 0.01, and 0.001 in cells.
        usefulness_threshold: TOL2, in squared units of the targets, 1 for a row's class and −1 for others: a candidate
            is taken if it lowers the cost by more; "auto" is 1e-4, and 1e-5 in cells.
        selection: "supervised", or "novelty" for novel rows until the dictionary is full.
        experts: The number of cells of space that have a learner each, of up to 200 vectors where `max_basis` is
            "auto"; "auto" compares numbers of cells on the first rows.
        stream_rows: The rows t of the whole stream, if the penalty is to be λt from the first row on (in each cell λt
            over the number of cells); None for λ times the sum of weights so far.
        refit: Whether `fit` fits the coefficients to all rows once more; "auto" tries it where rows are few for the
            dictionary, and keeps it if rows left out gain by it. `partial_fit` never does: earlier rows are gone.
        class_weight: None, "balanced" (all classes weigh the same), or a mapping from classes to weights.
        missing: "error" refuses missing values in X, "impute" fills them by the column's mean or commonest category.
        unseen_categories: What to do about categories that the rows learned do not have: "error", "ignore" (they have
            no indicator) or "extend" (`partial_fit` gives them one).
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
        >>> from ridgestream import OnlineLSSVMClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(600, 2))
        >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "different")
        >>> settings = {"gamma": 0.5, "regularization": 1e-4, "max_basis": 60, "metric": "standardized"}
        >>> classifier = OnlineLSSVMClassifier(**settings)
        >>> classifier.fit(X, y).predict([[2.0, 2.0], [-2.0, 2.0]]).tolist()
        ['same', 'different']
        >>> bool(classifier.predict_proba([[2.0, 2.0]])[0, 1] > 0.9)
        True

    """

    _learns_once: ClassVar[bool] = True

    def __init__(
        self,
        *,
        kernel: "str | Kernel" = "rbf",
        gamma: float | str = AUTO,
        degree: int = 3,
        coef0: float = 1.0,
        regularization: float | str = AUTO,
        max_basis: int | str | None = AUTO,
        metric: str = AUTO,
        scale: str | None = "standardized",
        timestamps: str | None = None,
        novelty_threshold: float | str = AUTO,
        usefulness_threshold: float | str = AUTO,
        selection: str = "supervised",
        experts: int | str = 1,
        stream_rows: int | None = None,
        refit: bool | str = AUTO,
        class_weight: Any = None,
        missing: str = "error",
        unseen_categories: str = "error",
        random_state: Any = 0,
        memory_limit: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.regularization = regularization
        self.max_basis = max_basis
        self.metric = metric
        self.scale = scale
        self.timestamps = timestamps
        self.novelty_threshold = novelty_threshold
        self.usefulness_threshold = usefulness_threshold
        self.selection = selection
        self.experts = experts
        self.stream_rows = stream_rows
        self.refit = refit
        self.class_weight = class_weight
        self.missing = missing
        self.unseen_categories = unseen_categories
        self.random_state = random_state
        self.memory_limit = memory_limit

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows X (rows, n_features), an array or a table, and targets y (rows,).

        `sample_weight` (rows,) multiplies the squared error of each row. What is "auto" is chosen from the first rows.
        Dask arrays and frames and Zarr arrays are read chunk by chunk, a pyarrow dataset by its row groups, with y and
        sample_weight names of its columns. An iterator gives
        blocks (X, y) or (X, y, sample_weight), each of which is learned as by `partial_fit`.
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn further rows, after those of earlier calls; O(max_basis²) a row and O(max_basis³) a call.

        The rows of the first call fix the standardization, and what is "auto": give it some thousands. There, `classes`
        names all classes that may come, by default those of its rows.
        """
        return self._fit(X, y, sample_weight, continues=True, classes=classes)

    def _request(self, seed: int) -> "OnlineRequest":
        from ridgestream.pipeline.estimators.requests import online_request

        return online_request(self.get_params(deep=False), seed)


class OnlineLSSVMRegressor(KernelRegressor):
    """A regressor by the online LS-SVM, one pass over the rows in their order, and a small dictionary of them.

    The same settings and rows give the same bits as a job file with `source.precision = "float64"` (of the rows as one
    partition, or with `partial_fit` one for each call and `refit = false`). A row costs O(max_basis²), memory does not
    depend on the number of rows. The order of the rows decides which of them are in the dictionary.

    Args:
        kernel: "rbf", "polynomial", "linear", or an object such as `ridgestream.RBF(gamma=0.5)`.
        gamma: The kernel's width, "auto" (chosen by the first rows) or a positive number.
        degree, coef0: The other parameters of the polynomial kernel.
        regularization: λ per row, "auto" or a positive number: the penalty is λ times the sum of weights.
        max_basis: The largest dictionary, "auto" (up to 1,000) or a number.
        metric: How distances are measured: "standardized" (all columns alike), "diagonal" or "full" (learned from up to
            50,000 of the first rows), or "auto", either, as rows left out prefer.
        scale: "standardized" gives each column mean 0 and deviation 1, "common" divides all by one scale, None leaves
            numbers as they are.
        timestamps: Time stamps are circles of hour, weekday and day of the year ("calendar"), the time elapsed
            ("elapsed"), or "both"; None is "calendar" with a warning, since no trend in time is followed.
        novelty_threshold: TOL1, in units of k(x, x): a row further from the dictionary's span is a candidate; "auto"
            is 0.01, and 0.001 in cells.
        usefulness_threshold: TOL2, in squared units of standardized targets: a candidate is taken if it lowers the cost
            by more; "auto" is 1e-4, and 1e-5 in cells.
        selection: "supervised", or "novelty" for novel rows until the dictionary is full.
        experts: The number of cells of space that have a learner each, of up to 200 vectors where `max_basis` is
            "auto"; "auto" compares numbers of cells on the first rows.
        stream_rows: The rows t of the whole stream, if the penalty is to be λt from the first row on (in each cell λt
            over the number of cells); None for λ times the sum of weights so far.
        refit: Whether `fit` fits the coefficients to all rows once more; "auto" tries it where rows are few for the
            dictionary, and keeps it if rows left out gain by it. `partial_fit` never does: earlier rows are gone.
        missing: "error" refuses missing values in X, "impute" fills them by the column's mean or commonest category.
        unseen_categories: What to do about categories that the rows learned do not have: "error", "ignore" (they have
            no indicator) or "extend" (`partial_fit` gives them one).
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
        >>> from ridgestream import OnlineLSSVMRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (600, 1))
        >>> y = 100 + np.sin(X[:, 0]) + 0.1 * rng.normal(size=600)
        >>> settings = {"gamma": 0.5, "regularization": 1e-4, "max_basis": 20, "metric": "standardized"}
        >>> regressor = OnlineLSSVMRegressor(**settings)
        >>> regressor.fit(X, y).predict([[-1.5], [1.5]]).round(1).tolist()
        [99.0, 101.0]
        >>> regressor.predict_interval([[1.5]], alpha=0.1).shape
        (1, 2)

    """

    _learns_once: ClassVar[bool] = True

    def __init__(
        self,
        *,
        kernel: "str | Kernel" = "rbf",
        gamma: float | str = AUTO,
        degree: int = 3,
        coef0: float = 1.0,
        regularization: float | str = AUTO,
        max_basis: int | str | None = AUTO,
        metric: str = AUTO,
        scale: str | None = "standardized",
        timestamps: str | None = None,
        novelty_threshold: float | str = AUTO,
        usefulness_threshold: float | str = AUTO,
        selection: str = "supervised",
        experts: int | str = 1,
        stream_rows: int | None = None,
        refit: bool | str = AUTO,
        missing: str = "error",
        unseen_categories: str = "error",
        random_state: Any = 0,
        memory_limit: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.regularization = regularization
        self.max_basis = max_basis
        self.metric = metric
        self.scale = scale
        self.timestamps = timestamps
        self.novelty_threshold = novelty_threshold
        self.usefulness_threshold = usefulness_threshold
        self.selection = selection
        self.experts = experts
        self.stream_rows = stream_rows
        self.refit = refit
        self.missing = missing
        self.unseen_categories = unseen_categories
        self.random_state = random_state
        self.memory_limit = memory_limit

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows X (rows, n_features), an array or a table, and targets y (rows,) or (rows, n_targets).

        `sample_weight` (rows,) multiplies the squared error of each row. What is "auto" is chosen from the first rows.
        Dask arrays and frames and Zarr arrays are read chunk by chunk, a pyarrow dataset by its row groups, with y and
        sample_weight names of its columns. An iterator gives
        blocks (X, y) or (X, y, sample_weight), each of which is learned as by `partial_fit`.
        """
        return self._fit(X, y, sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn further rows, after those of earlier calls; O(max_basis²) a row and O(max_basis³) a call.

        The rows of the first call fix the standardization, and what is "auto": give it some thousands.
        """
        return self._fit(X, y, sample_weight, continues=True)

    def _request(self, seed: int) -> "OnlineRequest":
        from ridgestream.pipeline.estimators.requests import online_request

        return online_request(self.get_params(deep=False), seed)
