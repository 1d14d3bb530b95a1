"""The confusion matrix and the figures of each class: on a terminal of 80 columns, and against another library's."""

import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics import classification_report, confusion_matrix

from ridgestream.jobs.console.confusion_table import binary_confusion, class_facts, confusion_facts, print_confusion


def printed(labels: list[str], weights: list[list[float]], width: int = 80) -> list[str]:
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        print_confusion(console, confusion_facts(labels, weights))
    return [line for line in capture.get().splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("rows", "first", "unit"),
    [(100.0, ["100", *["12"] * 9], ""), (10_000.0, ["99", *["0"] * 9], ", in % of the row")],
    ids=["weights", "per cent"],
)
def test_ten_classes_fit_80_columns(rows: float, first: list[str], unit: str) -> None:
    weights = [[rows if i == j else 12.0 for j in range(10)] for i in range(10)]
    lines = printed([str(i) for i in range(10)], weights)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["class", "recall", "precision", "support"]
    assert lines[2].split() == ["0", *[f"{rows / (rows + 108):.1%}"] * 2, f"{rows + 108:,.0f}"]
    assert lines[12] == f"confusion: true classes (rows) and predicted classes (columns){unit}"
    assert lines[15].split() == ["0", *first]


def test_a_matrix_without_room_is_left_out_and_its_classes_are_shown_all_the_same() -> None:
    labels = [chr(97 + i) * 5 for i in range(26)]
    lines = printed(labels, [[float(i == j) for j in range(26)] for i in range(26)])
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "no room for the confusion matrix of 26 classes: --json has it"
    assert [line.split()[0] for line in lines[2:28]] == labels


def test_a_long_name_of_a_class_is_folded() -> None:
    lines = printed(["z" * 200, "y"], [[1.0, 2.0], [3.0, 4.0]])
    assert max(map(len, lines)) <= 80
    assert sum(line.count("z") for line in lines) == 200


@pytest.mark.parametrize("absent", [None, 2], ids=["all", "one absent"])
def test_figures_of_classes_are_those_of_another_library(absent: int | None) -> None:
    rng = np.random.default_rng(3)
    truth, predicted = rng.integers(0, 5, 400), rng.integers(0, 4, 400)  # the last class is never predicted
    truth, predicted = (values[(truth != absent) & (predicted != absent)] for values in (truth, predicted))
    facts = class_facts(confusion_facts(range(5), confusion_matrix(truth, predicted, labels=range(5)).tolist()))
    expected = classification_report(truth, predicted, output_dict=True, zero_division=0)
    for each in facts["by_class"]:
        ours = [each["recall"] or 0.0, each["precision"] or 0.0, each["support"]]
        figures = expected.get(str(each["class"]), {})
        assert ours == pytest.approx([figures.get(name, 0.0) for name in ("recall", "precision", "support")])
    macro = expected["macro avg"]
    assert facts["macro_recall"] == pytest.approx(macro["recall"])
    assert facts["macro_precision"] == pytest.approx(macro["precision"])
    assert facts["never_found"] == [4]


def test_one_class_against_the_rest() -> None:
    counts = {"weight": 10.0, "mistakes": 3.0, "positive": 4.0, "true_positive": 3.0}
    assert binary_confusion(True, counts) == {"classes": ["true", "all others"], "weights": [[3.0, 1.0], [2.0, 4.0]]}


def test_without_rows_there_are_no_figures() -> None:
    facts = class_facts(confusion_facts(["a", "b"], [[0.0, 0.0], [0.0, 0.0]]))
    assert (facts["macro_recall"], facts["macro_precision"], facts["never_found"]) == (None, None, [])
    assert class_facts(confusion_facts((), ()))["by_class"] == []
