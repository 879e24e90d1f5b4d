"""Calibration: Gram matrices of the inputs of products, summed over the tokens of a text.

The model runs on this CPU in f32 over windows of the text, with one more output for each operand
that a weight is multiplied by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, dtype
from graphgen.lowering.cpu.pjrt import configure
from graphgen.models import build
from graphgen.passes.core import run_pipeline
from graphgen.passes.quantize.product_grams import add_gram_outputs
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.perplexity import read_windows
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.quantization.plain_products import around_products
from graphgen.runtime.quantization.quantizable import QuantizableWeight
from graphgen.runtime.session import Session
from graphgen.runtime.weights.rank_weights import put_weights, weights_of

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
        module, outputs = _module(checkpoint, len(windows[0]), part)
        placed = put_weights(weights_of(checkpoint, module), progress)
        session = Session(ExecutableCache(module, progress), placed)
        sums = _summed(session, windows, set(outputs.values()), progress)
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


def _module(
    checkpoint: Checkpoint, window: int, names: Collection[str]
) -> tuple[Module, dict[str, str]]:
    """The prefill program of one window, and the output of each weight."""
    configure(1)
    config = replace(CompileConfig().serving(batch=1, max_len=window), context=(window,))
    module = build(checkpoint.config, dtype("f32"), phases=("prefill",), every_token=True)
    before, after = around_products(config)
    run_pipeline(module, before)
    outputs = add_gram_outputs(module, (), names)
    run_pipeline(module, after)
    return module, outputs


def _summed(
    session: Session, windows: Sequence[Sequence[int]], names: Collection[str], progress: Progress
) -> dict[str, Gram]:
    sums: dict[str, Gram] = {}
    with progress.task("reading the calibration text") as report:
        for done, window in enumerate(windows):
            session.reset()
            places = np.arange(len(window), dtype=np.int32)[None]
            result = session.step(np.asarray([window], np.int32), places)
            for name in names:
                part = result.outputs[name][0]
                sums[name] = sums[name] + part if name in sums else part
            report((done + 1) / len(windows))
    return sums
