"""The page at ``/``: one file, without anything from other servers."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse

# The page runs its own script and style, and talks to this server only.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:"
)


@cache
def page_text() -> str:
    """The HTML of the page."""
    return files("graphgen.runtime.server.documents").joinpath("page.html").read_text("utf-8")


async def try_page(request: Request) -> HTMLResponse:
    """Answer with the page."""
    headers = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff"}
    return HTMLResponse(page_text(), headers=headers)
