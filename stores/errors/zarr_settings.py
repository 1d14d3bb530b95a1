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
    except (ValueError, TypeError, LookupError, AttributeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise StoreError(
            "Zarr cannot read its configuration, the YAML files in ~/.config/zarr, /etc/zarr or ZARR_CONFIG: "
            f"{reason}; correct or remove them"
        ) from error
    for defaults in zarr.config.defaults:
        zarr.config.set(defaults)
