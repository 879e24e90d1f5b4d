"""Tensors of several ranks, and the operations of ``torch.ops.neuron`` on them.

The memory of a rank is a tensor of this machine. A part of one, as it is made for a bucket of a
cache, is a view: what a program writes into it is in the whole as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch  # noqa: TID253 - imported by install() alone, which needs torch

from graphgen.errors import GraphgenError

# Attributes of a tensor on the ranks that need no elements.
_FACTS = ("shape", "dtype", "device", "layout", "ndim", "requires_grad", "is_sparse")
_METHODS = (
    torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.nelement,
    torch.Tensor.stride, torch.Tensor.element_size, torch.Tensor.is_floating_point,
    torch.Tensor.is_contiguous, torch.Tensor.__len__, torch.Tensor.__hash__,
)  # fmt: skip


class RankTensor(torch.Tensor):
    """One tensor a rank, all of one shape and type; for torch a tensor on device ``xla``.

    Attributes:
        ranks: the tensors, rank 0 first.
        placed: what a runtime keeps of it between two runs.
    """

    ranks: list[torch.Tensor]
    placed: dict[object, tuple[tuple[int, ...], object]]
    _allowed: ClassVar[frozenset[object]] = frozenset(
        [*_METHODS, *[getattr(torch.Tensor, name).__get__ for name in _FACTS]]
    )

    @staticmethod
    def of(ranks: Sequence[torch.Tensor]) -> RankTensor:
        """The tensor of these, used in place (GG0705 unless they are alike)."""
        first = ranks[0]
        if any(item.shape != first.shape or item.dtype != first.dtype for item in ranks):
            shown = ", ".join(f"{item.dtype}{list(item.shape)}" for item in ranks)
            raise GraphgenError("GG0705", f"the ranks' tensors differ: {shown}")
        made = torch.Tensor._make_subclass(RankTensor, first.detach())
        made.ranks = list(ranks)
        made.placed = {}
        return made

    @property
    def device(self) -> torch.device:  # pyright: ignore[reportIncompatibleVariableOverride]
        """``xla``, by which users tell it from a tensor of the host."""
        return torch.device("xla")

    def __repr__(self, **_: object) -> str:
        return f"RankTensor({self.dtype}, {list(self.shape)}, ranks={len(self.ranks)})"

    @classmethod
    def __torch_function__(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer questions of shape and type; refuse mathematics (GG0705)."""
        if func in cls._allowed:
            with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
                return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        raise GraphgenError(
            "GG0705",
            f"torch.{name} of a tensor on the ranks",
            help="torch.ops.neuron._parallel_from_neuron copies it to the host",
        )

    @property
    def versions(self) -> tuple[int, ...]:
        """Numbers that change with every write into the memory, through views as well."""
        return tuple([item._version for item in self.ranks])


def to_ranks(tensors: Sequence[torch.Tensor]) -> RankTensor:
    """Copy one tensor of the host to each rank."""
    return RankTensor.of([item.detach().clone().contiguous() for item in tensors])


def from_ranks(tensor: RankTensor) -> list[torch.Tensor]:
    """Copies on the host, one of each rank."""
    return [item.clone() for item in tensor.ranks]


def write_ranks(tensor: RankTensor, tensors: Sequence[torch.Tensor]) -> None:
    """Write a tensor of the host into the memory of each rank, from its start (GG0705)."""
    if len(tensors) != len(tensor.ranks):
        what = f"{len(tensors)} tensors are written to {len(tensor.ranks)} ranks"
        raise GraphgenError("GG0705", what)
    for memory, given in zip(tensor.ranks, tensors, strict=True):
        if memory.shape == given.shape:
            memory.copy_(given)
            continue
        if given.dtype != memory.dtype or given.numel() > memory.numel():
            what = f"{given.dtype}{list(given.shape)} does not fit into {tensor!r}"
            raise GraphgenError("GG0705", what)
        memory.view(-1)[: given.numel()].copy_(given.reshape(-1))


def slice_ranks(tensor: RankTensor, dim: int, start: int, end: int, step: int) -> RankTensor:
    """A view of a part of each rank's tensor along ``dim``."""
    where = [slice(None)] * tensor.dim()
    where[dim] = slice(start, end, step)
    return RankTensor.of([item[tuple(where)] for item in tensor.ranks])
