"""The page of a report: well formed, self-contained, escaped, with texts for screen readers, as wide as its window."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.jobs.browser import CHROMIUM, look_at
from support.jobs.jobs import REGRESSION, ROWS, Workplace, draw_regression, draw_rows, set_column

from ridgestream.jobs.report.report_files import Concluded

EVIL = "<script>alert(1)<&\"'"
"""A name that must be escaped."""

VOID = ("meta", "wbr")


class Page(HTMLParser):
    """A parsed page; parsing fails where tags are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "wbr":
            tag, before = self.texts.pop()
            self.texts.append((tag, before + data))
        elif data.strip() and self.open[-1] != "style":
            self.texts.append((self.open[-1], data))

    @property
    def text(self) -> str:
        return " ".join(" ".join(text for _, text in self.texts).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def read_page(path: Path) -> Page:
    return Page(path.read_text())


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of all kinds by their name: of nights that went well or not, of numbers and classes, and of a failure."""
    folder = tmp_path_factory.mktemp("pages")
    _classes(Workplace(folder / "classes"), folder / "out")
    _numbers(Workplace(folder / "numbers"), folder / "out")
    return {path.name.removesuffix(".html"): path for path in (folder / "out").glob("*.html")}


def _classes(work: Workplace, out: Path) -> None:
    names = np.array([EVIL, "b", "a class with a name that is far too long for any column of any table"])
    job = {
        "report": str(out),
        "model.name": "classes",
        "source.positive": None,
        "source.classes": "all",
        "source.on_bad": "quarantine",
        "model.guard": 0.02,
    }

    def put(number: int, where: str = "rows", rows: int = 900, turn: int = 0) -> Path:
        table = draw_rows(number, rows)
        if rows < 900:
            table = set_column(table, "x3", np.asarray(table["x3"]) * 3)
        table = table.rename_columns([f"{EVIL}x0", *table.column_names[1:]])
        return work.put(number, set_column(table, "label", names[(np.asarray(table["label"]) - 1 + turn) % 3]), where)

    put(1000, "held-out")
    put(0)
    work.run_here(job)
    put(1).rename(work.folder / "rows" / "part-01-<script>alert(1)<&.parquet")
    work.put(2).rename(work.folder / "rows" / "part-02-<b>.parquet")  # lacks a column
    work.run_here(job)
    put(3, rows=4000, turn=1)
    put(4, rows=300)
    with pytest.raises(Concluded, match="night 2 continues to be served"):
        work.run_here(job)


def _numbers(work: Workplace, out: Path) -> None:
    job = {"report": str(out), "model.name": "numbers", "model.refit": True, **REGRESSION}
    for number in range(3):
        work.put(number, draw_regression(number, 700))
    work.put(0, draw_regression(1000, 700), where="held-out")
    work.run_here(job)
    method = {"model.name": "batch", "model.method": "subset-of-regressors", "model.refit": None}
    sizes = {
        "model.max_basis": None,
        "model.subset_of_regressors.start_basis": 20,
        "model.regularization": [1e-5, 1e-3],
    }
    batch = job | method | sizes
    work.run_here(batch)
    work.run_here({**job, "model.name": "experts", "model.refit": None, "model.experts": 6, "model.max_basis": 8})
    work.put(3, set_column(draw_regression(3), "age", [None] * ROWS))
    with pytest.raises(ValueError, match="column 'age' has the value null"):
        work.run_here(job)


KINDS = (
    "classes-0001",
    "classes-0002",
    "classes-0003",
    "numbers-0001",
    "numbers-0002.failed",
    "batch-0001",
    "experts-0001",
)


def test_there_is_a_page_of_each_kind(pages: dict[str, Path]) -> None:
    assert sorted(pages) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_well_formed_and_loads_nothing(pages: dict[str, Path], kind: str) -> None:
    page = read_page(pages[kind])
    assert page.tags[0] == ("html", {"lang": "en"})
    assert (page.count("h1"), page.count("main"), page.count("style")) == (1, 1, 1)
    assert not {"script", "link", "img", "iframe", "object", "a"} & {tag for tag, _ in page.tags}
    attributes = {name for _, attrs in page.tags for name in attrs}
    assert not {"src", "href", "srcset", "xlink:href"} & attributes
    assert not [name for name in attributes if name.startswith("on")]
    text = pages[kind].read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert "url(" not in text
    assert "@import" not in text
    assert not re.search(r"https?:", text)
    policies = [attrs["content"] for _, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_texts_for_screen_readers(pages: dict[str, Path], kind: str) -> None:
    page = read_page(pages[kind])
    tags = [tag for tag, _ in page.tags]
    followers = {tag: {after for before, after in pairwise(tags) if before == tag} for tag in ("table", "svg")}
    assert followers["table"] == {"caption"}
    assert followers["svg"] <= {"title"}
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in page.tags:
        if tag == "svg":
            assert attrs["role"] == "img"
            assert set((attrs["aria-labelledby"] or "").split()) <= set(ids)
        if tag == "th":
            assert attrs["scope"] in ("row", "col")
        if tag == "div" and attrs.get("tabindex") == "0":
            assert attrs["role"] == "region"
            assert attrs["aria-label"]
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h\d", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_names_of_users_are_escaped(pages: dict[str, Path]) -> None:
    page = read_page(pages["classes-0002"])
    assert "part-01-<script>alert(1)<&.parquet" in "".join(text for _, text in page.texts)
    assert f"predicted {EVIL}" in page.text
    assert "part-02-<b>.parquet" in page.text
    assert f"{EVIL}x0" in page.text
    assert "&lt;script&gt;" in pages["classes-0002"].read_text()


def test_a_page_shows_what_happened(pages: dict[str, Path]) -> None:
    first, second, third = (read_page(pages[f"classes-000{night}"]).text for night in (1, 2, 3))
    assert "All is well" in first
    assert "Done, with something to look at" in second
    assert "1 partition put into quarantine: part-02-<b>.parquet" in second
    assert "Not served: the model got worse" in third
    assert "held back; night 2 is served" in third
    assert "suspect" in third
    for title in (
        "Progressive error",
        "Dictionary size",
        "Partitions consumed",
        "Confusion on the held-out rows",
        "Stages",
    ):
        assert title in first
    for fact in ("data snapshot", "regularization (λ per row)", "kernel.name", "ridgestream", "icechunk"):
        assert fact in first
    assert "Held-out error of all nights" not in first
    assert "Held-out error of all nights" in third
    assert "Residuals of price" in read_page(pages["numbers-0001"]).text
    assert "as used" in read_page(pages["batch-0001"]).text


def test_a_page_shows_the_cells_of_local_experts(pages: dict[str, Path]) -> None:
    page, facts = read_page(pages["experts-0001"]), json.loads(pages["experts-0001"].with_suffix(".json").read_text())
    tips = [re.fullmatch(r"cell (\d+): (\S+) rows, \d+ vectors, error (\S+)", text) for _, text in page.texts]
    shown = {int(tip[1]): (int(tip[2].replace(",", "")), float(tip[3])) for tip in tips if tip}
    cells = facts["cells"]["cells"]
    assert shown == {each["cell"]: (each["rows"], float(f"{each['error']:.4g}")) for each in cells}
    assert page.text.count("weakest") >= 5
    assert "vectors in 6 cells, of 8 at most in each" in page.text
    circles = [attrs for tag, attrs in page.tags if tag == "circle" and "cell" in (attrs["class"] or "")]
    radii = [float(attrs["r"] or 0) for attrs in circles]
    assert radii == sorted(radii, reverse=True)


def test_the_page_of_a_failure_shows_why_and_where(pages: dict[str, Path]) -> None:
    text = read_page(pages["numbers-0002.failed"]).text
    assert "numbers, night 2 that failed" in text
    assert "column 'age' has the value null" in text
    assert "It was in the step ingest" in text
    assert "the same command continues from there" in text


def test_plots_show_the_numbers_of_the_tables(pages: dict[str, Path]) -> None:
    tips = [text for tag, text in read_page(pages["classes-0003"]).texts if tag == "title"]
    table = read_page(pages["classes-0003"]).text
    held_out = [re.fullmatch(r"on held-out rows: (\S+) % at (\S+)", tip) for tip in tips]
    shown = [float(found[1]) for found in held_out if found]
    assert len(shown) == 3
    for error in shown:
        assert any(abs(float(number) - error) < 0.06 for number in re.findall(r"(\d+\.\d\d) %", table))


def test_the_colours_of_texts_have_enough_contrast(pages: dict[str, Path]) -> None:
    style = pages["numbers-0001"].read_text().split("</style>")[0]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]+)", style.split("}")[0]))
    for name in ("ink", "soft", "good", "look", "bad", "a", "b"):
        for ground in ("page", "card"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    assert contrast(colours["c"], colours["card"]) >= 3.0


def contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2 between two colours."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser_pages_are_as_wide_as_their_window_and_quiet(
    pages: dict[str, Path], tmp_path: Path, width: int
) -> None:
    looks = look_at([pages[kind] for kind in KINDS], width, tmp_path / "profile")
    for kind, look in zip(KINDS, looks, strict=True):
        assert look.scroll_width <= look.inner_width == width, kind
        assert (look.beyond, look.messages, look.requests) == ([], [], []), kind


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_the_browser_reports_a_page_that_is_too_wide_or_loads_something(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        "<!DOCTYPE html><title>x</title><p style='width: 500px'>x<img src='missing.png' alt=''><script>no()</script>"
    )
    (look,) = look_at([page], 390, tmp_path / "profile")
    assert look.scroll_width > look.inner_width
    assert look.beyond
    assert look.messages
    assert look.requests == [(tmp_path / "missing.png").as_uri()]
