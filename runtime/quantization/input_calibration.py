"""Calibration of activations: the largest magnitude of each product's input over a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphgen.compile_config import CompileConfig
from graphgen.ir import dtype
from graphgen.lowering.cpu.pjrt import configure
from graphgen.models import build
from graphgen.passes.core import run_pipeline
from graphgen.passes.quantize.cache_ranges import InputRanges
from graphgen.passes.quantize.product_ranges import add_range_outputs
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.quantization.plain_products import around_products
from graphgen.runtime.session import Session
from graphgen.runtime.weights.rank_weights import put_weights, weights_of


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
    configure(1)
    config = replace(CompileConfig().serving(batch=1, max_len=window), context=(window,))
    module = build(checkpoint.config, dtype("f32"), phases=("prefill",), every_token=True)
    before, after = around_products(config)
    run_pipeline(module, before)
    outputs = add_range_outputs(module)
    run_pipeline(module, after)
    session = Session(
        ExecutableCache(module, progress), put_weights(weights_of(checkpoint, module), progress)
    )
    largest = dict.fromkeys(outputs.values(), 0.0)
    whole = [part for part in windows if len(part) == window]
    with progress.task("measuring the inputs of products") as report:
        for done, part in enumerate(whole):
            session.reset()
            places = np.arange(window, dtype=np.int32)[None]
            result = session.step(np.asarray([part], np.int32), places)
            for name, known in largest.items():
                largest[name] = max(known, float(result.outputs[name].max()))
            report((done + 1) / len(whole))
    return {weight: largest[output] for weight, output in outputs.items()}
