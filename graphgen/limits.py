"""Limits of files of others, and the option that changes them.

A limit that a right file needs raised is an option of every command, ``--limits layers=20000``, and
of programs and processes of the user's own the variable ``GRAPHGEN_LIMITS`` with the same text.
Limits of a format itself, as GGUF's 4 dims, are not among them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from graphgen.errors import GraphgenError

ENVIRONMENT: Final = "GRAPHGEN_LIMITS"
# Digits of a limit.
_MOST_DIGITS: Final = 18
_LIMITS: Final[dict[str, Limit]] = {}
LIMITS: Final[Mapping[str, Limit]] = MappingProxyType(_LIMITS)


@dataclass(frozen=True, slots=True)
class Limit:
    """The most of something that is read or made.

    Attributes:
        name: as ``--limits`` has it.
        default: what holds unless the user says otherwise.
        of: what is counted, and of what.
    """

    name: str
    default: int
    of: str

    def __post_init__(self) -> None:
        """Enter it in the table."""
        _LIMITS[self.name] = self

    @property
    def most(self) -> int:
        """The number in effect."""
        return _changed(os.environ.get(ENVIRONMENT, "")).get(self.name, self.default)

    def __str__(self) -> str:
        """As errors state it: the number, and the option that changes it."""
        return f"at most {self.most} (--limits {self.name}=N)"


# Indexes of models with many experts have about 10 MB, headers of safetensors at most 100 MB.
JSON_BYTES: Final = Limit("json-bytes", 64 << 20, "bytes of a JSON file")
JSON_DEPTH: Final = Limit("json-depth", 200, "lists and objects within each other in JSON")
# Each takes up to 230 bytes.
JSON_OBJECTS: Final = Limit("json-objects", 1 << 21, "lists and objects of a JSON file")
# A program of 1,000 layers without functions has about 100 MB.
TEXT_BYTES: Final = Limit("text-bytes", 1 << 30, "bytes of IR, StableHLO, HLO or another text")
TOKENIZER_BYTES: Final = Limit("tokenizer-bytes", 256 << 20, "bytes of a file of a tokenizer")
PROFILE_BYTES: Final = Limit("profile-bytes", 1 << 30, "bytes of a device's profile")
EXPORT_BYTES: Final = Limit("export-bytes", 512 << 20, "bytes of a description within a .pt2 file")
TENSORS: Final = Limit("tensors", 1 << 18, "tensors of one safetensors file")
STRINGS: Final = Limit("strings", 1 << 21, "strings in a list of GGUF's metadata")
LAYERS: Final = Limit("layers", 10_000, "layers of a model")
RANKS: Final = Limit("ranks", 1 << 20, "ranks of a mesh, a group or a launch")
# A compilation has lists of them.
DEVICES: Final = Limit("devices", 1 << 16, "ranks times stages of a compilation")
DIMS: Final = Limit("dims", 64, "dims of a type")
DIM_PARTS: Final = Limit("dim-parts", 256, "symbols and numbers of a symbolic dim")
OPS: Final = Limit("ops", 1 << 17, "ops of a program with the calls inlined, or 16 times its own")
NESTING: Final = Limit("nesting", 200, "operands within each other in a text of HLO")
LIST_ITEMS: Final = Limit("list-items", 4096, "items of a list in AWS's configurations")
TEMPLATE_MS: Final = Limit("template-ms", 2000, "milliseconds that a chat template takes")
TEMPLATE_CHARACTERS: Final = Limit(
    "template-characters", 64 << 20, "characters that a chat template writes"
)
RUN_SECONDS: Final = Limit(
    "run-seconds", 600, "seconds in which a program of others is compiled and run"
)
GROWTH: Final = Limit("growth", 1024, "times by which a tokenizer's steps lengthen a text")


def bound(most: int | Limit) -> int:
    """The number of a limit, which is the number itself of one that no option changes."""
    return most.most if isinstance(most, Limit) else most


def stated(most: int | Limit) -> str:
    """A limit as errors state it."""
    return str(most) if isinstance(most, Limit) else f"at most {most}"


def read_limits(text: str, source: str = "--limits") -> dict[str, int]:
    """The limits of a text as ``layers=20000,json-bytes=100000000`` (GG0705).

    Args:
        text: names and numbers.
        source: where it is from, for errors.
    """
    found: dict[str, int] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, _, number = item.partition("=")
        if name not in LIMITS:
            near = get_close_matches(name[:40], LIMITS, 1)
            meant = f"did you mean '{near[0]}'? " if near else ""
            help = f"{meant}the limits are {', '.join(LIMITS)}"
            raise GraphgenError("GG0705", f"{source}: '{name[:40]}' is not a limit", help=help)
        digits = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
        if not digits or int(number) == 0:
            what = f"{source}: {name} = '{number[:40]}' is not a positive whole number"
            raise GraphgenError("GG0705", what, help=f"write e.g. {name}={LIMITS[name].default}")
        found[name] = int(number)
    return found


@lru_cache(maxsize=8)
def _changed(text: str) -> Mapping[str, int]:
    return read_limits(text, ENVIRONMENT)


def change_limits(text: str) -> None:
    """Change limits of this process and of those that it starts.

    Args:
        text: as :func:`read_limits` takes it.
    """
    made = {**_changed(os.environ.get(ENVIRONMENT, "")), **read_limits(text)}
    os.environ[ENVIRONMENT] = ",".join([f"{name}={number}" for name, number in made.items()])
