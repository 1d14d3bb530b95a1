"""What this process's configuration of Zarr may not change: the format of what is written, and how it is read."""

from functools import cache
from typing import Final

from ridgestream.stores.errors.exceptions import StoreError

ZARR_FORMAT: Final = 3
"""The format of every group and array, whatever Zarr's default is."""


@cache
def use_zarr_defaults() -> None:
    """Give Zarr its own defaults in this process, in place of ZARR_* variables and ~/.config/zarr.

    For processes of ours, the command and tasks on workers; in another program, what matters is stated at each call.
    Raises StoreError if Zarr cannot read its configuration.
    """
    try:
        import zarr
    except (ValueError, OSError) as error:
        raise StoreError(f"Zarr cannot read its configuration (~/.config/zarr, ZARR_CONFIG): {error}") from error
    for defaults in zarr.config.defaults:
        zarr.config.set(defaults)
