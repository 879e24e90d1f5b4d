"""Names of arguments and results from elsewhere as names of an interface."""

from __future__ import annotations

import re


def clean_name(text: str, default: str) -> str:
    """``text`` as a name: ``result['a'][0]`` is ``result.a.0``."""
    name = re.sub(r"[^\w.\-]+", ".", text).strip(".")
    return default if not name or name.isdigit() else name
