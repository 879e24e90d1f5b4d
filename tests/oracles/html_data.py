"""What the HTML pages of graphgen hold: their data, read as the page does."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r'<script type="text/plain" id="([\w-]+)">([^<]*)</script>')


def head(page: Path) -> Any:
    """The data that the page has at once."""
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(found[1])


def blocks(page: Path) -> dict[str, Any]:
    """The blocks that the page unpacks when something in them is shown."""
    return {
        name: json.loads(zlib.decompress(base64.b64decode(text)))
        for name, text in _BLOCK.findall(page.read_text(encoding="utf-8"))
    }


def own_text(page: Path) -> str:
    """A page without its packed data."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))
