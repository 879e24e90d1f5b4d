"""Checkpoints whose tensors go by older names, or lack the prefix of the model's body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from graphgen.models import FAMILIES
from graphgen.models.family import AnyFamily
from graphgen.runtime.checkpoint.interfaces import Array, Checkpoint, TensorInfo


def with_model_names(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint under the names transformers has for its family's tensors today.

    The first GPT-2 and BLOOM checkpoints hold ``h.0.ln_1.weight`` for what is now called
    ``transformer.h.0.ln_1.weight``, as any does that was saved from a model without its head; and
    GPT-NeoX's head was called ``embed_out``. transformers reads both. A checkpoint of an unknown
    family stays as it is.
    """
    kind = checkpoint.config.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        return checkpoint
    stored = _names(family, checkpoint)
    if all(name == own for name, own in stored.items()):
        return checkpoint
    return RenamedCheckpoint(checkpoint, stored)


def _names(family: AnyFamily, checkpoint: Checkpoint) -> dict[str, str]:
    """Today's name of every tensor, to the one it is stored under."""
    current: dict[str, str] = {}
    for own in checkpoint.tensors():
        renamed = [
            new + own.removeprefix(old) for old, new in family.renamed if own.startswith(old)
        ]
        current[renamed[0] if renamed else own] = own
    if any(name.startswith(f"{family.prefix}.") for name in current):
        return current
    return {
        name if name.startswith("lm_head.") else f"{family.prefix}.{name}": own
        for name, own in current.items()
    }


class RenamedCheckpoint:
    """A checkpoint whose tensors go by other names than those they are stored under.

    Args:
        base: the checkpoint as it is stored.
        stored: by the name of each tensor, the one in ``base``.
    """

    def __init__(self, base: Checkpoint, stored: Mapping[str, str]) -> None:
        self.base: Final = base
        self._stored: Final = stored

    @property
    def path(self) -> Path:
        """The file or the folder that was opened."""
        return self.base.path

    @property
    def config(self) -> Mapping[str, object]:
        """The configuration under the names of a Hugging Face ``config.json``."""
        return self.base.config

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its name today; reads no tensor data."""
        stored = self.base.tensors()
        return {name: replace(stored[own], name=name) for name, own in self._stored.items()}

    def read(self, name: str) -> Array:
        """The tensor ``name``; see :class:`Checkpoint`."""
        return self.base.read(self._stored.get(name, name))

    def fingerprint(self) -> str:
        """Identity of the contents; see :class:`Checkpoint`."""
        return self.base.fingerprint()
