"""Small models joined with a draft, before their programs are fused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.exec.session import Workload
from graphgen.exec.speculative_step import DRAFT
from graphgen.ir import VERIFY, Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import PHASES, build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.fused_pipeline import split_pipeline
from graphgen.passes.programs.join_modules import join_modules
from graphgen.passes.workload.make_workload import make_workload

LENGTH = 3
BEST = CompileConfig(
    batch=(3,),
    context=(8,),
    tokens=(8, 16),
    sampling="on-device-sampling",
    speculation_length=LENGTH,
)
ADAPTED = replace(BEST, max_loras=2, max_lora_rank=4)
DRAWN = replace(BEST, sampling="on-device-sampling{do_sample=true,global_topk=20}")


def to_ranks(name: str, config: CompileConfig) -> Module:
    """A mini, as far as models go alone."""
    module = build(known_shape(name), dtype("f32"), phases=(*PHASES, VERIFY), mini=True)
    run_pipeline(module, split_pipeline(config).alone)
    return module


def joined(name: str, config: CompileConfig, draft: str = "", draft_tp: int = 1) -> Module:
    """A mini and a draft without adapters: another one, or by default the same."""
    of_draft = replace(config, sampling="", tp=draft_tp, max_loras=0)
    return join_modules(to_ranks(name, config), to_ranks(draft or name, of_draft))


def workload_of(module: Module, *, alike: bool, noise: float = 0.0, seed: int = 3) -> Workload:
    """Calls of all programs that the module has once it is fused.

    Args:
        module: of a model and its draft.
        alike: the draft, of the same sizes, has the model's weights: it proposes what is accepted.
        noise: of these weights, relative to them: some proposals are refused.
        seed: of weights and inputs.
    """
    fused = clone_module(module)
    run_pipeline(fused, split_pipeline(BEST).together[:1])
    workload = make_workload(fused, seed=seed)
    if not alike:
        return workload
    own = workload.weights
    same = {name: own.get(name.removeprefix(DRAFT), array) for name, array in own.items()}
    rng = np.random.default_rng(seed)
    for name in [name for name in same if name.startswith(DRAFT)]:
        noisy = same[name] * (1 + noise * rng.standard_normal(same[name].shape))
        same[name] = noisy.astype(same[name].dtype)
    return replace(workload, weights=same)
