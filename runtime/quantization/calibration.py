"""Calibration: Gram matrices of the inputs of products, summed over the tokens of a text.

The model runs on this CPU in f32 over windows of the text, with one more output for each operand
that a weight is multiplied by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.passes.quantize.product_grams import add_gram_outputs
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.perplexity import read_windows
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.quantization.plain_products import open_calibration, outputs_of_windows
from graphgen.runtime.quantization.quantizable import QuantizableWeight

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
