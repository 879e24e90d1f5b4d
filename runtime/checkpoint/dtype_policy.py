"""Choose the element type to run a checkpoint in: requested, declared, or most common."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Checkpoint

AS_DECLARED: Final = "as-declared"
"""The value of ``--dtype`` that stands for the checkpoint's own element type."""

_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.|$)")
_NAMES: Final[Mapping[str, str]] = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def chosen_types(requested: str, checkpoint: Checkpoint) -> dict[str, object]:
    """The settings ``dtype`` and, for :data:`AS_DECLARED`, ``weight_dtypes``.

    Args:
        requested: an element type, or :data:`AS_DECLARED`.
        checkpoint: the weights.
    """
    if requested != AS_DECLARED:
        return {"dtype": requested}
    element = declared_dtype(checkpoint)
    return {"dtype": element, "weight_dtypes": weight_dtypes(checkpoint, element)}


def weight_dtypes(checkpoint: Checkpoint, element: str) -> tuple[str, ...]:
    """``TYPE:PATTERN`` for the weights in f32, bf16 or f16 that are not in ``element``.

    The layers of a pattern are one, where it means no weight of another type. Without a statement
    in the configuration (GGUF) there is one type for all.
    """
    if stated_dtype(checkpoint.config) is None:
        return ()
    kinds = {info.name: info.dtype for info in checkpoint.tensors().values()}
    found: dict[str, None] = {}
    for name, kind in kinds.items():
        if kind in _NAMES.values() and kind != element:
            pattern = _NUMBER.sub("*", name)
            meant = {kinds[other] for other in fnmatch.filter(kinds, pattern)}
            found[f"{kind}:{pattern if len(meant) == 1 else name}"] = None
    return tuple(found)


def declared_types(config: Mapping[str, object], path: Path) -> dict[str, object]:
    """The settings ``dtype`` and ``weight_dtypes`` that a model declares.

    Args:
        config: of the model, whose statement counts.
        path: of its checkpoint, which has to be there if the configuration states nothing.
    """
    # Only here: artifacts are opened without any reader of checkpoints.
    from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint

    element = stated_dtype(config) or declared_dtype(open_checkpoint(path))
    return {"dtype": element, "weight_dtypes": weight_dtypes_of_folder(path, element)}


def weight_dtypes_of_folder(folder: Path, element: str) -> tuple[str, ...]:
    """The same of a folder; none of one without weights, which may have a configuration alone."""
    # Only here: artifacts are opened without any reader of checkpoints.
    from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint

    if not any([*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]):
        return ()
    return weight_dtypes(open_checkpoint(folder), element)


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
