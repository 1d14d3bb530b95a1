"""The confusion matrix, and recall, precision and support of each class: as plain JSON and as tables."""

from collections.abc import Sequence
from typing import Any

from ridgestream.stores.schema.class_labels import Label, class_name


def confusion_facts(classes: Sequence[Label], weights: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the classes and, for each true class, the weight of its rows that were predicted as each class."""
    return {"classes": list(classes), "weights": [[float(weight) for weight in row] for row in weights]}


def binary_confusion(positive: Label, evaluation: dict[str, float]) -> dict[str, Any]:
    """Return the confusion matrix of one class against the rest, from the counts of an evaluation."""
    true_positive = evaluation["true_positive"]
    missed = evaluation["positive"] - true_positive
    wrong = max(evaluation["mistakes"] - missed, 0.0)
    rest = max(evaluation["weight"] - evaluation["positive"] - wrong, 0.0)
    return confusion_facts([class_name(positive), "all others"], [[true_positive, missed], [wrong, rest]])


def class_facts(confusion: dict[str, Any]) -> dict[str, Any]:
    """Return recall, precision and support (weight) of each class, their means, and the classes never predicted.

    The recall of a class without rows and the precision of one that was never predicted are None. In a mean over the
    classes that have rows or predictions they count as zero, as in scikit-learn.
    """
    weights = confusion["weights"]
    support, predicted = [sum(row) for row in weights], [sum(column) for column in zip(*weights, strict=True)]
    by_class = [
        {
            "class": label,
            "recall": weights[i][i] / support[i] if support[i] else None,
            "precision": weights[i][i] / predicted[i] if predicted[i] else None,
            "support": support[i],
        }
        for i, label in enumerate(confusion["classes"])
    ]
    present = [each for each, rows, found in zip(by_class, support, predicted, strict=True) if rows or found]
    return {
        "by_class": by_class,
        "macro_recall": _mean([each["recall"] for each in present]),
        "macro_precision": _mean([each["precision"] for each in present]),
        "never_found": [each["class"] for each in present if each["precision"] is None],
    }


def _mean(shares: Sequence[float | None]) -> float | None:
    return sum(share or 0.0 for share in shares) / len(shares) if shares else None


def confusion_table(confusion: dict[str, Any], *, shares: bool = False) -> Any:  # noqa: ANN401
    """Return the matrix as a rich table: a row for each true class, a column for each predicted one.

    With `shares`, each weight is in per cent of its row.
    """
    from ridgestream.jobs.console.tables import bare_table

    names = [class_name(label) for label in confusion["classes"]]
    table = bare_table()
    table.add_column("class", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for name, row in zip(names, confusion["weights"], strict=True):
        table.add_row(name, *(_share(weight, sum(row)) if shares else f"{weight:,.10g}" for weight in row))
    return table


def _share(weight: float, total: float) -> str:
    return f"{100 * weight / total:.0f}" if total else ""


def class_table(by_class: Sequence[dict[str, Any]]) -> Any:  # noqa: ANN401
    """Return recall, precision and support of each class as a rich table."""
    from ridgestream.jobs.console.tables import bare_table

    table = bare_table()
    table.add_column("class", overflow="fold")
    for name in ("recall", "precision", "support"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in by_class:
        shares = ("–" if each[name] is None else f"{each[name]:.1%}" for name in ("recall", "precision"))
        table.add_row(class_name(each["class"]), *shares, f"{each['support']:,.10g}")
    return table


def print_confusion(console: Any, confusion: dict[str, Any]) -> None:  # noqa: ANN401
    """Print the figures of each class, and below them the matrix: weights, or per cent where they do not fit."""
    console.print(class_table(class_facts(confusion)["by_class"]))
    for unit in ("", ", in % of the row"):
        table = confusion_table(confusion, shares=bool(unit))
        if _width_of(console, table) <= console.width:
            console.print(f"confusion: true classes (rows) and predicted classes (columns){unit}")
            console.print(table)
            return
    console.print(f"no room for the confusion matrix of {len(confusion['classes'])} classes: --json has it")


def _width_of(console: Any, table: Any) -> int:  # noqa: ANN401
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(max_width=10**6), table).maximum
