"""What the explorer page holds: its data, read as the page does."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r'<script type="text/plain" id="([\w-]+)">([^<]*)</script>')


def head(page: Path) -> Any:
    """The data that the page has at once."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(found[1])


def blocks(page: Path) -> dict[str, bytes]:
    """The packed data by name."""
    return {
        name: zlib.decompress(base64.b64decode(text))
        for name, text in _BLOCK.findall(page.read_text(encoding="utf-8"))
    }


def tables(page: Path, side: int = 0) -> Any:
    """The tables of a module."""
    return json.loads(blocks(page)[f"tables-{side}"])


def columns(page: Path, name: str, rows: Any) -> dict[str, list[Any]]:
    """The columns of a block, described by rows of the head."""
    data = blocks(page)[name]
    return {
        key: [*struct.unpack_from(f"<{count}{code}", data, first)]
        for key, code, first, count in rows
    }


def own_text(page: Path) -> str:
    """A page without its packed data."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))
