"""Resources of an MLIR file: constants whose bytes follow the module."""

from __future__ import annotations

import re

_START = "{-#"
_BLOB = re.compile(r'([\w.$\-]+|"(?:[^"\\]|\\.)*")\s*:\s*"0x([0-9A-Fa-f]*)"')
# Digits of the alignment in front of the bytes.
_ALIGNMENT = 8


def split_resources(text: str) -> tuple[str, dict[str, str]]:
    """The text without its resources, and the bytes of each in hexadecimal by its name."""
    start = text.rfind(_START)
    if start < 0 or "#-}" not in text[start:]:
        return text, {}
    found = _BLOB.findall(text, start)
    return text[:start], {name.strip('"'): data[_ALIGNMENT:] for name, data in found}
