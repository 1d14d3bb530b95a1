"""What the pipeline refuses, as a small tree whose members are also the built-in error that they are."""


class InputError(ValueError):
    """Rows, targets or settings that cannot be used; the message names what was expected, what came, what to do."""


class NumericalBreakdown(ArithmeticError):
    """A matrix that must be positive definite is not, within rounding; the message says which setting helps."""


class MemoryRefused(MemoryError):
    """The plan needs more bytes than it may use; the message gives both numbers and a way out."""
