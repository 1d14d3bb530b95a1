"""Whether Python runs assertions, without which libraries read stores wrongly: Zarr parses metadata in them."""

WITHOUT_ASSERTIONS = (
    "Python leaves out assertions (python -O or PYTHONOPTIMIZE), and libraries that read and write the store do not "
    "work without them: unset PYTHONOPTIMIZE, and leave -O away"
)
"""Why a process is refused, and what to do."""


def asserts() -> bool:
    """Return whether assertions are run."""
    return __debug__
