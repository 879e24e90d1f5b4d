"""Open a checkpoint by its path and detect its format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.read_file import is_folder, is_there
from graphgen.runtime.checkpoint.config_file import read_config
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.mapped_file import unreadable

__all__ = ["as_stored", "only_gguf", "open_checkpoint", "read_config"]

_LOOKED_FOR: Final = (
    "looked for: a .gguf file; a folder with config.json and model.safetensors or "
    "pytorch_model.bin, whole or in parts with their .index.json; "
    "a folder with exactly one .gguf file"
)


def open_checkpoint(path: str | Path, config: Mapping[str, object] | None = None) -> Checkpoint:
    """Open the checkpoint at ``path`` without reading its weights.

    Args:
        path: a ``.gguf`` file, or any part of one that is split; a folder with ``config.json`` and
            its weights, in one file or in several with an index; or a folder with exactly one
            ``.gguf`` file. ``model.safetensors`` takes precedence over ``pytorch_model.bin``, and
            that over GGUF. With ``config`` also a folder without ``config.json``, and one file of
            weights: ``.safetensors``, or a PyTorch file of any name.
        config: the model as a ``config.json``, for a checkpoint that has none of its own.

    Raises:
        GraphgenError: GG0601 if nothing readable is there, listing the accepted formats; GG0604
            for a PyTorch file whose pickle calls a function; GG0501, GG0502 or GG0503 for a GGUF
            file whose model cannot be translated.
    """
    path = Path(path)
    if is_folder(path):
        return _open_folder(path, config)
    if not is_there(path):
        raise unreadable(path, "there is no such file or folder", help=_LOOKED_FOR)
    if path.suffix == ".gguf":
        return _open_gguf(path)
    if config is not None:
        return _open_weights(path, config)
    if path.suffix in (".safetensors", ".bin"):
        raise unreadable(path, f"a {path.suffix} file is opened by its folder", help=_LOOKED_FOR)
    raise unreadable(path, "not a checkpoint: the file is not a .gguf file", help=_LOOKED_FOR)


def as_stored(checkpoint: Checkpoint, *, keep: bool) -> Checkpoint:
    """The checkpoint with its weights as narrow as they are stored, if they are to be kept so.

    Those of a folder are anyway, where its scheme is read; a GGUF file's are dequantized otherwise.

    Args:
        checkpoint: as :func:`open_checkpoint` gives it.
        keep: the user's request; without it the checkpoint is returned as it is.

    Raises:
        GraphgenError: GG0705 if no weight of a product is stored in few bits that are read.
    """
    if not keep or "quantization_config" in checkpoint.config:
        return checkpoint
    if checkpoint.path.suffix == ".gguf":
        # Only here: the gguf package is not needed to read safetensors.
        from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint
        from graphgen.runtime.checkpoint.gguf_stored_blocks import GgufBlocks

        view = GgufBlocks(GgufCheckpoint(checkpoint.path))
        if "quantization_config" in view.config:
            return view
    raise GraphgenError(
        "GG0705",
        f"--keep-quantized has no effect: no weight of a product in {checkpoint.path} is quantized "
        "in a way that can be kept",
        help="leave it out; GGUF's kinds that are kept are Q8_0, Q4_0, Q4_1, Q4_K and of experts "
        "MXFP4",
    )


def only_gguf(folder: Path) -> Path | None:
    """The ``.gguf`` file of ``folder`` if it has one; GG0601 if it has several.

    Of a model that is split it is the first part.
    """
    files = sorted({_beginning(file) for file in folder.glob("*.gguf")})
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:5]) + (", ..." if len(files) > 5 else "")
        raise unreadable(
            folder,
            f"the folder holds {len(files)} .gguf files: {names}",
            help="name the file instead of the folder",
        )
    return files[0] if files else None


def _beginning(file: Path) -> Path:
    # Only here: the gguf package is not needed to read safetensors.
    from graphgen.runtime.checkpoint.gguf_header import part_files

    return part_files(file)[0]


def _open_weights(path: Path, config: Mapping[str, object] | None) -> Checkpoint:
    """A folder with weights, or one file of them, under today's names and with its quantization."""
    # Only here: a model is opened from an artifact without any reader of checkpoints.
    from graphgen.runtime.checkpoint.expert_tensors import with_split_experts, with_stacked_experts
    from graphgen.runtime.checkpoint.hf_folder import FolderCheckpoint
    from graphgen.runtime.checkpoint.name_mapping import with_model_names
    from graphgen.runtime.checkpoint.quantized_checkpoint import with_quantization
    from graphgen.runtime.checkpoint.split_rows import with_split_rows

    named = with_split_rows(with_model_names(FolderCheckpoint(path, config)))
    return with_quantization(with_split_experts(with_stacked_experts(named)))


def _open_folder(folder: Path, config: Mapping[str, object] | None) -> Checkpoint:
    # Only here: a model is opened from an artifact without any reader of checkpoints.
    from graphgen.runtime.checkpoint.hf_folder import WEIGHT_FILES

    has_config = is_there(folder / "config.json")
    weights = next((name for name in WEIGHT_FILES if is_there(folder / name)), None)
    if weights is not None:
        if not has_config and config is None:
            raise unreadable(folder, f"{weights} is there, but config.json is missing")
        return _open_weights(folder, None if has_config else config)
    gguf = only_gguf(folder)
    if gguf is not None:
        return _open_gguf(gguf)
    raise _nothing_found(folder, has_config)


def _nothing_found(folder: Path, has_config: bool) -> GraphgenError:
    parts = sorted({*folder.glob("*-of-*.safetensors"), *folder.glob("*-of-*.bin")})
    if has_config and parts:
        stem = parts[0].name.partition("-")[0] + parts[0].suffix
        return unreadable(
            folder,
            f"{parts[0].name} is a part of the weights, but {stem}.index.json is missing",
            help="copy or download it into the folder",
        )
    if has_config:
        return unreadable(folder, "config.json is there, but weights are missing", help=_LOOKED_FOR)
    return unreadable(folder, "the folder holds no checkpoint", help=_LOOKED_FOR)


def _open_gguf(path: Path) -> Checkpoint:
    # Only here: the gguf package is not needed to read safetensors.
    from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint

    return GgufCheckpoint(path)
