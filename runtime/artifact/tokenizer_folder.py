"""Write a tokenizer of any format as a folder that ``load_tokenizer`` reads."""

from __future__ import annotations

import json
from pathlib import Path

from graphgen.runtime.tokenizer import Tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``generation_config.json``."""
    parts = tokenizer.parts
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(parts.backend.to_str(), encoding="utf-8")
    config = {
        "bos_token": parts.bos_token,
        "eos_token": parts.eos_token,
        "chat_template": parts.chat_template,
    }
    present = {key: value for key, value in config.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(present), encoding="utf-8")
    ends = {"eos_token_id": sorted(parts.eos_ids)}
    (folder / "generation_config.json").write_text(json.dumps(ends), encoding="utf-8")
