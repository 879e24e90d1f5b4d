"""Reasons why an instruction becomes no op of the IR."""

from __future__ import annotations


class UnmodelledError(Exception):
    """An instruction whose meaning no op of the IR has; the text names the difference."""


class ContradictionError(UnmodelledError):
    """An instruction that states what its operands cannot give: the file is wrong."""
