"""Statements of a view in its configuration: the modules whose weight is quantized."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from typing import Final

_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.|$)")
# Keys of a quantization_config: patterns of modules, and those they do not mean.
MODULES: Final = "quantized_modules"
SKIPPED: Final = "unquantized_modules"


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
