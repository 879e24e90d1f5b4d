"""Sign manifests and compiled programs with a key of this user, and check such signatures.

A checksum shows that a file is the one that was written, and the writer of another file writes its
checksum too. A signature (HMAC-SHA-256) can only be made with the key.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from graphgen.atomic_write import read_regular, scratch, unreadable
from graphgen.errors import GraphgenError
from graphgen.runtime.folders import sealed

# Names the file of the key where several machines or users share artifacts.
VARIABLE: Final = "GRAPHGEN_ARTIFACT_KEY"
FILE: Final = "artifact.key"
# Bytes of the file at least, so that the key cannot be guessed, and at most.
_LEAST, _MOST = 32, 4096
_SIGNATURE, _CHECKSUM = "signature", "checksum"
_HELP = "make one: openssl rand -hex 32 > FILE; chmod 600 FILE"


def signing_key(*, make: bool = False) -> bytes | None:
    """The key of this user.

    Args:
        make: make it where there is none yet.

    Returns:
        ``None`` where there is none, or none can be made, as without a home folder.

    Raises:
        GraphgenError: GG0705 for a file that holds no key, or that others can change or, in the
            configuration folder, read.
    """
    given = os.environ.get(VARIABLE)
    if given == "":
        raise GraphgenError("GG0705", f"{VARIABLE} is empty", help=f"unset it; or {_HELP}")
    if given is not None:
        return _key_of(Path(given), f"{VARIABLE}={given}", secret=False)
    folder = configuration_folder()
    if folder is None:
        return None
    path = folder / FILE
    if make and not path.exists():
        with suppress(OSError):
            _make_key(path)
    if not os.access(path.parent, os.X_OK) or not path.exists():
        return None
    return _key_of(path, str(path), secret=True)


def configuration_folder() -> Path | None:
    """The folder of this user's configuration, which need not be there; ``None`` without a home."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    with suppress(RuntimeError):
        return Path(home).expanduser() / "graphgen"
    return None


def _make_key(path: Path) -> None:
    """Write a new key unless another process does at the same time (OSError)."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with scratch(path.parent, ".key-", ".part", _private_file) as part:
        part.write_text(token_hex(32) + "\n")
        with suppress(FileExistsError):
            os.link(part, path)


def _private_file(name: str, parent: int) -> None:
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=parent))


def _key_of(path: Path, name: str, *, secret: bool) -> bytes:
    try:
        key = read_regular(path, _MOST).strip()
        found = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(name, error, _HELP) from error
    if len(key) < _LEAST:
        what = f"{name} holds {len(key)} bytes, a key has at least {_LEAST}"
        raise GraphgenError("GG0705", what, help=_HELP)
    open_to = found.st_mode & (0o077 if secret else 0o002)
    if open_to or found.st_uid not in (0, os.geteuid()):
        what = f"{name} is a key that other users can {'read' if secret else 'change'}"
        raise GraphgenError("GG0705", what, help=f"chmod 600 {path}, as its owner")
    return key


def signature(purpose: str, data: bytes) -> bytes:
    """The signature of data, 32 bytes; none, empty, without a key.

    Args:
        purpose: what the data are: a signature of one purpose is none of another.
        data: any bytes.
    """
    key = signing_key(make=True)
    return b"" if key is None else _signature(key, purpose, data)


def _signature(key: bytes, purpose: str, data: bytes) -> bytes:
    return hmac.digest(key, purpose.encode() + b"\0" + data, "sha256")


def has_signature(purpose: str, data: bytes, given: bytes) -> bool:
    """True if ``given`` is the signature of data with the key of this user."""
    key = signing_key()
    return key is not None and hmac.compare_digest(_signature(key, purpose, data), given)


def signed(content: Mapping[str, object]) -> bytes:
    """The text of a manifest with its signature and its checksum, in place of earlier ones."""
    bare = _bare(content)
    made = signature("manifest", _text(bare))
    return sealed({**bare, _SIGNATURE: made.hex()})


def is_signed(content: Mapping[str, object]) -> bool:
    """True for a manifest whose signature is that of its content."""
    given = content.get(_SIGNATURE)
    try:
        found = bytes.fromhex(given) if isinstance(given, str) else b""
    except ValueError:
        return False
    return has_signature("manifest", _text(_bare(content)), found)


def _bare(content: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in content.items() if key not in (_SIGNATURE, _CHECKSUM)}


def _text(content: Mapping[str, object]) -> bytes:
    return json.dumps(content).encode()
