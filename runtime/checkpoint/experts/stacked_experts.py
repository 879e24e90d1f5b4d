"""The tensors of a mixture's experts as one tensor: checkpoints hold one for each expert.

Norms of heads (StableLM), of which checkpoints hold one for each head, are stacked as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import (
    Array,
    Checkpoint,
    CheckpointView,
    TensorInfo,
)

_EXPERT: Final = re.compile(r"\.(experts|norms)\.(\d+)\.")


def with_stacked_experts(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with ``X.experts.0.Y``, ``X.experts.1.Y``, ... as ``X.experts.Y`` [E,...].

    ``X.norms.0.Y``, ... become ``X.norms.Y`` [H,...]. A checkpoint without such tensors stays as it
    is.

    Raises:
        GraphgenError: GG0602 for an expert that is missing, or of another shape or type.
    """
    stacks: dict[str, dict[int, TensorInfo]] = {}
    for name, info in checkpoint.tensors().items():
        whole, number = stacked_name(name)
        if number is not None:
            stacks.setdefault(whole, {})[number] = info
    if not stacks:
        return checkpoint
    return StackedExperts(
        checkpoint, {name: _in_order(checkpoint, name, held) for name, held in stacks.items()}
    )


def stacked_name(name: str) -> tuple[str, int | None]:
    """The name of the stack of a tensor or module, and its number; ``None`` for a single one."""
    found = _EXPERT.search(name)
    if found is None:
        return name, None
    return f"{name[: found.start()]}.{found[1]}.{name[found.end() :]}", int(found[2])


def numbered_experts(checkpoint: Checkpoint) -> Mapping[str, tuple[str, ...]]:
    """The names of the tensors of experts 0 to E - 1, by the name of their stack.

    Empty for a checkpoint that does not hold a tensor for each expert. Stacked norms of heads are
    among them.
    """
    view: object = checkpoint
    while view is not None:
        if isinstance(view, StackedExperts):
            return {name: tuple(info.name for info in held) for name, held in view.stacks.items()}
        view = getattr(view, "base", None)
    return {}


def _in_order(
    checkpoint: Checkpoint, name: str, held: Mapping[int, TensorInfo]
) -> tuple[TensorInfo, ...]:
    """The tensors of experts 0 to E - 1 (GG0602)."""
    first, kind = next(iter(held.values())), "norm" if ".norms." in name else "expert"
    for number in range(max(held) + 1):
        info = held.get(number)
        if info is None or (info.shape, info.dtype) != (first.shape, first.dtype):
            other = "is missing" if info is None else f"is {info.dtype} {list(info.shape)}"
            raise GraphgenError(
                "GG0602",
                f"{kind} {number} of '{name}' {other}, '{first.name}' is {first.dtype} "
                f"{list(first.shape)}",
                where=str(checkpoint.path),
                help=f"the {kind}s of a layer are alike and numbered from 0: is a file missing?",
            )
    return tuple(held[number] for number in range(len(held)))


class StackedExperts(CheckpointView):
    """A view of a checkpoint in which the experts of a layer are one tensor.

    Args:
        base: the checkpoint with a tensor for each expert.
        stacks: those of each tensor of the view, in order of the experts.

    Attributes:
        stacks: the same.
    """

    def __init__(self, base: Checkpoint, stacks: Mapping[str, tuple[TensorInfo, ...]]) -> None:
        super().__init__(base)
        self.stacks: Final = stacks

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its name in the view; reads no tensor data."""
        single = {
            name: info for name, info in self.base.tensors().items() if _EXPERT.search(name) is None
        }
        stacked = {
            name: TensorInfo(name, (len(held), *held[0].shape), held[0].dtype)
            for name, held in self.stacks.items()
        }
        return {**single, **stacked}

    def read(self, name: str) -> Array:
        """The tensor ``name``; a stack is a copy of its experts. See :class:`Checkpoint`."""
        held = self.stacks.get(name)
        if held is None:
            return self.base.read(name)
        made = np.empty((len(held), *held[0].shape), self.base.read(held[0].name).dtype)
        for place, info in enumerate(held):
            made[place] = self.base.read(info.name)
        return made
