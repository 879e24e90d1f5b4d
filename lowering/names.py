"""Names of arguments and results from elsewhere as names of an interface."""

from __future__ import annotations

import re


def clean_name(text: str, default: str) -> str:
    """``text`` as a name: ``result['a'][0]`` is ``result.a.0``."""
    name = re.sub(r"[^\w.\-]+", ".", text).strip(".")
    return default if not name or name.isdigit() else name


def free_name(name: str, taken: set[str]) -> str:
    """``name``, with a number where it is taken; taken from now on."""
    found, number = name, 1
    while found in taken:
        found, number = f"{name}.{number}", number + 1
    taken.add(found)
    return found
