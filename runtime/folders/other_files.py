"""Copy files beside the weights of a checkpoint, such as its tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from graphgen.runtime.artifact.tokenizer_folder import note_left, save_tokenizer
from graphgen.runtime.checkpoint.hub_download import is_own_file
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.tokenizer import load_tokenizer
from graphgen.whole_file import copy_inside

# Weights in any format, and what the writer of a checkpoint writes itself.
_NOT_COPIED: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
_OWN: Final = ("config.json",)


def copy_other_files(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy the tokenizer and what else is beside the weights; all but ``config.json``.

    Of symbolic links those into the checkpoint are copied; see :func:`copy_own`.
    """
    if not checkpoint.path.is_dir():
        made = folder / "tokenizer"
        save_tokenizer(load_tokenizer(checkpoint.path), made)
        for path in made.iterdir():
            path.replace(folder / path.name)
        made.rmdir()
        return
    names = [path.name for path in sorted(checkpoint.path.iterdir()) if path.is_file()]
    chosen = [name for name in names if name not in _OWN and not name.endswith(_NOT_COPIED)]
    copy_own(checkpoint.path, chosen, folder)


def copy_own(checkpoint: Path, names: Sequence[str], folder: Path) -> None:
    """Copy files of a checkpoint's folder; a note names those that are links out of it.

    The author of a checkpoint chooses its links: what one points to elsewhere on this machine is
    not part of the checkpoint, and must not come into a copy that is passed on.

    Args:
        checkpoint: the folder of the checkpoint.
        names: of regular files in it, or links to such files.
        folder: where they go.
    """
    left = [name for name in names if not is_own_file(checkpoint, name)]
    for name in names:
        if name not in left:
            copy_inside(checkpoint / name, folder, folder / name)
    if left:
        note_left(checkpoint, left)
