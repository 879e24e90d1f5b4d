"""Pages of the public names, in reST: Sphinx fills them with signatures and docstrings.

The names are those of ``docs/api.txt`` (``public_names.py``).
"""

from __future__ import annotations

import inspect
from typing import Final

import graphgen
from docs.source.public_names import public_objects

FOLDER: Final = "api"
# Page, its title, and what it begins with.
_PAGES: Final = {
    "models": ("Models", "``graphgen.load`` and ``graphgen.compile``, and what they return."),
    "graph": ("Graphs", "The parts of a graph: modules, functions, ops, values, their types."),
    "builder": ("The builder", "``graphgen.Builder`` appends ops with inferred types."),
    "functions": ("Functions on graphs", "Text, evaluation, verification, pages and views."),
}
_INTRODUCTION: Final = """\
Python names
============

The public names: they keep their signatures, or the changelog says how they change. ``import
graphgen`` has them without loading NumPy, JAX or torch.

.. toctree::

"""


def api_pages() -> dict[str, str]:
    """The text of each page by its name, ``index`` and one for each kind of names."""
    names: dict[str, list[str]] = {page: [] for page in _PAGES}
    for name, page in pages_of_names().items():
        names[page].append(name)
    pages = {"index": _INTRODUCTION + "".join(f"   {page}\n" for page in _PAGES)}
    for page, (title, text) in _PAGES.items():
        parts = [_directive(name) for name in names[page]]
        pages[page] = "\n".join([title, "=" * len(title), "", text, "", *parts])
    return pages


def pages_of_names() -> dict[str, str]:
    """The page of each public name."""
    return {name: _page(name, found) for name, found in sorted(public_objects().items())}


def anchor(name: str) -> str:
    """The anchor of a public name: its place for ``import``, with dots."""
    if name in graphgen.__all__ or name == "compile":
        return f"graphgen.{name}"
    return f"{public_objects()[name].__module__}.{name}"


def _directive(name: str) -> str:
    found = public_objects()[name]
    if inspect.isclass(found):
        return (
            f".. autoclass:: {anchor(name)}\n   :members:\n   :inherited-members: Exception,Enum\n"
        )
    kind = "autofunction" if callable(found) else "autodata"
    return f".. {kind}:: {anchor(name)}\n"


def _page(name: str, found: object) -> str:
    if name == "Builder":
        return "builder"
    module = str(getattr(found, "__module__", ""))
    if module.startswith("graphgen.runtime"):
        return "models"
    is_type = inspect.isclass(found) or not callable(found)
    return "graph" if is_type or module.startswith("graphgen.ir") else "functions"
