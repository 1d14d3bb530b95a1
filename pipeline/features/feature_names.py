"""Names of the columns of the rows that a learner takes: a table with other ones is refused, as in scikit-learn."""

from dataclasses import dataclass

from ridgestream.pipeline.base.errors import InputError, warn_caller


@dataclass(frozen=True)
class FeatureNames:
    """The names of the columns that were learned."""

    names: tuple[str, ...] | None = None
    """The names, in order; None if the rows were an array, or are not known."""
    are_known: bool = False
    """Whether rows with these names, or without names, were learned."""

    @classmethod
    def of(cls, X: object) -> "FeatureNames":
        """Return the names of a pandas, polars or Arrow table; an array, or a table without a text name, has none.

        Raises InputError if only some of the names are text.
        """
        columns = getattr(X, "column_names", getattr(X, "columns", ()))
        texts = [isinstance(name, str) for name in columns]
        if any(texts) and not all(texts):
            name = columns[texts.index(False)]
            raise InputError(f"the names of columns must all be text, or none of them, one is {name!r}")
        return cls(tuple(columns) if any(texts) else None, are_known=True)

    def check(self, X: object) -> "FeatureNames":
        """Return the names once rows `X` are learned.

        Raises InputError, with the remedy, for a table with other columns, or with these in another order. Warns if
        only one of `X` and the learned rows has names, so that columns can be matched by their place alone.
        """
        given = FeatureNames.of(X)
        if not self.are_known or given == self:
            return given
        if self.names is None or given.names is None:
            which = "X has" if self.names is None else "the rows learned had"
            warn_caller(f"only {which} column names: columns are matched by their place")
            return self
        raise InputError(
            f"X must have the columns that were learned, in their order; {_difference(self.names, given.names)}: "
            "select list(learner.feature_names_in_)"
        )


def _difference(known: tuple[str, ...], given: tuple[str, ...]) -> str:
    """Say what `given` lacks, what it has besides, or that only the order differs."""
    lacking = ", ".join(repr(name) for name in known if name not in given)
    unknown = ", ".join(repr(name) for name in given if name not in known)
    parts = [f"it {what} {names}" for what, names in (("lacks", lacking), ("also has", unknown)) if names]
    return " and ".join(parts) or "the order differs"
