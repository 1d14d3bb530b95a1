"""The page for users of scikit-learn as a notebook; `PYTHONPATH=tests python -m support.docs.notebook` writes it."""

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "scikit-learn.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")

_CODE = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def notebook_of(page: Path) -> str:
    """Return a page as a notebook: its blocks of Python as code, without output, and the text between them."""
    texts = _CODE.split(page.read_text(encoding="utf-8"))
    cells = [_cell(number, text.strip()) for number, text in enumerate(texts) if text.strip()]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, text: str) -> dict[str, Any]:
    cell = {"cell_type": "markdown", "id": f"part-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    is_code = number % 2 == 1  # what a group of the pattern has found
    return cell | {"cell_type": "code", "execution_count": None, "outputs": []} if is_code else cell


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook_of(PAGE), encoding="utf-8")
