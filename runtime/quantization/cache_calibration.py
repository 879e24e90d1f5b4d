"""Calibration of caches: the largest magnitude of each channel over the tokens of a text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from graphgen.compile_config import CompileConfig
from graphgen.eval import Array
from graphgen.exec.weights import unpack_state
from graphgen.ir import Entry, Role
from graphgen.passes.quantize.cache_ranges import CacheRanges
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.perplexity import every_token_session, read_windows, window_logits
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.session import Session


def cache_ranges(checkpoint: Checkpoint, text: str, window: int, progress: Progress) -> CacheRanges:
    """The largest magnitudes that the caches hold, of each state [K][D].

    The model runs in f32 over the windows of the text.

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
    for _ in window_logits(session, windows, progress):
        for row in rows:
            # What the window did not write is zero: windows begin with empty rows.
            found = np.abs(_held(session, row)).max((0, 1))
            largest[row.name] = np.maximum(largest.get(row.name, 0), found)
    return {name: found.tolist() for name, found in largest.items()}


def _held(session: Session, row: Entry) -> Array:
    """The contents of a cache, f32 [R,M,K,D]."""
    kept: Array = np.asarray(session.state(row.name))
    return unpack_state(session.module.function(row.unpack), [kept]) if row.unpack else kept
