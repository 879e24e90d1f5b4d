"""Reasons why an instruction becomes no op of the IR."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class UnmodelledError(Exception):
    """An instruction whose meaning no op of the IR has; the text names the difference."""


class ContradictionError(UnmodelledError):
    """An instruction that contradicts its operands: the file is wrong."""


@contextmanager
def kept_if_unlike() -> Generator[None]:
    """Keep an instruction whole that XLA takes, and the op of the IR is too strict for."""
    try:
        yield
    except ContradictionError as error:
        raise UnmodelledError(str(error)) from error
