"""Manifests with a checksum of themselves: one changed byte is found.

The text is that of ``json.dumps(content, indent=1)`` with ``checksum`` as the last key, the SHA-256
of the text without it. Written in any other way, with other white space for example, it is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from graphgen.whole_file import read_regular

_KEY = "checksum"


def sealed(content: Mapping[str, object]) -> bytes:
    """The text of a manifest, as it is kept in a file; an earlier checksum in it is replaced."""
    bare = {key: value for key, value in content.items() if key != _KEY}
    digest = hashlib.sha256(json.dumps(bare, indent=1).encode()).hexdigest()
    return json.dumps({**bare, _KEY: digest}, indent=1).encode()


def read_json(path: Path) -> dict[str, object]:
    """A manifest with its checksum, which :func:`require_sealed` compares.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON.
        TypeError: it is not an object.
    """
    content = json.loads(read_regular(path))
    if not isinstance(content, dict):
        raise TypeError(f"a JSON object is expected, not {type(content).__name__}")
    return cast("dict[str, object]", content)


def require_sealed(path: Path, content: Mapping[str, object]) -> None:
    """Compare the file with what :func:`sealed` makes of its content.

    A reader looks at versions first: another version may seal otherwise.

    Raises:
        ValueError: a byte of the file was changed.
    """
    if read_regular(path) != sealed(content):
        raise ValueError(f"{path.name} was changed")
