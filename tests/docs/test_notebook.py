"""The notebook for users of scikit-learn is the page, whose blocks run in `test_pages`."""

from support.docs.notebook import NOTEBOOK, PAGE, notebook_of


def test_the_notebook_is_the_page() -> None:
    assert NOTEBOOK.read_text(encoding="utf-8") == notebook_of(PAGE), "run `python -m support.docs.notebook`"
