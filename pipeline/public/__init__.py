"""Ridgestream: Parquet partitions through chunked Zarr storage into sparse kernel least-squares models.

A public name is imported when it is first used: `import ridgestream` alone loads neither numba nor zarr nor dask.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgestream.jobs.api.open_store import OpenStore as OpenStore
    from ridgestream.jobs.api.open_store import open as open  # noqa: A004 (ridgestream.open)
    from ridgestream.jobs.api.run import RunResult as RunResult
    from ridgestream.jobs.api.run import run as run
    from ridgestream.jobs.api.stored_model import StoredModel as StoredModel
    from ridgestream.jobs.cluster.cluster_error import ClusterError as ClusterError
    from ridgestream.jobs.config.values import JobFileError as JobFileError
    from ridgestream.pipeline.base.errors import InputError as InputError
    from ridgestream.pipeline.base.errors import InputWarning as InputWarning
    from ridgestream.pipeline.base.errors import NumericalBreakdown as NumericalBreakdown
    from ridgestream.pipeline.dataset.dask_arrays import DaskDataset as DaskDataset
    from ridgestream.pipeline.dataset.dask_arrays import open_dask_arrays as open_dask_arrays
    from ridgestream.pipeline.estimators.online import OnlineLSSVMClassifier as OnlineLSSVMClassifier
    from ridgestream.pipeline.estimators.online import OnlineLSSVMRegressor as OnlineLSSVMRegressor
    from ridgestream.pipeline.estimators.sparse import SparseKernelClassifier as SparseKernelClassifier
    from ridgestream.pipeline.estimators.sparse import SparseKernelRegressor as SparseKernelRegressor
    from ridgestream.pipeline.exports.mlflow_model import log_mlflow as log_mlflow
    from ridgestream.pipeline.exports.mlflow_model import save_mlflow as save_mlflow
    from ridgestream.pipeline.exports.onnx.model import to_onnx as to_onnx
    from ridgestream.pipeline.exports.sklearn_pipeline import to_sklearn as to_sklearn
    from ridgestream.pipeline.kernels import RBF as RBF
    from ridgestream.pipeline.kernels import Linear as Linear
    from ridgestream.pipeline.kernels import Polynomial as Polynomial
    from ridgestream.pipeline.online.experts.experts_state import ExpertsState as ExpertsState
    from ridgestream.pipeline.online.experts.local_experts import LocalExperts as LocalExperts
    from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM as OnlineLSSVM
    from ridgestream.pipeline.online.state import OnlineState as OnlineState
    from ridgestream.pipeline.policy.kernel_lstd import KernelLSTD as KernelLSTD
    from ridgestream.pipeline.policy.online_lstd import OnlineLSTD as OnlineLSTD
    from ridgestream.stores.errors.exceptions import ModelError as ModelError
    from ridgestream.stores.errors.exceptions import PartitionError as PartitionError
    from ridgestream.stores.errors.exceptions import SchemaMismatch as SchemaMismatch
    from ridgestream.stores.errors.exceptions import StoreError as StoreError
    from ridgestream.stores.errors.exceptions import StoreLocked as StoreLocked
    from ridgestream.stores.repository.repository import Store as Store
    from ridgestream.stores.repository.store_location import StoreLocation as StoreLocation

__version__ = "0.2.0"

_MODULES = {
    "ClusterError": "jobs.cluster.cluster_error",
    "DaskDataset": "pipeline.dataset.dask_arrays",
    "ExpertsState": "pipeline.online.experts.experts_state",
    "InputError": "pipeline.base.errors",
    "InputWarning": "pipeline.base.errors",
    "JobFileError": "jobs.config.values",
    "KernelLSTD": "pipeline.policy.kernel_lstd",
    "Linear": "pipeline.kernels",
    "LocalExperts": "pipeline.online.experts.local_experts",
    "ModelError": "stores.errors.exceptions",
    "NumericalBreakdown": "pipeline.base.errors",
    "OnlineLSSVM": "pipeline.online.online_ls_svm",
    "OnlineLSTD": "pipeline.policy.online_lstd",
    "OnlineLSSVMClassifier": "pipeline.estimators.online",
    "OnlineLSSVMRegressor": "pipeline.estimators.online",
    "OnlineState": "pipeline.online.state",
    "OpenStore": "jobs.api.open_store",
    "PartitionError": "stores.errors.exceptions",
    "Polynomial": "pipeline.kernels",
    "RBF": "pipeline.kernels",
    "RunResult": "jobs.api.run",
    "SchemaMismatch": "stores.errors.exceptions",
    "SparseKernelClassifier": "pipeline.estimators.sparse",
    "SparseKernelRegressor": "pipeline.estimators.sparse",
    "Store": "stores.repository.repository",
    "StoreError": "stores.errors.exceptions",
    "StoreLocation": "stores.repository.store_location",
    "StoreLocked": "stores.errors.exceptions",
    "StoredModel": "jobs.api.stored_model",
    "open": "jobs.api.open_store",
    "log_mlflow": "pipeline.exports.mlflow_model",
    "open_dask_arrays": "pipeline.dataset.dask_arrays",
    "run": "jobs.api.run",
    "save_mlflow": "pipeline.exports.mlflow_model",
    "to_onnx": "pipeline.exports.onnx.model",
    "to_sklearn": "pipeline.exports.sklearn_pipeline",
}

__all__ = [
    "RBF",
    "ClusterError",
    "DaskDataset",
    "ExpertsState",
    "InputError",
    "InputWarning",
    "JobFileError",
    "KernelLSTD",
    "Linear",
    "LocalExperts",
    "ModelError",
    "NumericalBreakdown",
    "OnlineLSSVM",
    "OnlineLSSVMClassifier",
    "OnlineLSSVMRegressor",
    "OnlineLSTD",
    "OnlineState",
    "OpenStore",
    "PartitionError",
    "Polynomial",
    "RunResult",
    "SchemaMismatch",
    "SparseKernelClassifier",
    "SparseKernelRegressor",
    "Store",
    "StoreError",
    "StoreLocation",
    "StoreLocked",
    "StoredModel",
    "__version__",
    "log_mlflow",
    "open",
    "open_dask_arrays",
    "run",
    "save_mlflow",
    "to_onnx",
    "to_sklearn",
]


if not TYPE_CHECKING:  # a type checker that saw this function would take every name for one that there is

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
