"""What can prevent an export."""

from importlib.util import find_spec

from ridgestream.pipeline.base.errors import InputError


class NotExportable(InputError):
    """A model that a format cannot hold; the message says what in it, and which format can."""


class MissingExtra(ImportError):
    """A package that an export takes is not installed; the message has the command that installs it."""


def require(extra: str, *packages: str) -> None:
    """Raise MissingExtra unless these packages, which the extra of this name brings, are installed."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtra(
                f"this export takes the package {package}, which is not installed: pip install 'ridgestream[{extra}]'"
            )
