"""Open a checkpoint by its path, whatever format it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from graphgen.errors import GraphgenError
from runtime.checkpoint.config_file import read_config
from runtime.checkpoint.mapped import unreadable
from runtime.checkpoint.renamed import with_model_names
from runtime.checkpoint.safetensors_file import SafetensorsCheckpoint
from runtime.checkpoint.source import Checkpoint

__all__ = ["only_gguf", "open_checkpoint", "read_config"]

_LOOKED_FOR: Final = (
    "looked for: a .gguf file; a folder with config.json and model.safetensors; "
    "a folder with exactly one .gguf file"
)


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open the checkpoint at ``path`` without reading its weights.

    Args:
        path: a ``.gguf`` file, a folder with ``config.json`` and ``model.safetensors``, or a folder
            with exactly one ``.gguf`` file. The safetensors file wins where both are there.

    Raises:
        GraphgenError: GG0601 if nothing readable is there, saying what was looked for; GG0501,
            GG0502 or GG0503 for a GGUF file whose model cannot be translated.
    """
    path = Path(path)
    if path.is_dir():
        return _open_folder(path)
    if not path.exists():
        raise unreadable(path, "there is no such file or folder", help=_LOOKED_FOR)
    if path.suffix == ".gguf":
        return _open_gguf(path)
    if path.suffix == ".safetensors":
        raise unreadable(path, "a .safetensors file is opened by its folder", help=_LOOKED_FOR)
    raise unreadable(path, "not a checkpoint: the file is no .gguf file", help=_LOOKED_FOR)


def only_gguf(folder: Path) -> Path | None:
    """The ``.gguf`` file of ``folder`` if it has one; GG0601 if it has several."""
    files = sorted(folder.glob("*.gguf"))
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:5]) + (", ..." if len(files) > 5 else "")
        raise unreadable(
            folder,
            f"the folder holds {len(files)} .gguf files: {names}",
            help="name the file instead of the folder",
        )
    return files[0] if files else None


def _open_folder(folder: Path) -> Checkpoint:
    has_config = (folder / "config.json").exists()
    if (folder / "model.safetensors").exists():
        if not has_config:
            raise unreadable(folder, "model.safetensors is there, but config.json is missing")
        return with_model_names(SafetensorsCheckpoint(folder))
    gguf = only_gguf(folder)
    if gguf is not None:
        return _open_gguf(gguf)
    raise _nothing_found(folder, has_config)


def _nothing_found(folder: Path, has_config: bool) -> GraphgenError:
    if (folder / "model.safetensors.index.json").exists():
        return unreadable(
            folder,
            "the checkpoint is sharded (model.safetensors.index.json); "
            "sharded checkpoints cannot be read yet",
            help="save it as one file, for example with save_pretrained(max_shard_size='1TB')",
        )
    if has_config:
        return unreadable(
            folder, "config.json is there, but model.safetensors is missing", help=_LOOKED_FOR
        )
    return unreadable(folder, "the folder holds no checkpoint", help=_LOOKED_FOR)


def _open_gguf(path: Path) -> Checkpoint:
    # Only here: the gguf package is not needed to read safetensors.
    from runtime.checkpoint.gguf import GgufCheckpoint

    return GgufCheckpoint(path)
