"""The pages of the documentation: every block of code is run, and Sphinx builds them without a warning."""

import re
import sys
from pathlib import Path

import pytest
from support.docs.pages import PAGES, RUNNERS, TOP, Block, blocks_of, check_job, check_printed, run_page
from support.jobs.browser import CHROMIUM, look_at
from support.jobs.jobs import run_program

SHORT = TOP / "docs" / "index.md"
PAGES_A_BROWSER = 5
BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def name_of(page: Path) -> str:
    return page.relative_to(TOP).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_block_says_how_it_is_run(page: Path) -> None:
    for block in blocks_of(page):
        assert block.language in RUNNERS, f"{block}: {block.language!r} is none of {list(RUNNERS)}"
        assert block.language or page.name == "README.md", f"{block} names no language"
        assert block.reason != "", f"{block}: no-run needs a reason"
        assert block.language != "console" or block.text.startswith("$ "), f"{block}: a command begins with '$ '"


def test_each_job_file_is_read(tmp_path: Path) -> None:
    jobs = [block for block in BLOCKS if block.language == "toml"]
    for block in jobs:
        check_job(block, tmp_path)


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[] if p == SHORT else pytest.mark.thorough) for p in PAGES], ids=name_of
)
def test_the_blocks_of_a_page_run_in_their_order(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


def test_files_of_the_project_that_pages_name_exist() -> None:
    for page in PAGES:
        text = page.read_text()
        names = re.findall(r"tests/benchmarks/\w+\.py|(?<=ridgestream/blob/main/)[\w./-]+", text)
        assert [name for name in names if not (TOP / name).exists()] == [], page


def test_a_block_has_a_language_words_a_reason_and_a_text(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "1. A list\n   ```toml file=job.toml\n   a = 1\n     b = 2\n   ```\n\n"
        "<!-- bash\ntrue\n-->\n```{note}\nno code\n```\n```bash no-run: needs systemd\nsystemctl\n```\n"
    )
    assert blocks_of(page) == [
        Block(page, 2, "toml", ("file=job.toml",), None, "a = 1\n  b = 2\n"),
        Block(page, 7, "bash", (), None, "true\n"),
        Block(page, 13, "bash", (), "needs systemd", "systemctl\n"),
    ]
    assert blocks_of(page)[0].file == "job.toml"


def test_what_a_page_shows_must_have_been_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.chdir(tmp_path)
    page.write_text(
        "```python\nprint('took 3 s')\n```\n```text output\ntook … s\n```\n```console\n$ echo a  b\na b\n```\n"
    )
    run_page(page, tmp_path)
    page.write_text("```console\n$ echo one\none\n$ echo two\nthree\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1: not printed: 'three', but\ntwo"):
        run_page(page, tmp_path)
    with pytest.raises(AssertionError, match="not printed: 'a'"):
        check_printed("a\nb\n", ["b", "a"], "somewhere")


def test_a_command_that_fails_fails_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash\nfalse | true\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1: exit code 1 of\nfalse"):
        run_page(page, tmp_path)
    page.write_text("```toml\n[model]\nmax_bases = 3\n```\n")
    with pytest.raises(AssertionError, match=r"(?s)page\.md:1: .*model\.max_bases"):
        run_page(page, tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages; a warning is an error."""
    pytest.importorskip("furo", reason="the extra [docs] builds the pages")
    folder = tmp_path_factory.mktemp("html")
    done = run_program([sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", TOP / "docs", folder])
    assert (done.code, done.err) == (0, "")
    return folder


@pytest.mark.thorough
def test_the_pages_are_built_without_a_warning(built: Path) -> None:
    pages = {page.relative_to(TOP / "docs").with_suffix(".html") for page in PAGES if page.name != "README.md"}
    assert [page for page in pages if not (built / page).exists()] == []


@pytest.mark.thorough
@pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_fits_its_window_and_loads_nothing_from_elsewhere(built: Path, width: int, tmp_path: Path) -> None:
    pages = sorted(page for page in built.rglob("*.html") if "_static" not in page.parts)
    for number in range(0, len(pages), PAGES_A_BROWSER):
        some = pages[number : number + PAGES_A_BROWSER]
        for page, look in zip(some, look_at(some, width, tmp_path / f"profile-{number}"), strict=True):
            assert look.scroll_width <= look.inner_width == width, page.name
            assert [url for url in look.requests if not url.startswith(("file:", "data:"))] == [], page.name
