"""The checkpoints of a model and its draft as one, with the names of a joined module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from graphgen.eval import Array
from graphgen.exec.speculative_step import DRAFT
from graphgen.ir import Module, Role
from graphgen.runtime.checkpoint.interfaces import Checkpoint, TensorInfo


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
