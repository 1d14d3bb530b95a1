"""What the pipeline refuses, as a small tree whose members are also the built-in error that they are."""


class InputError(ValueError):
    """Rows, targets or settings that cannot be used; the message names what was expected, what came, what to do."""


class DictionaryError(InputError):
    """A given dictionary that cannot be used; the message names its file and row."""


class NumericalBreakdown(ArithmeticError):
    """A matrix that must be positive definite is not, within rounding; the message says which setting helps."""


class MemoryRefused(MemoryError):
    """The plan needs more bytes than it may use; the message gives both numbers and a way out."""


TOO_LARGE = (
    "kernel values are too large to compute with: standardize the features, lower the kernel's gamma or degree, or "
    "choose the rbf kernel"
)
"""What a kernel without a bound comes to on rows far from zero, and what helps."""
