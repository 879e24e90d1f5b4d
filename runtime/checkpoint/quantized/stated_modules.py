"""Statements of a view in its configuration: the modules whose weight is quantized."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import Final

from graphgen.passes.quantize.stored.stored_readings import MODULES, SKIPPED

_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.|$)")


def stated_modules(modules: Set[str], names: Iterable[str]) -> dict[str, list[str]]:
    """Patterns of these modules, and the exceptions from them.

    Args:
        modules: those whose weight is quantized.
        names: all modules of the checkpoint.
    """
    patterns = sorted({_NUMBER.sub("*", name) for name in modules})
    known = set(patterns)
    skipped = [x for x in names if x not in modules and _NUMBER.sub("*", x) in known]
    return {MODULES: patterns, SKIPPED: skipped}
