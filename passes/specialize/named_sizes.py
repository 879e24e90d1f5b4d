"""Sizes of symbols by name, as options give them: ``N=8``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from graphgen.errors import GraphgenError

# The symbols that the programs of a language model share, and the options that give their sizes.
SERVING = MappingProxyType({"B": "batch", "S": "context", "C": "tokens", "R": "rows", "M": "slots"})


def named_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Sizes by symbol of ``("N=8",)`` (GG0302 for other text, sizes below 1 and repetitions)."""
    sizes: dict[str, int] = {}
    for text in texts:
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*", text)
        if not match or not int(match[2]):
            raise GraphgenError(
                "GG0302", f"dims=[{text}] is not a symbol and a size", help="write dims=[N=8,T=4]"
            )
        if match[1] in sizes:
            raise GraphgenError("GG0302", f"dims=[{','.join(texts)}]: {match[1]} is given twice")
        sizes[match[1]] = int(match[2])
    return sizes
