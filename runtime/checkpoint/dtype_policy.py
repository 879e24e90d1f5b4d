"""Choose the element type to run a checkpoint in: requested, declared, or most common."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Checkpoint

AS_DECLARED: Final = "as-declared"
"""The value of ``--dtype`` that stands for the checkpoint's own element type."""

_NAMES: Final[Mapping[str, str]] = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def chosen_dtype(requested: str, checkpoint: Checkpoint) -> str:
    """``requested``, or :func:`declared_dtype` if that is :data:`AS_DECLARED`."""
    return declared_dtype(checkpoint) if requested == AS_DECLARED else requested


def declared_dtype(checkpoint: Checkpoint) -> str:
    """``f32``, ``bf16`` or ``f16``: the type stated in the configuration.

    Without a statement (GGUF), the type that holds most bytes of the weights; quantized weights
    count as f32.

    Raises:
        GraphgenError: GG0502 for a type that models do not run in.
    """
    stated = stated_dtype(checkpoint.config)
    if stated is not None:
        return stated
    sizes = dict.fromkeys(_NAMES.values(), 0)
    for info in checkpoint.tensors().values():
        if info.dtype in sizes:
            sizes[info.dtype] += prod(info.shape) * NUMPY_DTYPES[info.dtype].itemsize
    return max(sizes, key=sizes.__getitem__)


def stated_dtype(config: Mapping[str, object]) -> str | None:
    """``dtype`` of a configuration, or ``torch_dtype`` of an older one (GG0502)."""
    for key in ("dtype", "torch_dtype"):
        value = config.get(key)
        if value is None:
            continue
        name = _NAMES.get(value.removeprefix("torch.")) if isinstance(value, str) else None
        if name is None:
            raise GraphgenError(
                "GG0502",
                f"the checkpoint declares {key} {value!r}; models run in {', '.join(_NAMES)}",
                help="choose one: --dtype f32, bf16 or f16",
            )
        return name
    return None
