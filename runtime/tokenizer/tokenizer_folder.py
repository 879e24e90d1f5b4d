"""Write a tokenizer of any format as a folder that ``load_tokenizer`` reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from graphgen.atomic_write import copy_inside
from graphgen.errors import printable
from graphgen.read_file import is_file, is_folder
from graphgen.runtime.checkpoint.hub import is_own_file
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer

_TEMPLATE = "chat_template.jinja"


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``generation_config.json``.

    A chat template, which may be any text, is left out where its file is a link out of the
    checkpoint; a note says so.
    """
    parts = tokenizer.parts
    template = parts.chat_template
    if not is_own_file(parts.source, _TEMPLATE):
        note_left(parts.source, [_TEMPLATE])
        template = None
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(parts.backend.to_str(), encoding="utf-8")
    config = {
        "bos_token": parts.bos_token,
        "eos_token": parts.eos_token,
        "chat_template": template,
        **parts.other_tokens,
    }
    present = {key: value for key, value in config.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(present), encoding="utf-8")
    ends = {"eos_token_id": sorted(parts.eos_ids)}
    (folder / "generation_config.json").write_text(json.dumps(ends), encoding="utf-8")


def note_left(checkpoint: Path, names: Sequence[str]) -> None:
    """Tell on standard error which files are not copied, as they are links out of a checkpoint."""
    listed = ", ".join(map(repr, names))
    text = f"note: not copied, links out of {checkpoint}: {listed}"
    print(printable(text), file=sys.stderr)


# Weights in any format, and what the writer of a checkpoint writes itself.
_NOT_COPIED: Final = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")
_OWN: Final = ("config.json",)


def copy_other_files(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy the tokenizer and what else is beside the weights; all but ``config.json``.

    Of symbolic links those into the checkpoint are copied; see :func:`copy_own`.
    """
    if not is_folder(checkpoint.path):
        made = folder / "tokenizer"
        save_tokenizer(load_tokenizer(checkpoint.path), made)
        for path in made.iterdir():
            path.replace(folder / path.name)
        made.rmdir()
        return
    names = [path.name for path in sorted(checkpoint.path.iterdir()) if is_file(path)]
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
