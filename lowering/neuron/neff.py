"""Reads NEFF files, the output of neuronx-cc: a header of 1024 bytes and a tar archive."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.whole_file import read_regular

# Source: the Neuron runtime guide, "Work with NEFF files".
HEADER = 1024
_HELP = "neuronx-cc writes NEFF files; a compiler cache holds them as model.neff"


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the archive."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Neff:
    """Contents of a NEFF file.

    Attributes:
        words: the texts in the header, such as the compiler's version and the program's name.
        members: the files of the archive, in order.
        nbytes: size of the file.
    """

    words: tuple[str, ...]
    members: tuple[Member, ...]
    nbytes: int


def read_neff(path: str | Path) -> Neff:
    """Read the header's texts and the list of files of a NEFF.

    Raises:
        GraphgenError: GG0705 it cannot be read, GG0802 it is not a NEFF.
    """
    try:
        data = read_regular(Path(path))
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise GraphgenError("GG0705", f"cannot read '{path}': {reason}") from error
    if len(data) <= HEADER:
        what = f"a NEFF has a header of {HEADER} bytes, this file has {len(data)} in all"
        raise GraphgenError("GG0802", what, where=str(path), help=_HELP)
    try:
        with tarfile.open(fileobj=io.BytesIO(data[HEADER:]), mode="r:*") as archive:
            members = tuple(Member(item.name, item.size) for item in archive if item.isfile())
    except (tarfile.TarError, EOFError, OSError) as error:
        what = f"no archive follows byte {HEADER}: {error}"
        raise GraphgenError("GG0802", what, where=str(path), help=_HELP) from error
    words = [word.decode() for word in re.findall(rb"[ -~]{4,}", data[:HEADER])]
    return Neff(tuple(words), members, len(data))
