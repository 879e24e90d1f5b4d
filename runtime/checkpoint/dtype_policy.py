"""The element type a checkpoint is meant to be run in, as it says itself."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Checkpoint

AS_DECLARED: Final = "as-declared"
"""What the user writes where an element type is asked for and the checkpoint's own is meant."""

_NAMES: Final[Mapping[str, str]] = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def chosen_dtype(asked: str, checkpoint: Checkpoint) -> str:
    """What was asked for; for :data:`AS_DECLARED` what :func:`declared_dtype` finds."""
    return declared_dtype(checkpoint) if asked == AS_DECLARED else asked


def declared_dtype(checkpoint: Checkpoint) -> str:
    """``f32``, ``bf16`` or ``f16``: what the configuration says.

    Where it says nothing (GGUF), the one that most bytes of the weights come in; weights that are
    stored quantized come as f32.

    Raises:
        GraphgenError: GG0502 for a type that models are not run in.
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
    """What ``dtype`` says in a configuration, or ``torch_dtype`` in an older one (GG0502)."""
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
