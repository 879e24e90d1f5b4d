"""Addresses of places in the HTML pages, which open them: ``page.html#pass=cse&rewrite=3``."""

from __future__ import annotations

import re
from urllib.parse import quote


def page_link(page: str, **place: str | int) -> str:
    """The address of a place in a page.

    Args:
        page: path of the file.
        place: ``op``, ``layer``, ``program`` or ``search`` of a page of ``inspect --html``;
            ``pass`` (as ``pass_``), ``rewrite``, ``op`` or ``view`` of one of ``trace``.
    """
    parts = [f"{key.rstrip('_')}={_escaped(str(value))}" for key, value in place.items()]
    return f"{page}#{'&'.join(parts)}"


def op_name(text: str) -> str:
    """The name of the first result in the text of an op, without the ``%``."""
    return text.strip().lstrip("%").partition(" ")[0].rstrip(",")


def _escaped(text: str) -> str:
    """Names stay readable: only what would end a parameter, or the word, is escaped."""
    return re.sub(r"[%&#+\s'\"`$\\<>(){}|;*?!]", lambda found: quote(found[0]), text)
