"""Ridgestream: Parquet partitions through chunked Zarr storage into sparse kernel least-squares models.

A public name is imported when it is first used: `import ridgestream` alone loads neither numba nor zarr nor dask.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ridgestream.pipeline.base.errors import InputError as InputError
    from ridgestream.pipeline.base.errors import InputWarning as InputWarning
    from ridgestream.pipeline.base.errors import NumericalBreakdown as NumericalBreakdown
    from ridgestream.pipeline.dataset.dask_arrays import DaskDataset as DaskDataset
    from ridgestream.pipeline.dataset.dask_arrays import open_dask_arrays as open_dask_arrays
    from ridgestream.pipeline.kernels import RBF as RBF
    from ridgestream.pipeline.kernels import Linear as Linear
    from ridgestream.pipeline.kernels import Polynomial as Polynomial
    from ridgestream.pipeline.online.experts.experts_state import ExpertsState as ExpertsState
    from ridgestream.pipeline.online.experts.local_experts import LocalExperts as LocalExperts
    from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM as OnlineLSSVM
    from ridgestream.pipeline.online.state import OnlineState as OnlineState
    from ridgestream.stores.errors.exceptions import StoreError as StoreError
    from ridgestream.stores.repository.repository import Store as Store
    from ridgestream.stores.repository.store_location import StoreLocation as StoreLocation

__version__ = "0.2.0"

_MODULES = {
    "DaskDataset": "pipeline.dataset.dask_arrays",
    "ExpertsState": "pipeline.online.experts.experts_state",
    "InputError": "pipeline.base.errors",
    "InputWarning": "pipeline.base.errors",
    "Linear": "pipeline.kernels",
    "LocalExperts": "pipeline.online.experts.local_experts",
    "NumericalBreakdown": "pipeline.base.errors",
    "OnlineLSSVM": "pipeline.online.online_ls_svm",
    "OnlineState": "pipeline.online.state",
    "Polynomial": "pipeline.kernels",
    "RBF": "pipeline.kernels",
    "Store": "stores.repository.repository",
    "StoreError": "stores.errors.exceptions",
    "StoreLocation": "stores.repository.store_location",
    "open_dask_arrays": "pipeline.dataset.dask_arrays",
}

__all__ = [
    "RBF",
    "DaskDataset",
    "ExpertsState",
    "InputError",
    "InputWarning",
    "Linear",
    "LocalExperts",
    "NumericalBreakdown",
    "OnlineLSSVM",
    "OnlineState",
    "Polynomial",
    "Store",
    "StoreError",
    "StoreLocation",
    "__version__",
    "open_dask_arrays",
]


if not TYPE_CHECKING:  # a type checker that saw this function would take every name for one that there is

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
