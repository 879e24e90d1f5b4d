"""Programs for calibration: outputs are added where all products are plain, of experts too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, dtype
from graphgen.lowering.cpu.pjrt import configure
from graphgen.models import build
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.experts.dispatch_experts import DispatchExperts
from graphgen.passes.pipelines import phases
from graphgen.runtime.checkpoint.interfaces import Array, Checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.progress import Progress
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.rank_weights import put_weights, weights_of
from graphgen.targets import DEFAULT_ACCELERATOR


def open_calibration(
    checkpoint: Checkpoint,
    window: int,
    add_outputs: Callable[[Module], dict[str, str]],
    progress: Progress,
) -> tuple[Session, dict[str, str]]:
    """A session in f32 on this CPU over windows of a text, with outputs of products' operands.

    Args:
        checkpoint: the model.
        window: tokens of a window.
        add_outputs: adds outputs to a module with plain products; returns the output of each
            weight, by name.
        progress: notified of long tasks.

    Returns:
        The session, and the output of each weight.
    """
    configure(1)
    config = replace(CompileConfig().serving(batch=1, max_len=window), context=(window,))
    module = build(checkpoint.config, dtype("f32"), phases=("prefill",), every_token=True)
    before, after = _around_products(config)
    run_pipeline(module, before)
    outputs = add_outputs(module)
    run_pipeline(module, after)
    placed = put_weights(weights_of(checkpoint, module), progress)
    return Session(ExecutableCache(module, progress), placed), outputs


def outputs_of_windows(
    session: Session, windows: Sequence[Sequence[int]], task: str, progress: Progress
) -> Iterator[Mapping[str, Array]]:
    """The outputs of one window after the other, each in an empty row.

    Args:
        session: of :func:`open_calibration`.
        windows: token ids, all windows of one length.
        task: what is done, for ``progress``.
        progress: notified.
    """
    with progress.task(task) as report:
        for done, window in enumerate(windows):
            session.reset()
            places = np.arange(len(window), dtype=np.int32)[None]
            yield session.step(np.asarray([window], np.int32), places).outputs
            report((done + 1) / len(windows))


def _around_products(config: CompileConfig) -> tuple[list[Pass], list[Pass]]:
    """The passes of a compilation up to plain products of experts, and those that follow."""
    every = phases(config)
    names = [phase.name for phase in every]
    last = names.index("specialize") + 1
    before, after = (
        [item for phase in part for item in phase.passes] for part in (every[:last], every[last:])
    )
    # A buffer for each expert, with room for all tokens, and no loop over them as on the CPU.
    return [*before, DispatchExperts("capacity", target=DEFAULT_ACCELERATOR)], after
