"""The groups of options of models, in the order in which help shows them."""

from __future__ import annotations

from typing import Final

PROGRAMS: Final = "Programs and buckets"
RANKS: Final = "Ranks"
CACHES: Final = "Caches"
PRECISION: Final = "Element types"
QUANTIZATION: Final = "Quantization"
EXPERTS: Final = "Mixtures of experts"
SAMPLING: Final = "Sampling"
SPECULATION: Final = "Speculation"
ADAPTERS: Final = "Adapters (LoRA)"
COMPILER: Final = "Compiler"
SERVER: Final = "Server"
GROUPS: Final = (
    *(PROGRAMS, RANKS, CACHES, PRECISION, QUANTIZATION, EXPERTS),
    *(SAMPLING, SPECULATION, ADAPTERS, COMPILER, SERVER),
)
