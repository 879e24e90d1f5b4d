"""docs/builder.md lists every method of Builder, and is what the docstrings say now."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path

from graphgen.build.builder import Builder

PAGE = Path(__file__).resolve().parents[3] / "docs" / "builder.md"
MARK = "<!-- The rest is made from docstrings. -->\n"


def test_the_page_is_what_the_docstrings_say():
    head, mark, tables = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark
    if os.environ.get("GRAPHGEN_UPDATE_GOLDEN"):
        tables = "\n" + method_page()
        PAGE.write_text(head + mark + tables, encoding="utf-8")
    assert tables.lstrip("\n") == method_page(), "GRAPHGEN_UPDATE_GOLDEN=1 rewrites it"
    for name in ("dot_general", "while_loop", "weight", "softmax", "convolution"):
        assert f"| `{name}(" in tables


def test_the_operators_of_the_page_are_methods():
    named = re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8").partition(MARK)[0])
    wanted = {"add", "subtract", "multiply", "divide", "power", "negate", "matmul", "compare"}
    assert wanted | {"index"} <= set(named)
    assert all(hasattr(Builder, name) for name in wanted)


def method_page() -> str:
    """The page as markdown: one table for each class that brings methods to the builder."""
    parts: list[str] = []
    for owner in Builder.__mro__:
        rows = list(_rows(owner))
        if rows and owner is not object:
            title = (inspect.getdoc(owner) or "").partition("\n")[0].rstrip(".")
            title = _cell(title)
            parts.append(f"## {title}\n\n| method | what it does |\n|---|---|\n")
            parts.append("\n".join(rows) + "\n\n")
    return "".join(parts).rstrip() + "\n"


def _rows(owner: type) -> Iterator[str]:
    """One row for each public method that a class defines, in order."""
    for name, member in vars(owner).items():
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if getattr(function, "__isabstractmethod__", False):
            continue
        parameters = [p for n, p in inspect.signature(function).parameters.items() if n != "self"]
        shown = ", ".join(
            _plain(str(p.replace(annotation=inspect.Parameter.empty))) for p in parameters
        )
        doc = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        yield f"| `{name}({shown})` | {_cell(doc)} |"


def _plain(parameter: str) -> str:
    """A parameter without the quotes of its annotation, defaults as they are written."""
    return re.sub(r"<.*? object at .*?>", "...", parameter).replace("|", "\\|")


def _cell(doc: str) -> str:
    """Text of a docstring in a table: code in single backticks, references as names."""
    doc = re.sub(r":\w+:`~?([^`]+)`", lambda found: f"`{found[1]}`", doc)
    return doc.replace("``", "`").replace("|", "\\|")
