"""A model and its draft in one module, whose programs speculate by themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import Array
from graphgen.exec.speculative_step import DRAFT
from graphgen.ir import Module, Role
from graphgen.runtime.checkpoint.interfaces import Checkpoint, TensorInfo
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
        settings: with ``speculation_length`` and programs that choose tokens; adapters are the
            model's alone.
        draft: the draft's ``config.json``.
        of_draft: its configuration; :func:`settings_of_draft` by default.

    Raises:
        GraphgenError: GG0304 for a model and a draft that do not fit together, and those of
            :func:`~graphgen.runtime.model.build_model`.
    """
    # Only here: an artifact runs without any pass.
    from graphgen.passes.fused_pipeline import fuse

    configs = [on_this_machine(c) for c in (settings, of_draft or settings_of_draft(settings))]
    (own, steps), (other, more) = (
        logical_module(given, config) for given, config in zip((model, draft), configs, strict=True)
    )
    module, reports = fuse((own, configs[0]), (other, configs[1]))
    steps = [*steps, *more, *steps_of(reports)]
    return BuiltModel(json.loads(json.dumps(dict(model))), settings, module, steps)


@dataclass(frozen=True)
class FusedDraft:
    """A draft whose steps are in the programs of a model.

    Attributes:
        checkpoint: its weights.
        config: under the names of a ``config.json``; of fewer layers than the checkpoint has, for a
            draft of a model's first layers.
    """

    checkpoint: Checkpoint
    config: Mapping[str, object]


@dataclass(frozen=True)
class JoinedCheckpoint:
    """The tensors of two checkpoints, those of the draft as ``draft.*``.

    Attributes:
        target: of the model, whose path and configuration this one has.
        draft: of its draft.
        needed: names of the tensors that are read of the draft; ``None`` for all.
    """

    target: Checkpoint
    draft: FusedDraft
    needed: frozenset[str] | None = None

    def of(self, module: Module) -> JoinedCheckpoint:
        """The same checkpoint, with the draft's tensors that a module reads."""
        weights = module.entries(Role.WEIGHT)
        return replace(self, needed=frozenset(row.name for row in weights))

    @property
    def path(self) -> Path:
        """The model's file or folder."""
        return self.target.path

    @property
    def config(self) -> Mapping[str, object]:
        """The model's configuration."""
        return self.target.config

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by name: the model's, then the draft's."""
        found = dict(self.target.tensors())
        for name, info in self.draft.checkpoint.tensors().items():
            joined = f"{DRAFT}{name}"
            if self.needed is None or joined in self.needed:
                found[joined] = replace(info, name=joined)
        return found

    def read(self, name: str) -> Array:
        """One tensor, of the checkpoint that its name says."""
        if name.startswith(DRAFT):
            return self.draft.checkpoint.read(name.removeprefix(DRAFT))
        return self.target.read(name)

    def fingerprint(self) -> str:
        """Identity of both, and of the draft's configuration."""
        parts = (
            self.target.fingerprint(),
            self.draft.checkpoint.fingerprint(),
            json.dumps(dict(self.draft.config), sort_keys=True, default=str),
        )
        return sha256("\n".join(parts).encode()).hexdigest()
