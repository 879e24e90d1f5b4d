"""``--roll-window-cache`` on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.graphgen.cli.conftest import done, facts
from tests.oracles.families import ORACLES, save, save_tokenizer


def test_the_tokens_are_the_same(tmp_path: Path):
    save(ORACLES["mistral"].model("a window", vocab_size=301), tmp_path)
    save_tokenizer(tmp_path)
    asked = [tmp_path, "--prompt", "the cat sat on the mat", "--prompt", "a", "--ignore-eos"]
    asked += ["--max-new-tokens", 8]
    plain = facts("generate", *asked, "--json")
    rolled = facts("generate", *asked, "--roll-window-cache", "--json")
    assert rolled["outputs"] == plain["outputs"]
    said = done("generate", *asked, "--roll-window-cache").stderr
    assert "the caches of 2 layers hold 4 positions instead of 128" in said


def test_a_model_without_a_window_is_told(tmp_path: Path):
    save(ORACLES["llama"].model(vocab_size=301), tmp_path)
    save_tokenizer(tmp_path)
    asked = [tmp_path, "--prompt", "the cat", "--max-new-tokens", 2]
    said = done("generate", *asked, "--roll-window-cache").stderr
    assert "no layer has a window that is smaller than its caches" in said


def test_plan_counts_what_is_kept():
    asked = [
        "mistral-7b",
        "--target",
        "trn1",
        "--seq",
        16384,
        "--context",
        128,
        "--tp",
        8,
        "--json",
    ]
    plain, rolled = facts("plan", *asked), facts("plan", *asked, "--roll-window-cache")
    sizes = [made["chosen"]["use"]["kv_once"] for made in (plain, rolled)]
    assert sizes[0] == 4 * sizes[1]
    assert rolled["roll_window_cache"] is True
