"""The exceptions of the pipeline; each is also the built-in exception that fits it."""


class InputError(ValueError):
    """Unusable rows, targets or settings; the message says what was expected, what was given, what to do."""


class DictionaryError(InputError):
    """A given dictionary that cannot be used; the message names its file and row."""


class NumericalBreakdown(ArithmeticError):
    """A matrix that should be positive definite is not, within rounding; the message says which setting helps."""


class MemoryRefused(MemoryError):
    """The planned memory exceeds the limit; the message gives both numbers and a remedy."""


TOO_LARGE = (
    "kernel values are too large to compute with: standardize the features, lower the kernel's gamma or degree, or "
    "choose the rbf kernel"
)
"""Message for kernel values that overflow, which an unbounded kernel does on rows far from zero."""
