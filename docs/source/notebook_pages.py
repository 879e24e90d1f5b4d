"""Execute a notebook of ``docs/notebooks`` and print it as a page of Markdown with its outputs.

    python -m docs.source.notebook_pages docs/notebooks/write_a_pass.ipynb

Cells run in order in one namespace, as Jupyter runs them, in this process and in a folder of their
own. What a cell prints is its output; the value of a last expression is not shown.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Final

FOLDER: Final = "notebooks"
ROOT: Final = Path(__file__).resolve().parents[2]


def notebooks() -> list[Path]:
    """The notebooks, by name."""
    return sorted((ROOT / "docs" / FOLDER).glob("*.ipynb"))


def page(notebook: Path) -> str:
    """The page of a notebook, executed in a process of its own.

    Raises:
        subprocess.CalledProcessError: a cell raised an exception.
    """
    command = [sys.executable, "-m", "docs.source.notebook_pages", str(notebook)]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def cells(notebook: Path) -> list[tuple[str, str]]:
    """The kind (``markdown`` or ``code``) and the text of each cell."""
    found = json.loads(notebook.read_text("utf-8"))["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in found]


def executed(notebook: Path) -> Iterator[str]:
    """The lines of the page; cells run as the lines are taken."""
    # Dataclasses look up their types in the module of their name.
    sys.modules["__main__"] = main = ModuleType("__main__")
    for number, (kind, source) in enumerate(cells(notebook)):
        if kind == "markdown":
            yield from (source, "")
            continue
        yield from ("```python", source, "```", "")
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(source, f"cell_{number}.py", "exec", dont_inherit=True), vars(main))
        if text := printed.getvalue().rstrip():
            yield from ("```text", text, "```", "")
    yield from (f"This page is the notebook `docs/{FOLDER}/{notebook.name}`, executed.", "")


if __name__ == "__main__":
    given = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        lines = list(executed(given))
    print("\n".join(lines))
