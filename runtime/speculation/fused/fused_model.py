"""A model and its draft in one module, whose programs speculate by themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.model import BuiltModel, logical_module, on_this_machine, steps_of


def settings_of_draft(settings: CompileConfig) -> CompileConfig:
    """The configuration of a draft: the sizes of the model, whole on each rank, plain weights."""
    sizes = ("batch", "prefill_batch", "context", "tokens", "chunk", "rows", "slots", "dims")
    same = {name: getattr(settings, name) for name in (*sizes, "speculation_length")}
    own = CompileConfig(dtype=settings.dtype, kernels=settings.kernels)
    return replace(own, **same, roll_window_cache=settings.roll_window_cache)


def build_fused_model(
    model: Mapping[str, object],
    settings: CompileConfig,
    draft: Mapping[str, object],
    of_draft: CompileConfig | None = None,
) -> BuiltModel:
    """Build a model whose decode programs propose, verify and accept in one launch.

    Args:
        model: a ``config.json``.
        settings: with ``speculation_length`` and programs that choose tokens.
        draft: the draft's ``config.json``.
        of_draft: its configuration; :func:`settings_of_draft` by default.

    Raises:
        GraphgenError: GG0304 for a model and a draft that do not fit together, GG0302 for slots of
            adapters, and those of :func:`~graphgen.runtime.model.build_model`.
    """
    if settings.max_loras:
        raise GraphgenError(
            "GG0302",
            "programs that propose, verify and accept in one launch have no adapters",
            help="leave --enable-fused-speculation out: a draft beside the model proposes tokens "
            "for rows with adapters",
        )
    # Only here: an artifact runs without any pass.
    from graphgen.passes.speculation.fused_pipeline import fuse

    configs = [on_this_machine(c) for c in (settings, of_draft or settings_of_draft(settings))]
    (own, steps), (other, more) = (
        logical_module(given, config) for given, config in zip((model, draft), configs, strict=True)
    )
    module, reports = fuse((own, configs[0]), (other, configs[1]))
    steps = [*steps, *more, *steps_of(reports)]
    return BuiltModel(json.loads(json.dumps(dict(model))), settings, module, steps)
