"""Debug settings: from environment variables, or from ``with debug(...)``.

| variable | argument | says |
|---|---|---|
| ``GRAPHGEN_DEBUG`` | ``level`` | detail of the log on stderr: see :class:`Level` |
| ``GRAPHGEN_DUMP`` | ``dump`` | a folder, for the module after every pass that changes it |
| ``GRAPHGEN_VERIFY`` | ``verify`` | what is checked after every pass: see :class:`Verify` |
| ``GRAPHGEN_FUEL`` | ``fuel`` | how many rewrites are made: see :mod:`graphgen.passes.core.fuel` |
| ``GRAPHGEN_CRASH`` | ``crash`` | where a failing pass leaves what replays it, or ``off`` |

Every command obeys them, and so does a program of the user's own.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import IntEnum

from graphgen.errors import GraphgenError
from graphgen.numbers import is_digits
from graphgen.passes.core.fuel import NO_LIMIT, Fuel, parse_fuel

# The folder of reproducers that turns them off.
OFF = "off"


class Verify(IntEnum):
    """Depth of the checks after every pass; each step includes those before it."""

    NOTHING = 0
    MODULE = 1  # the verifier, and the facts that the pass provides
    CONTRACT = 2  # the facts it keeps, and by fingerprint whether it changed what it says
    TEXT = 3  # the module survives printing and parsing


class Level(IntEnum):
    """Detail of the debug log; each step includes those before it."""

    NOTHING = 0
    PASSES = 1  # each pass, and how long it took
    COUNTS = 2  # ops before and after, rewrites
    RULES = 3  # how often each rule applied
    CHANGES = 4  # the changed functions, as a unified diff
    REWRITES = 5  # every rewrite, and the nearest miss of every rule


@dataclass(frozen=True, slots=True)
class Debugging:
    """Settings of verification, logging, dumps, fuel and reproducers.

    Attributes:
        level: detail of the log.
        dump: the folder modules are written to, empty for none.
        verify: what is checked.
        fuel: how many rewrites are made.
        crash: the folder in which a pass that fails leaves a reproducer; empty for the one for
            temporary files, ``off`` for none.
    """

    level: Level = Level.NOTHING
    dump: str = ""
    verify: Verify = Verify.MODULE
    fuel: Fuel = NO_LIMIT
    crash: str = ""


_inside: ContextVar[Debugging | None] = ContextVar("debugging", default=None)


def debugging() -> Debugging:
    """The settings in effect: those of the innermost :func:`debug`, else of the environment.

    Raises:
        GraphgenError: GG0705 for a variable that makes no sense.
    """
    return _inside.get() or _from_environment()


def _from_environment() -> Debugging:
    return Debugging(
        Level(_number("GRAPHGEN_DEBUG", Level.NOTHING, Level.REWRITES)),
        os.environ.get("GRAPHGEN_DUMP", ""),
        Verify(_number("GRAPHGEN_VERIFY", Verify.MODULE, Verify.TEXT)),
        parse_fuel(os.environ.get("GRAPHGEN_FUEL", ""), "GRAPHGEN_FUEL"),
        os.environ.get("GRAPHGEN_CRASH", ""),
    )


@contextmanager
def debug(
    *,
    level: int | None = None,
    dump: str | None = None,
    verify: int | None = None,
    fuel: int | str | None = None,
    crash: str | None = None,
) -> Generator[Debugging]:
    """Inside, passes run under these settings; what is not given stays as it is.

    Raises:
        GraphgenError: GG0705 for a value that makes no sense.
    """
    settings = debugging()
    if level is not None:
        settings = replace(settings, level=Level(_within("level", level, Level.REWRITES)))
    if verify is not None:
        settings = replace(settings, verify=Verify(_within("verify", verify, Verify.TEXT)))
    if dump is not None:
        settings = replace(settings, dump=dump)
    if fuel is not None:
        settings = replace(settings, fuel=parse_fuel(str(fuel), "fuel"))
    if crash is not None:
        settings = replace(settings, crash=crash)
    token = _inside.set(settings)
    try:
        yield settings
    finally:
        _inside.reset(token)


def _number(variable: str, default: int, largest: int) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return default
    return _within(variable, int(text) if is_digits(text) else text, largest)


def _within(what: str, value: int | str, largest: int) -> int:
    if not isinstance(value, int) or not 0 <= value <= largest:
        raise GraphgenError(
            "GG0705",
            f"{what}={value} is not an integer from 0 to {largest}",
            help="docs/debugging.md says what each stands for",
        )
    return value
