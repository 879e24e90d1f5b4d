"""Calibrate caches: largest magnitudes of channels over a text, and the clamped numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from graphgen.compile_config import CompileConfig
from graphgen.eval import Array
from graphgen.exec.weights import unpack_state
from graphgen.ir import Entry, Role
from graphgen.passes.quantize.cache_form import CACHE_ELEMENTS, limit_of
from graphgen.passes.quantize.cache_ranges import CacheRanges
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.perplexity import every_token_session, read_windows, window_logits
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.session import Session


@dataclass(frozen=True, slots=True)
class CacheCalibration:
    """The facts of caches over a text.

    Attributes:
        ranges: the largest magnitudes that each cache holds, [K][D] by the name of the state.
        numbers: keys and values that were seen.
        beyond: by the name of an 8-bit float, how many of them are beyond its range, where caches
            without scales clamp them.
    """

    ranges: CacheRanges
    numbers: int
    beyond: Mapping[str, int]


# Types that caches without scales are cast to.
_CAST: Final = {name: limit_of(e) for name, e in CACHE_ELEMENTS.items() if e.is_float}


def calibrate_caches(
    checkpoint: Checkpoint, text: str, window: int, progress: Progress
) -> CacheCalibration:
    """The facts of the caches while the model runs in f32 over the windows of a text.

    Args:
        checkpoint: the weights and the tokenizer.
        text: some thousand tokens like those that the model will read.
        window: tokens that are read together, at least 2.
        progress: notified of long tasks.

    Raises:
        GraphgenError: as :func:`~graphgen.runtime.perplexity.read_windows`.
    """
    windows = read_windows(checkpoint, text, window)
    session = every_token_session(checkpoint, len(windows[0]), CompileConfig(), progress)
    rows = list(session.module.entries(Role.STATE))
    largest: dict[str, npt.NDArray[np.float32]] = {}
    numbers, beyond = 0, dict.fromkeys(_CAST, 0)
    for part, _ in zip(windows, window_logits(session, windows, progress), strict=True):
        for row in rows:
            # Slots that the window did not write are zero: windows begin with empty rows.
            held = np.abs(_held(session, row))
            numbers += len(part) * int(np.prod(held.shape[2:]))
            for name, limit in _CAST.items():
                beyond[name] += int((held > limit).sum())
            largest[row.name] = np.maximum(largest.get(row.name, 0), held.max((0, 1)))
    ranges = {name: found.tolist() for name, found in largest.items()}
    return CacheCalibration(ranges, numbers, beyond)


def _held(session: Session, row: Entry) -> Array:
    """The contents of a cache, f32 [R,M,K,D]."""
    kept: Array = np.asarray(session.state(row.name))
    return unpack_state(session.module.function(row.unpack), [kept]) if row.unpack else kept
