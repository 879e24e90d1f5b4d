"""Split fused expert weights: a view with gate, up and down as separate tensors.

A family's weights are ``X.experts.gate_proj.weight`` and ``up_proj`` [E,I,H] and ``down_proj``
[E,H,I], with ``.bias`` [E,I], [E,I] and [E,H]; parts of MXFP4 end in ``.weight_blocks`` and
``.weight_scales``. A view reads these parts of the tensors that a checkpoint has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import (
    Array,
    Checkpoint,
    CheckpointView,
    TensorInfo,
)

_EXPERTS: Final = "experts."


@dataclass(frozen=True, slots=True)
class TensorPart:
    """A tensor of the view.

    Attributes:
        name: what follows ``X.experts.``.
        take: the part of a stored tensor, a view of it.
        rank: of the stored tensor.
        module: what stands in the place of ``experts.``.
    """

    name: str
    take: Callable[[Array], Array]
    rank: int = 3
    module: str = _EXPERTS


# Suffix of a stored name -> the parts of the tensor; the prefix names the mixture.
Form = Mapping[str, tuple[TensorPart, ...]]


def _whole(array: Array) -> Array:
    return array


def _even(array: Array) -> Array:
    return array[:, ::2]


def _odd(array: Array) -> Array:
    return array[:, 1::2]


def _turned(array: Array) -> Array:
    return array.transpose(0, 2, 1)


def _even_turned(array: Array) -> Array:
    return _even(_turned(array))


def _odd_turned(array: Array) -> Array:
    return _odd(_turned(array))


def _first_turned(array: Array) -> Array:
    return _turned(array[:, :, : array.shape[2] // 2])


def _second_turned(array: Array) -> Array:
    return _turned(array[:, :, array.shape[2] // 2 :])


def _first_rows(array: Array) -> Array:
    return array[:, : array.shape[1] // 2]


def _last_rows(array: Array) -> Array:
    return array[:, array.shape[1] // 2 :]


def _first_half(array: Array) -> Array:
    return array[: len(array) // 2]


def _last_half(array: Array) -> Array:
    return array[len(array) // 2 :]


_RANKS: Final = {"bias": 2, "weight_blocks": 4}


def _interleaved(last: str, *takes: Callable[[Array], Array]) -> tuple[TensorPart, ...]:
    return tuple(
        TensorPart(f"{name}_proj.{last}", take, _RANKS.get(last, 3))
        for name, take in zip(("gate", "up"), takes, strict=True)
    )


# transformers' GptOssExperts: matrices are [E,in,out], and features of gate and up take turns.
# Its MXFP4 blocks [E,out,groups,16] and scales [E,out,groups] are rows of outputs already.
_GPT_OSS: Final[Form] = {
    "experts.gate_up_proj": _interleaved("weight", _even_turned, _odd_turned),
    "experts.gate_up_proj_bias": _interleaved("bias", _even, _odd),
    "experts.gate_up_proj_blocks": _interleaved("weight_blocks", _even, _odd),
    "experts.gate_up_proj_scales": _interleaved("weight_scales", _even, _odd),
    "experts.down_proj": (TensorPart("down_proj.weight", _turned),),
    "experts.down_proj_bias": (TensorPart("down_proj.bias", _whole, 2),),
    "experts.down_proj_blocks": (TensorPart("down_proj.weight_blocks", _whole, 4),),
    "experts.down_proj_scales": (TensorPart("down_proj.weight_scales", _whole),),
}
# transformers' Llama4TextExperts: matrices are [E,in,out], and gate stands before up.
_LLAMA4: Final[Form] = {
    "experts.gate_up_proj": (
        TensorPart("gate_proj.weight", _first_turned),
        TensorPart("up_proj.weight", _second_turned),
    ),
    "experts.down_proj": (TensorPart("down_proj.weight", _turned),),
}
# transformers' GraniteMoeExperts as they are saved: rows of gate stand before those of up.
_GRANITE: Final[Form] = {
    "input_linear.weight": (
        TensorPart("gate_proj.weight", _first_rows),
        TensorPart("up_proj.weight", _last_rows),
    ),
    "output_linear.weight": (TensorPart("down_proj.weight", _whole),),
}
# The MLP of every token beside them (GraniteMoeSharedMLP), a module of the layer.
_BESIDE: Final = "block_sparse_moe.shared_experts."
_GRANITE_SHARED: Final[Form] = {
    "shared_mlp.input_linear.weight": (
        TensorPart("gate_proj.weight", _first_half, 2, _BESIDE),
        TensorPart("up_proj.weight", _last_half, 2, _BESIDE),
    ),
    "shared_mlp.output_linear.weight": (TensorPart("down_proj.weight", _whole, 2, _BESIDE),),
    **_GRANITE,
}


def _dbrx(config: Mapping[str, object]) -> Form:
    """transformers' DbrxExpertGLU: matrices [I,H] of all experts, one below the other."""
    ffn = config.get("ffn_config")
    count = cast("Mapping[str, object]", ffn).get("moe_num_experts") if ffn else None
    experts = count if isinstance(count, int) else 4

    def apart(array: Array) -> Array:
        rows, width = array.shape
        return array.reshape(experts, rows // experts, width)

    return {
        "experts.mlp.w1": (TensorPart("w1.weight", apart, 2),),
        "experts.mlp.v1": (TensorPart("v1.weight", apart, 2),),
        "experts.mlp.w2": (TensorPart("w2.weight", lambda array: _turned(apart(array)), 2),),
    }


def form_of(config: Mapping[str, object]) -> Form | None:
    """The form in which checkpoints of a family hold experts; ``None`` for the family's own."""
    kind = config.get("model_type")
    if kind == "dbrx":
        return _dbrx(config)
    forms = {
        "gpt_oss": _GPT_OSS,
        "llama4_text": _LLAMA4,
        "granitemoe": _GRANITE,
        "granitemoeshared": _GRANITE_SHARED,
    }
    return forms.get(str(kind))


def with_split_experts(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with gate, up and down of its experts apart, if its family stores them fused.

    A tensor of another rank than its form has stays as it is; see :func:`check_checkpoint`.
    """
    form = form_of(checkpoint.config)
    return checkpoint if form is None else SplitExperts(checkpoint, form)


class SplitExperts(CheckpointView):
    """A view of a checkpoint with the expert tensors of the model family.

    Args:
        base: the checkpoint as it is stored.
        form: the parts of its tensors.
    """

    def __init__(self, base: Checkpoint, form: Form) -> None:
        super().__init__(base)
        self._parts: Final = dict(_parts(base, form))

    def fused(self) -> Mapping[str, str]:
        """The stored tensor of each tensor that is another one, or a part of one."""
        return {name: own for name, (own, _) in self._parts.items() if name != own}

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its name in the view; reads no tensor data."""
        stored = self.base.tensors()
        return {
            name: replace(stored[own], name=name, shape=_shape(part, stored[own].shape))
            for name, (own, part) in self._parts.items()
        }

    def read(self, name: str) -> Array:
        """The tensor ``name``, a view of the stored one; see :class:`Checkpoint`."""
        found = self._parts.get(name)
        if found is None:
            return self.base.read(name)
        own, part = found
        return part.take(self.base.read(own))


def _parts(base: Checkpoint, form: Form) -> Iterator[tuple[str, tuple[str, TensorPart]]]:
    """(name in the view, (stored name, part)) of every tensor."""
    for own, info in base.tensors().items():
        last = next((last for last in form if own.endswith(f".{last}")), "")
        parts = [part for part in form.get(last, ()) if part.rank == len(info.shape)]
        for part in parts:
            yield f"{own.removesuffix(last)}{part.module}{part.name}", (own, part)
        if not parts:
            yield own, (own, TensorPart("", _whole))


def _shape(part: TensorPart, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a part, of an array without data."""
    return part.take(np.broadcast_to(np.uint8(0), shape)).shape


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
