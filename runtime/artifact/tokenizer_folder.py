"""Write a tokenizer of any format as a folder that ``load_tokenizer`` reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from graphgen.runtime.checkpoint.hub_download import is_own_file
from graphgen.runtime.tokenizer import Tokenizer

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
    }
    present = {key: value for key, value in config.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(present), encoding="utf-8")
    ends = {"eos_token_id": sorted(parts.eos_ids)}
    (folder / "generation_config.json").write_text(json.dumps(ends), encoding="utf-8")


def note_left(checkpoint: Path, names: Sequence[str]) -> None:
    """Tell on standard error which files are not copied, as they are links out of a checkpoint."""
    listed = ", ".join(map(repr, names))
    print(f"note: not copied, links out of {checkpoint}: {listed}", file=sys.stderr)
