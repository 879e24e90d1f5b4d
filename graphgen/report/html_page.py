"""Self-contained HTML pages: template, style, scripts and data in one file, no network."""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Mapping
from importlib.resources import files

from graphgen.json_value import Json

# Files of graphgen.pages: scripts in the order of their use.
_LIBRARY = "dagre"
_TRACE = ("elements.js", "trace.js")
_DUMP = (
    f"{_LIBRARY}.min.js",
    "elements.js",
    *(f"dump_{name}.js" for name in ("store", "mesh", "scopes", "layout", "canvas")),
    *(f"dump_{name}.js" for name in ("detail", "layer", "overview", "memory", "search")),
    "dump.js",
)


def trace_page(title: str, data: Json) -> str:
    """The page of ``graphgen trace``.

    Args:
        title: of the page.
        data: of ``graphgen.passes.inspect.report``.
    """
    return _page("trace", title, data, _TRACE)


def dump_page(title: str, data: Json, blocks: Mapping[str, str]) -> str:
    """The page of ``graphgen inspect --html``.

    Args:
        title: title of the page.
        data: the head of :class:`~graphgen.report.dump_data.DumpData`.
        blocks: its blocks: compressed, and unpacked by the page when something in them is shown.
    """
    return _page("dump", title, data, _DUMP, blocks)


def _page(
    name: str,
    title: str,
    data: Json,
    scripts: tuple[str, ...],
    blocks: Mapping[str, str] | None = None,
) -> str:
    # Only "</" and "<!--" are special inside a script element.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "title": html.escape(title),
        "style": _file("page.css") + _file(f"{name}.css"),
        "script": "\n".join(map(_script, scripts)),
        "data": text,
        "blocks": "\n".join(_block(key, block) for key, block in (blocks or {}).items()),
    }
    head, *rest = _file(f"{name}.html").split("{{")
    out = [head]
    for piece in rest:
        name, _, plain = piece.partition("}}")
        out += [parts[name], plain]
    return "".join(out)


def _file(name: str) -> str:
    return (files("graphgen.pages") / name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    """A script; one of a library with its licence, and without the name of its source map."""
    text = _file(name)
    if not name.startswith(f"{_LIBRARY}."):
        return text
    notice = _file(f"{_LIBRARY}.LICENSE")
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL")]
    return "\n".join([f"/*! {name}", notice, "*/", *lines])


def _block(key: str, text: str) -> str:
    packed = base64.b64encode(zlib.compress(text.encode(), 6)).decode()
    return f'<script type="text/plain" id="{key}">{packed}</script>'
