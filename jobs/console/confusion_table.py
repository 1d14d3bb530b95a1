"""The confusion matrix of a model with several classes, as plain JSON and as a table."""

from collections.abc import Sequence
from typing import Any

from ridgestream.stores.schema.class_labels import Label, class_name


def confusion_facts(classes: Sequence[Label], weights: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the classes and, for each true class, the weight of its rows that were predicted as each class."""
    return {"classes": list(classes), "weights": [[float(weight) for weight in row] for row in weights]}


def confusion_table(confusion: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return the matrix as a rich table: a row for each true class, a column for each predicted one, and the recall."""
    from ridgestream.jobs.console.tables import bare_table

    names = [class_name(label) for label in confusion["classes"]]
    table = bare_table()
    table.add_column("class", no_wrap=True)
    for name in [*names, "recall"]:
        table.add_column(name, justify="right")
    for i, (name, row) in enumerate(zip(names, confusion["weights"], strict=True)):
        recall = f"{row[i] / sum(row):.1%}" if sum(row) else ""
        table.add_row(name, *(f"{weight:,.10g}" for weight in row), recall)
    return table
