"""The exceptions and the warning of the pipeline; each is also the built-in one that fits it."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import currentframe

Names = Mapping[str, str]
"""Words of messages, which name the options of the command, and what a door for Python has in their place."""


class InputError(ValueError):
    """Unusable rows, targets or settings; the message says what was expected, what was given, what to do."""


class DictionaryError(InputError):
    """A given dictionary that cannot be used; the message names its file and row."""


class NumericalBreakdown(ArithmeticError):
    """A matrix that should be positive definite is not, within rounding; the message says which setting helps."""


class MemoryRefused(MemoryError):
    """The planned memory exceeds the limit; the message gives both numbers and a remedy."""


class InputWarning(UserWarning):
    """Arrays or settings that can be used, but are probably not what was meant; the message says what to check."""


_PASSED_OVER = ("ridgestream.", "sklearn.callback.")
"""Modules whose lines are none of the user's; scikit-learn's callbacks wrap `fit`."""


def warn_caller(message: str) -> None:
    """Warn with an InputWarning at the user's line that called it, so that it is shown once a line."""
    level, frame = 1, currentframe()
    while frame and frame.f_globals.get("__name__", "").startswith(_PASSED_OVER):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, InputWarning, stacklevel=level)


def renamed(message: str, names: Names) -> str:
    """Return a message with the door's names."""
    for words, own in names.items():
        message = message.replace(words, own)
    return message


@contextmanager
def errors_renamed(names: Names) -> Iterator[None]:
    """Give the errors of a block the door's names."""
    try:
        yield
    except Exception as error:
        error.args = tuple(renamed(part, names) if isinstance(part, str) else part for part in error.args)
        raise


TOO_LARGE = (
    "kernel values are too large to compute with: standardize the features, lower the kernel's gamma or degree, or "
    "choose the rbf kernel"
)
"""Message for kernel values that overflow, which an unbounded kernel does on rows far from zero."""
