"""Twins of a model: small models of the same family that take the same decisions in every pass.

- ``mini``: everything is small. Programs run in milliseconds.
- ``wide``: tensors are narrow, numbers are large. Token ids and positions do not fit 8 or 16 bits,
  each of two ranks holds three KV heads, sizes differ from powers of two, and windows are wrapped
  many times. A mini has no id above 256 and no position above its cache.
"""

from __future__ import annotations

from typing import Literal

from graphgen.config.compile_config import CompileConfig

TwinName = Literal["mini", "wide"]
TWINS: tuple[TwinName, ...] = ("mini", "wide")

# More than 16 bits hold, and odd.
WIDE_VOCABULARY = 65_601
# Slots of a cache row: positions pass 2 to the 15th, the largest number of 16 bits with a sign.
WIDE_SLOTS = 32_773
# Largest number of tokens of a sequence.
WIDE_POSITIONS = 32_801
WIDE_HEAD_DIM = 4
# Shorter than a prompt: a ring of this size is wrapped several times by one.
WIDE_WINDOW = 5


def wide_heads(count: int) -> int:
    """Heads of a wide twin: 6, of which two ranks hold 3 each; 3 or 1 where they are odd."""
    return min(count, 3) if count % 2 else 6


def wide_head_dim(rotated: float) -> int:
    """The smallest head, a multiple of 4, of which a fraction that is rotated is even."""
    sizes = range(WIDE_HEAD_DIM, 5 * WIDE_HEAD_DIM, WIDE_HEAD_DIM)
    return next((size for size in sizes if int(size * rotated) % 2 == 0 < size * rotated), 16)


def twin_buckets(twin: TwinName) -> CompileConfig:
    """Batch sizes and buckets of a twin's programs, which NumPy evaluates in seconds."""
    if twin == "mini":
        return CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
    return CompileConfig(batch=(2,), context=(12,), tokens=(WIDE_SLOTS,))
