"""Arrays of the user: torch tensors or NumPy arrays in, the same kind out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.eval import Array

# Under the same names in torch and ml_dtypes; NumPy itself has neither.
_FLOATS_OF_8_BITS = ("float8_e4m3fn", "float8_e5m2")


class UserArray(Protocol):
    """The part of torch tensors and NumPy arrays that is used."""

    @property
    def shape(self) -> Sequence[int]:
        """Sizes, outermost first."""
        ...


class _Tensor(Protocol):
    """The part of torch tensors that is used."""

    dtype: object

    def detach(self) -> _Tensor: ...
    def cpu(self) -> _Tensor: ...
    def contiguous(self) -> _Tensor: ...
    def numpy(self) -> Array: ...
    def view(self, dtype: object) -> _Tensor: ...


def is_tensor(value: object) -> bool:
    """True for a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, cast(type, torch.Tensor))


def as_numpy(value: object) -> Array:
    """A torch tensor, an array or nested lists as a NumPy array; memory is shared if possible."""
    if not is_tensor(value):
        return np.asarray(value)
    torch = sys.modules["torch"]
    tensor = cast(_Tensor, value).detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    name = str(tensor.dtype).removeprefix("torch.")
    if name in _FLOATS_OF_8_BITS:
        import ml_dtypes

        return tensor.view(torch.int8).numpy().view(getattr(ml_dtypes, name))
    return tensor.numpy()


def as_user_array(array: Array, like: object = None) -> UserArray:
    """A NumPy array in the user's kind: that of ``like``, or torch once it is imported."""
    torch = sys.modules.get("torch")
    wanted = torch is not None if like is None else is_tensor(like)
    if not wanted or torch is None:
        return cast(UserArray, array)
    if not array.flags.writeable:
        array = array.copy()
    if array.dtype.name == "bfloat16":
        return cast(UserArray, torch.from_numpy(array.view(np.int16)).view(torch.bfloat16))
    if array.dtype.name in _FLOATS_OF_8_BITS:
        kind = getattr(torch, array.dtype.name)
        return cast(UserArray, torch.from_numpy(array.view(np.int8)).view(kind))
    return cast(UserArray, torch.from_numpy(array))


def integers(name: str, value: object, rank: int) -> npt.NDArray[np.int64]:
    """An input of ``forward`` as integers of this rank (GG0402)."""
    array = as_numpy(value)
    if array.ndim != rank or array.dtype.kind not in "iub":
        raise GraphgenError(
            "GG0402",
            f"{name} is {array.dtype} {[*array.shape]}, not integers with {rank} "
            f"dimension{'s' if rank > 1 else ''}",
        )
    return array.astype(np.int64)
