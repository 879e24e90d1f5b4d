"""Map the tensor names of older checkpoints to the names transformers uses today."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from graphgen.errors import GraphgenError
from graphgen.models import known_family
from graphgen.models.family import Family
from graphgen.runtime.checkpoint.interfaces import (
    Array,
    Checkpoint,
    CheckpointView,
    TensorInfo,
)

_HEAD: Final = "lm_head.weight"


def with_model_names(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint under today's tensor names of its family in transformers.

    The first GPT-2 and BLOOM checkpoints, and any saved from a model without its head, hold
    ``h.0.ln_1.weight``, today ``transformer.h.0.ln_1.weight``; GPT-NeoX's head was called
    ``embed_out``. A tied head may be stored in the place of the embedding table. transformers reads
    all of these. A checkpoint of an unknown family stays as it is.
    """
    family = known_family(checkpoint.config.get("model_type"))
    if family is None:
        return checkpoint
    stored = {name: own for own, name in current_names(family, checkpoint.tensors()).items()}
    if family.embedding not in stored and _HEAD in stored and _is_tied(family, checkpoint):
        stored[family.embedding] = stored[_HEAD]
    if all(name == own for name, own in stored.items()):
        return checkpoint
    return RenamedCheckpoint(checkpoint, stored)


def _is_tied(family: Family[Any], checkpoint: Checkpoint) -> bool:
    """True if the head is the embedding table, so that either name may be stored.

    Drafts of speculation have a configuration of their own, which the family does not read.
    """
    try:
        return bool(getattr(family.read(checkpoint.config), "tie_word_embeddings", False))
    except GraphgenError:
        return False


def current_names(family: Family[Any], stored: Collection[str]) -> dict[str, str]:
    """Today's name of every tensor, by its stored name.

    Args:
        family: of the model.
        stored: names of all tensors; that of a module ends with a dot.
    """
    current: dict[str, str] = {}
    for own in stored:
        renamed = [
            new + own.removeprefix(old) for old, new in family.renamed if own.startswith(old)
        ]
        current[own] = renamed[0] if renamed else own
    if any(name.startswith(f"{family.prefix}.") for name in current.values()):
        return current
    return {
        own: name if name.startswith("lm_head.") else f"{family.prefix}.{name}"
        for own, name in current.items()
    }


class RenamedCheckpoint(CheckpointView):
    """A view of a checkpoint under other tensor names.

    Args:
        base: the checkpoint under its stored names.
        stored: stored name of every tensor, by its name in the view.
    """

    def __init__(self, base: Checkpoint, stored: Mapping[str, str]) -> None:
        super().__init__(base)
        self._stored: Final = stored

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its name in the view; reads no tensor data."""
        stored = self.base.tensors()
        return {name: replace(stored[own], name=name) for name, own in self._stored.items()}

    def read(self, name: str) -> Array:
        """The tensor ``name``; see :class:`Checkpoint`."""
        return self.base.read(self._stored.get(name, name))
