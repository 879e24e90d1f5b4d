"""``--flash-decoding`` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.families import ORACLES, save, save_tokenizer


def saved(path: Path, **config: object) -> list[object]:
    """A model with SmolLM2's nine query and three key-value heads, and what is asked of it."""
    heads = {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3}
    save(ORACLES["llama"].model(vocab_size=301, **{**heads, **config}), path)
    save_tokenizer(path)
    asked: list[object] = [path, "--prompt", "the cat sat on the mat", "--prompt", "a"]
    return [*asked, "--ignore-eos", "--max-new-tokens", 8]


def test_six_ranks_give_the_tokens_of_one(tmp_path: Path):
    asked = saved(tmp_path)
    plain = facts("generate", *asked, "--json")
    said = done("generate", *asked, "--tp", 6, "--flash-decoding").stderr
    assert "4 caches are in 2 stripes" in said
    flash = facts("generate", *asked, "--tp", 6, "--flash-decoding", "--json")
    assert flash["outputs"] == plain["outputs"]


@pytest.mark.slow
def test_ranks_that_hold_each_head_once_are_told(tmp_path: Path):
    asked = saved(tmp_path)
    said = done("generate", *asked, "--tp", 3, "--flash-decoding").stderr
    assert "each key-value head is on one rank without it" in said


def test_other_layouts_of_heads_are_refused(tmp_path: Path):
    asked = saved(tmp_path)
    said = error(
        "generate", *asked, "--tp", 6, "--flash-decoding", "--group-query-attention",
        "CONVERT_TO_MHA",
    )  # fmt: skip
    assert "GG0302" in said
    assert "flash_decoding lays out heads itself" in said
