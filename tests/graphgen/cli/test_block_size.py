"""``--block-size`` on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.families import ORACLES, save, save_tokenizer


def test_the_tokens_are_the_same(tmp_path: Path):
    save(ORACLES["llama"].model(vocab_size=301), tmp_path)
    save_tokenizer(tmp_path)
    asked = [tmp_path, "--prompt", "the cat sat on the mat", "--prompt", "a", "--ignore-eos"]
    asked += ["--max-new-tokens", 8]
    plain = facts("generate", *asked, "--json")
    paged = facts("generate", *asked, "--block-size", 5, "--json")
    assert paged["outputs"] == plain["outputs"]
    said = done("generate", *asked, "--block-size", 5).stderr
    assert "4 caches are 52 blocks of 5 slots" in said


def test_what_has_no_blocks_is_refused_by_name(tmp_path: Path):
    save(ORACLES["mistral"].model("a window", vocab_size=301), tmp_path)
    save_tokenizer(tmp_path)
    asked = ["generate", tmp_path, "--prompt", "a", "--max-new-tokens", 2, "--block-size", 4]
    said = error(*asked, "--roll-window-cache")
    assert "is a ring of 4 slots, which has no blocks" in said
    assert "leave out roll-window-cache" in said
    said = error(*asked, "--prompt", "b", "--tp", 2, "--group-query-attention", "SHARD_OVER_BATCH")
    assert "choose a strategy for heads other than SHARD_OVER_BATCH" in said
