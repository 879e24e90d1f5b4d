"""Codes of neuronx-cc, with a meaning and a remedy each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import cast

_REPORT = "nothing public explains it: read the log, and report it with the HLO file"


@dataclass(frozen=True, slots=True)
class CodeHelp:
    """A code explained.

    Attributes:
        meaning: one line.
        remedy: what to do.
    """

    meaning: str
    remedy: str


@cache
def _codes() -> Mapping[str, Mapping[str, str]]:
    text = files("graphgen.targets").joinpath("neuron/error_codes.json").read_text("utf-8")
    return cast("Mapping[str, Mapping[str, str]]", json.loads(text)["codes"])


def known_codes() -> frozenset[str]:
    """The codes that have an explanation."""
    return frozenset(_codes())


def help_of(code: str) -> CodeHelp:
    """The meaning of a code; by its first letters where it is not listed."""
    found = _codes().get(code) or _codes().get(code.rstrip("0123456789"))
    if found is None and code.startswith("NCC_I"):
        found = _codes()["NCC_I"]
    if found is None:
        return CodeHelp(f"{code} is not in the published list", _REPORT)
    return CodeHelp(found["meaning"], found["remedy"])
