"""Checkpoints saved from a model without its head, whose tensors lack the prefix of the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from graphgen.models import FAMILIES
from runtime.checkpoint.source import Array, Checkpoint, TensorInfo


def with_prefix(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint under the names its family's model with a head has.

    The first GPT-2 and BLOOM checkpoints hold ``h.0.ln_1.weight`` for what transformers calls
    ``transformer.h.0.ln_1.weight`` now; transformers reads both. A checkpoint of an unknown family,
    and one in which any name has the prefix, stays as it is.
    """
    kind = checkpoint.config.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None or any(name.startswith(f"{family.prefix}.") for name in checkpoint.tensors()):
        return checkpoint
    return BaseModelCheckpoint(checkpoint, family.prefix)


class BaseModelCheckpoint:
    """A checkpoint whose tensors get a prefix; those of the head keep their names.

    Args:
        base: the checkpoint as it is stored.
        prefix: of the body's tensors, without the dot.
    """

    def __init__(self, base: Checkpoint, prefix: str) -> None:
        self.base: Final = base
        self._stored: Final = {
            name if name.startswith("lm_head.") else f"{prefix}.{name}": name
            for name in base.tensors()
        }

    @property
    def path(self) -> Path:
        """The file or the folder that was opened."""
        return self.base.path

    @property
    def config(self) -> Mapping[str, object]:
        """The configuration under the names of a Hugging Face ``config.json``."""
        return self.base.config

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its name with the prefix; reads no tensor data."""
        stored = self.base.tensors()
        return {name: replace(stored[own], name=name) for name, own in self._stored.items()}

    def read(self, name: str) -> Array:
        """The tensor ``name``; see :class:`Checkpoint`."""
        return self.base.read(self._stored.get(name, name))

    def fingerprint(self) -> str:
        """Identity of the contents; see :class:`Checkpoint`."""
        return self.base.fingerprint()
