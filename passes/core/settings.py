"""How much is looked at while passes run: from environment variables, or from ``with debug(...)``.

| variable | as an argument | says |
|---|---|---|
| ``GRAPHGEN_VERIFY`` | ``verify`` | what is checked after every pass: see :class:`Verify` |
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import IntEnum

from graphgen.errors import GraphgenError


class Verify(IntEnum):
    """What is checked after every pass; each step includes those before it."""

    NOTHING = 0
    MODULE = 1  # the verifier, and the facts that the pass provides
    CONTRACT = 2  # the facts it keeps, and by fingerprint whether it changed what it says
    TEXT = 3  # the module survives printing and parsing


@dataclass(frozen=True, slots=True)
class Debugging:
    """What is looked at while passes run.

    Attributes:
        verify: what is checked after every pass.
    """

    verify: Verify = Verify.MODULE


_inside: ContextVar[Debugging | None] = ContextVar("debugging", default=None)


def debugging() -> Debugging:
    """What holds here: the innermost :func:`debug`, else the environment (GG0705 if it is odd)."""
    return _inside.get() or Debugging(verify=Verify(_number("GRAPHGEN_VERIFY", 1, 3)))


@contextmanager
def debug(*, verify: int | None = None) -> Generator[Debugging]:
    """Inside, passes run under these settings; what is not given stays as it is."""
    settings = debugging()
    if verify is not None:
        settings = replace(settings, verify=Verify(verify))
    token = _inside.set(settings)
    try:
        yield settings
    finally:
        _inside.reset(token)


def _number(variable: str, default: int, largest: int) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) > largest:
        raise GraphgenError(
            "GG0705", f"{variable}={text} is no number from 0 to {largest}", help="see docs"
        )
    return int(text)
