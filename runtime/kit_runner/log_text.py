"""The text of a compiler's log: its codes, its end, and nothing that names a machine."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Sequence

_CODE = re.compile(r"\bNCC_[A-Z]+\d+\b")
# A path of two folders or more; the file's own name is kept.
_PATH = re.compile(r"(?<![\w/.])(?:/[\w.+@~-]+){2,}")
_TAIL_LINES, _TAIL_CHARACTERS = 40, 6000


def counted(count: int, noun: str) -> str:
    """A number and its noun: ``1 case``, ``3 cases``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def codes_of(text: str) -> list[str]:
    """The compiler's codes that a log names, each once, in order."""
    return list(dict.fromkeys(_CODE.findall(text)))


def tail_of(text: str, folders: Sequence[str] = (), count: int = _TAIL_LINES) -> str:
    """The last lines, without names of this machine, its user and its folders."""
    lines = text.rstrip().splitlines()[-count:]
    return without_names("\n".join(lines)[-_TAIL_CHARACTERS:], folders)


def without_names(text: str, folders: Sequence[str] = ()) -> str:
    """A text with the names of this machine, its user and its folders taken out."""
    for folder in sorted({*folders, os.path.expanduser("~")}, key=len, reverse=True):
        if len(folder) > 1:
            text = text.replace(folder, "<folder>")
    text = _PATH.sub(lambda match: "<folder>/" + match[0].rpartition("/")[2], text)
    for name in _own_names():
        text = re.sub(rf"\b{re.escape(name)}\b", "<name>", text)
    return text


def _own_names() -> list[str]:
    host = socket.gethostname()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    # A name that is also a word of logs would tear holes into them.
    common = {"localhost", "root", "user", "neuron"}
    return [
        item
        for item in (host, host.partition(".")[0], user)
        if len(item) > 2 and item not in common
    ]
