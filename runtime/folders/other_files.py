"""Copy files beside the weights of a checkpoint, such as its tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from graphgen.runtime.artifact.tokenizer_folder import save_tokenizer
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.tokenizer import load_tokenizer

# Weights in any format, and what the writer of a checkpoint writes itself.
_NOT_COPIED: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
_OWN: Final = ("config.json",)


def copy_other_files(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy the tokenizer and what else is beside the weights; all but ``config.json``."""
    if not checkpoint.path.is_dir():
        made = folder / "tokenizer"
        save_tokenizer(load_tokenizer(checkpoint.path), made)
        for path in made.iterdir():
            path.replace(folder / path.name)
        made.rmdir()
        return
    for path in sorted(checkpoint.path.iterdir()):
        if path.is_file() and path.name not in _OWN and not path.name.endswith(_NOT_COPIED):
            shutil.copyfile(path, folder / path.name)
