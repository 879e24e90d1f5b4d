"""Self-contained HTML pages: template, style, script and data in one file, no network."""

from __future__ import annotations

import html
import json
from importlib.resources import files

from graphgen.json_value import Json


def trace_page(title: str, data: Json) -> str:
    """The page of ``graphgen trace``.

    Args:
        title: of the page.
        data: of ``graphgen.passes.inspect.report``.
    """
    return _page("trace", title, data)


def dump_page(title: str, data: Json) -> str:
    """The page of ``graphgen inspect --html``.

    Args:
        title: title of the page.
        data: ``module``, ``programs`` of :func:`~graphgen.report.dump_data.program_data`, ``locs``.
    """
    return _page("dump", title, data)


def _page(name: str, title: str, data: Json) -> str:
    folder = files("graphgen.report") / name
    page, style, script = (
        (folder / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    # Only "</" and "<!--" are special inside a script element.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {"title": html.escape(title), "style": style, "script": script, "data": text}
    head, *rest = page.split("{{")
    out = [head]
    for piece in rest:
        name, _, plain = piece.partition("}}")
        out += [parts[name], plain]
    return "".join(out)
