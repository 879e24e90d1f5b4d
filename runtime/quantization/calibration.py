"""Calibration: Gram matrices of the inputs of products, summed over the tokens of a text.

The model runs on this CPU in f32 over windows of the text, with one more output for each operand
that a weight is multiplied by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.weights import unpack_state
from graphgen.ir import Entry, Role
from graphgen.passes.quantization.cache_form import CACHE_ELEMENTS, limit_of
from graphgen.passes.quantization.cache_ranges import CacheRanges, InputRanges
from graphgen.passes.quantization.product_statistics import add_gram_outputs, add_range_outputs
from graphgen.runtime.accuracy.perplexity import every_token_session, read_windows, window_logits
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.progress import Progress
from graphgen.runtime.quantization.plain_products import open_calibration, outputs_of_windows
from graphgen.runtime.quantization.quantizable import QuantizableWeight
from graphgen.runtime.session.session import Session


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
        GraphgenError: as :func:`~graphgen.runtime.accuracy.perplexity.read_windows`.
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


Gram = npt.NDArray[np.float32]
# Bytes of Gram matrices that one run of the text gathers; more weights take further runs.
_BUDGET = 1 << 31


def gram_matrices(
    checkpoint: Checkpoint,
    windows: Sequence[Sequence[int]],
    weights: Mapping[str, QuantizableWeight],
    progress: Progress,
) -> Iterator[tuple[Sequence[str], Mapping[str, Gram]]]:
    """The Gram matrices of the inputs of weights, those of some weights at a time.

    Args:
        checkpoint: the model.
        windows: token ids, all windows of one length.
        weights: those that will be quantized, by name.
        progress: notified of long tasks.

    Yields:
        Weights in order, and f32 [K,K], the sum of ``x xᵀ`` over all tokens, by name; weights of
        one input share an array, those that are multiplied by other than [B,S,K] have none. Those
        of experts are [E,K,K], of the tokens that chose each.
    """
    for part in _parts(weights):
        add = partial(add_gram_outputs, skip=(), only=part)
        session, outputs = open_calibration(checkpoint, len(windows[0]), add, progress)
        names, sums = set(outputs.values()), dict[str, Gram]()
        for found in outputs_of_windows(session, windows, "reading the calibration text", progress):
            for name in names:
                gram = found[name][0]
                sums[name] = sums[name] + gram if name in sums else gram
        yield part, {weight: sums[output] for weight, output in outputs.items()}


def calibration_windows(checkpoint: Checkpoint, text: str, window: int) -> list[list[int]]:
    """The whole windows of a text; what is left at its end is not used.

    Raises:
        GraphgenError: GG0705 for a text of fewer tokens than a window, and as ``read_windows``.
    """
    windows = [part for part in read_windows(checkpoint, text, window) if len(part) == window]
    if not windows:
        raise GraphgenError(
            "GG0705",
            f"the calibration text has fewer than {window} tokens",
            help="give a longer text, of some thousand tokens, or a smaller --window",
        )
    return windows


def _parts(weights: Mapping[str, QuantizableWeight]) -> Iterator[list[str]]:
    """The weights in order, as many at a time as the budget allows."""
    part: list[str] = []
    size = 0
    for name, weight in weights.items():
        # Counted as if no two weights shared an input: an upper bound.
        cost = 8 * weight.inputs * weight.inputs * weight.matrices
        if part and size + cost > _BUDGET:
            yield part
            part, size = [], 0
        part.append(name)
        size += cost
    if part:
        yield part


def calibrate_inputs(
    checkpoint: Checkpoint, windows: Sequence[Sequence[int]], progress: Progress
) -> InputRanges:
    """The largest magnitude of what each weight is multiplied by, by its name.

    The model runs in f32. Weights of products alone have one: not those of a quantized checkpoint,
    which are narrow already. Those of experts, a stack of matrices, count the tokens that chose
    an expert, each in a buffer of its expert, where places without a token hold zeros.

    Args:
        checkpoint: the weights.
        windows: token ids; a last one that is shorter than the first is not read, unless it is the
            only one.
        progress: notified of long tasks.
    """
    window = len(windows[0])
    session, outputs = open_calibration(checkpoint, window, add_range_outputs, progress)
    largest = dict.fromkeys(outputs.values(), 0.0)
    whole = [part for part in windows if len(part) == window]
    for found in outputs_of_windows(session, whole, "measuring the inputs of products", progress):
        for name, known in largest.items():
            largest[name] = max(known, float(found[name].max()))
    return {weight: largest[output] for weight, output in outputs.items()}
