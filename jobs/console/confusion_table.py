"""The confusion matrix of a model that learns each class: what is told of it, and how it is shown."""

from collections.abc import Sequence
from typing import Any

from ridgestream.stores.schema.class_labels import Label, class_name


def tell_confusion(classes: Sequence[Label], weights: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the classes and, for each as the truth, the weight of its rows that were taken for each class."""
    return {"classes": list(classes), "weights": [[float(weight) for weight in row] for row in weights]}


def confusion_table(confusion: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return the matrix as a table: a row for each true class, what it was taken for, and the share that was found."""
    from ridgestream.jobs.console.tables import bare_table

    names = [class_name(label) for label in confusion["classes"]]
    table = bare_table()
    table.add_column("class", no_wrap=True)
    for name in [*names, "found"]:
        table.add_column(name, justify="right")
    for position, (name, row) in enumerate(zip(names, confusion["weights"], strict=True)):
        share = f"{row[position] / sum(row):.1%}" if sum(row) else ""
        table.add_row(name, *(f"{weight:,.10g}" for weight in row), share)
    return table
