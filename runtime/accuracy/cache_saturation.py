"""Counts of the numbers of quantized caches that are at the end of their type's range.

They are read off the caches after a run, so that programs are the same whether or not anybody
counts. A number is saturated if it is stored as the largest of its type, or as that with the other
sign: it was clamped, or it was within half a step of the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import Array, numpy_dtype
from graphgen.exec.weights import default_layouts, unpack_state
from graphgen.ir import Entry, Role
from graphgen.lowering.cpu import processes
from graphgen.passes.quantization.cache_form import CACHE_ELEMENTS, PER_TOKEN, limit_of
from graphgen.runtime.session.session import Session


@dataclass(frozen=True, slots=True)
class CacheSaturation:
    """Saturated numbers of caches.

    Attributes:
        saturated: how many keys and values are at an end of the range.
        numbers: how many keys and values the caches hold.
    """

    saturated: int = 0
    numbers: int = 0

    def __add__(self, other: CacheSaturation) -> CacheSaturation:
        return CacheSaturation(self.saturated + other.saturated, self.numbers + other.numbers)

    @property
    def text(self) -> str:
        """The counts and the share, as ``3 of 1,000 numbers, 0.3 %``."""
        share = 100 * self.saturated / self.numbers if self.numbers else 0.0
        return f"{self.saturated:,} of {self.numbers:,} numbers, {share:.2g} %"

    def to_json(self) -> dict[str, int]:
        """The counts by name."""
        return {"saturated": self.saturated, "numbers": self.numbers}


def cache_saturation(session: Session, settings: CompileConfig) -> CacheSaturation | None:
    """The saturated numbers of what the caches hold now: of each row's last text.

    Args:
        session: after some steps.
        settings: that its programs were compiled for.

    Returns:
        ``None`` where nothing is clamped: caches as wide as the model, or a scale for each token;
        and in one of several processes, each of which has a part of the caches.
    """
    if not settings.kv_cache_quant or settings.cache_scale == PER_TOKEN or processes.count() > 1:
        return None
    element = CACHE_ELEMENTS[settings.kv_cache_dtype]
    end = np.asarray(limit_of(element)).astype(numpy_dtype(element)).view(np.uint8)
    layouts, total = _layouts(session), CacheSaturation()
    for row in session.module.entries(Role.STATE):
        if row.physical.dtype.bits > 8:
            continue
        parts = np.split(np.asarray(session.state(row.name)), session.module.ranks)
        ends = [np.full(part.shape, end).view(part.dtype) for part in parts]
        # The largest number that each place can hold, its scale included.
        limit = np.abs(_logical(session, row, ends, layouts))
        held = np.abs(_logical(session, row, parts, layouts))
        saturated: Array = np.ma.filled((held >= limit) & (limit > 0), fill_value=False)
        # Slots beyond a row's end are of an earlier text.
        count = int(held.shape[1])
        slots: Array = np.arange(count)[None] < session.lengths[:, None]
        within = slots.reshape(*slots.shape, *[1] * (held.ndim - 2))
        saturated = np.logical_and(saturated, within)
        total += CacheSaturation(int(saturated.sum()), _written(session, row, held.shape))
    return total


def _layouts(session: Session) -> Mapping[str, Array]:
    """The layouts as they are now, by name."""
    layouts = default_layouts(session.module)
    return (
        layouts
        if session.blocks is None
        else {**layouts, session.blocks.name: session.blocks.table}
    )


def _logical(
    session: Session, row: Entry, parts: Sequence[Array], layouts: Mapping[str, Array]
) -> Array:
    """The numbers [R,M,K,D] that the parts of all ranks stand for."""
    return unpack_state(session.module.function(row.unpack), parts, layouts=layouts)


def _written(session: Session, row: Entry, shape: Sequence[int]) -> int:
    """The numbers of a cache that steps have written and that it still holds."""
    lengths = session.lengths
    held = np.minimum(lengths, row.last) if row.last else lengths
    return int(held.sum()) * int(np.prod(shape[2:]))
