"""Calibration of activations: the largest magnitude of each product's input over a text."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.passes.quantize.cache_ranges import InputRanges
from graphgen.passes.quantize.product_ranges import add_range_outputs
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.quantization.plain_products import open_calibration, outputs_of_windows


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
