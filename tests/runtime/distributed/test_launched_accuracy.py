"""``graphgen accuracy`` over processes: process 0 runs the reference, and all the tested model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.oracles.small_gguf import write_small_model
from tests.runtime.distributed.launches import launch

FEW = ("--num-tokens-to-check", "2", "--max-len", "64", "--prompt", "abc", "--json")


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [("--tp", "2"), ("--pp-degree", "2")])
def test_processes_give_the_logits_of_the_reference(degrees: tuple[str, ...], tmp_path: Path):
    model = tmp_path / "small.gguf"
    write_small_model(model, {"llama.context_length": 512}, tied=False)
    words = ["accuracy", str(model), "--dtype", "f32", *degrees, *FEW]
    ended = launch(tmp_path / "logs", 2, words, None, "--silent-after", "60")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert found["passed"]
    assert len(found["steps"]) == 2
    words[words.index("f32")] = "bf16"
    words += ["--tol-map", "{None: (0, 0)}"]
    ended = launch(tmp_path / "strict", 2, words, None, "--silent-after", "60")
    assert ended.status == 1, ended.err
    assert not json.loads(ended.out)["passed"]
    assert "note: layers are compared in one process only" in ended.err
    assert "error[" not in ended.err + ended.logs[1]
