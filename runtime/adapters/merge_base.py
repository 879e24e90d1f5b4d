"""The checkpoint that an adapter is merged into: its tensors as they are stored, and its config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.config_file import read_json_object
from graphgen.runtime.checkpoint.hf_folder import FolderCheckpoint
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.name_mapping import with_model_names
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint


@dataclass(frozen=True, slots=True)
class MergeBase:
    """A checkpoint in floats.

    Attributes:
        stored: its tensors, under today's names of the family but not split or stacked.
        config: all of its ``config.json``.
    """

    stored: Checkpoint
    config: Mapping[str, object]

    @property
    def model(self) -> Mapping[str, object]:
        """The configuration of the text model."""
        return self.stored.config


def open_merge_base(path: Path, *, dequantize: bool = False) -> MergeBase:
    """The checkpoint at ``path`` to merge an adapter into.

    Args:
        path: a folder or a GGUF file.
        dequantize: take the weights of a quantized GGUF file in f32.

    Raises:
        GraphgenError: GG0601 for a checkpoint that cannot be read; GG0705 for quantized weights,
            which would have to be rounded again.
    """
    opened = open_checkpoint(path)
    stated = opened.config.get("quantization_config")
    if isinstance(stated, dict):
        method = cast("Mapping[str, object]", stated).get("quant_method", "quantization_config")
        raise _quantized(
            path,
            f"its weights are quantized ({method})",
            "merge into the checkpoint in floats that it was made from, and quantize the result "
            "with 'graphgen quantize'",
        )
    if (path / "model.safetensors").exists() or not _gguf(opened.path):
        folder = FolderCheckpoint(path)
        return MergeBase(with_model_names(folder), read_json_object(path / "config.json"))
    kinds = _kinds(opened)
    if kinds and not dequantize:
        help = "give --dequantize to write a checkpoint in f32"
        raise _quantized(path, f"its weights are quantized ({', '.join(kinds)})", help)
    return MergeBase(opened, opened.config)


def _gguf(path: Path) -> bool:
    return path.suffix == ".gguf"


def _kinds(checkpoint: Checkpoint) -> list[str]:
    """GGUF's names of the kinds of its tensors that are narrower than 16 bits."""
    # Only here: the gguf package is not needed to read safetensors.
    from graphgen.runtime.checkpoint.listing import list_checkpoint

    floats = ("F16", "BF16", "F32", "F64")
    kinds = {tensor.type for tensor in list_checkpoint([checkpoint.path]).tensors}
    return sorted(kind for kind in kinds if kind not in floats)


def _quantized(path: Path, what: str, help: str) -> GraphgenError:
    return GraphgenError("GG0705", f"cannot merge into {path}: {what}", where=str(path), help=help)
