"""Self-contained HTML pages: template, style, scripts and data in one file, no network."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files

from graphgen.json_value import Json

# Files of graphgen.pages: scripts in the order of their use.
_LIBRARIES = {"dagre.min.js": "dagre", "marked.umd.js": "marked", "purify.min.js": "purify"}
_TRACE = ("elements.js", "trace.js")

_EXPLORE = (
    "dagre.min.js",
    "elements.js",
    *(f"explore_{name}.js" for name in ("store", "regions", "layout", "colours", "canvas")),
    *(f"explore_{name}.js" for name in ("mesh", "detail", "paths", "times", "overview", "memory")),
    *(f"explore_{name}.js" for name in ("search", "pairs", "pane")),
    "explore.js",
)

_CHAT = (
    "marked.umd.js",
    "purify.min.js",
    "elements.js",
    *(f"chat_{name}.js" for name in ("markdown", "tokens", "kept")),
    "chat.js",
)
# The page of a server asks that server alone, and only DOMPurify may make elements of text.
_SERVED = (
    "connect-src 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types dompurify"
)


def trace_page(title: str, data: Json) -> str:
    """The page of ``graphgen trace``.

    Args:
        title: of the page.
        data: of ``graphgen.passes.inspect.report``.
    """
    return _page("trace", title, data, _TRACE)


def explore_page(title: str, data: Json, blocks: Mapping[str, str]) -> str:
    """The page of ``graphgen explore`` and ``inspect --html``.

    Args:
        title: title of the page.
        data: the head of :class:`~graphgen.report.explore_data.ExploreData`.
        blocks: its packed data.
    """
    return _page("explore", title, data, _EXPLORE, blocks)


def chat_page() -> tuple[str, str]:
    """The page of ``graphgen serve``, and the Content-Security-Policy to send with it."""
    style, script = _style("chat"), _scripts(_CHAT)
    page = _filled("chat", {"title": "graphgen serve", "style": style, "script": script})
    return page, f"{_policy(style, script)}; {_SERVED}"


def _page(
    name: str,
    title: str,
    data: Json,
    scripts: tuple[str, ...],
    blocks: Mapping[str, str] | None = None,
) -> str:
    # Only "</" and "<!--" are special inside a script element.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    style, script = _style(name), _scripts(scripts)
    parts = {
        "title": html.escape(title),
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "data": text,
        "blocks": "\n".join(_block(key, block) for key, block in (blocks or {}).items()),
    }
    return _filled(name, parts)


def _filled(name: str, parts: Mapping[str, str]) -> str:
    head, *rest = _file(f"{name}.html").split("{{")
    out = [head]
    for piece in rest:
        name, _, plain = piece.partition("}}")
        out += [parts[name], plain]
    return "".join(out)


def _policy(style: str, script: str) -> str:
    """A policy under which the page runs its own script and fetches nothing."""
    hashes = [base64.b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _file(name: str) -> str:
    return (files("graphgen.pages") / name).read_text(encoding="utf-8")


def _style(name: str) -> str:
    return _file("page.css") + _file(f"{name}.css")


def _scripts(names: tuple[str, ...]) -> str:
    return "\n".join(map(_script, names))


def _script(name: str) -> str:
    """A script; one of a library with its licence, and without the name of its source map."""
    text = _file(name)
    if name not in _LIBRARIES:
        return text
    notice = _file(f"{_LIBRARIES[name]}.LICENSE")
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL")]
    return "\n".join([f"/*! {name}", notice, "*/", *lines])


def _block(key: str, text: str) -> str:
    return f'<script type="text/plain" id="{key}">{text}</script>'
