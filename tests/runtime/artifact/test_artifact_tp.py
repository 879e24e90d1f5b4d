"""Artifacts of several ranks choose their tokens as the command without an artifact does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphgen.runtime.artifact import open_artifact
from tests.graphgen.cli.conftest import error, facts
from tests.oracles.small_gguf import write_small_model

PROMPTS = ("--prompt", "The llama said", "--prompt", "It's 2024")
COMMON = (*PROMPTS, "--max-new-tokens", 12, "--max-len", 64)
DRAWN = ("--do-sample", "--top-p", 0.9, "--seed", 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    write_small_model(path, {"llama.context_length": 512}, tied=False)
    return path


def tokens(model: Path, *options: object) -> Any:
    return [one["tokens"] for one in facts("generate", model, *COMMON, *options)["outputs"]]


def gathered(folder: Path) -> set[int]:
    """Sizes in bytes of what the programs of an artifact gather."""
    module = open_artifact(folder).model.module
    ops = [op for function in module.programs() for op in function.ops]
    return {op.result.type.nbytes for op in ops if op.name == "all_gather"}


@pytest.mark.parametrize("tp", [2, 3])
def test_ranks_choose_from_their_parts_with_an_artifact_too(model: Path, tp: int, tmp_path: Path):
    kept = tmp_path / "kept"
    wanted = tokens(model)
    # Made, taken from the folder with the checkpoint beside it, and used as the model.
    for arguments in ((model, "--artifact", kept), (model, "--artifact", kept), (kept,)):
        assert tokens(arguments[0], "--tp", tp, *arguments[1:]) == wanted
    assert open_artifact(kept).model.settings.sampling == "on-device-sampling"
    # The best logit of each of two rows and its place, from every rank: no rank sees all logits.
    assert gathered(kept) == {4 * 2 * tp}
    text = error("generate", kept, *COMMON, "--tp", tp, "--do-sample")
    assert "these programs choose tokens themselves: they take the best" in text
    assert "--do-sample without --on-device-sampling" in text


def test_programs_of_an_artifact_draw_where_that_is_asked(model: Path, tmp_path: Path):
    device, host = tmp_path / "device", tmp_path / "host"
    wanted = tokens(model, *DRAWN, "--on-device-sampling")
    for _ in range(2):
        found = tokens(model, "--tp", 2, *DRAWN, "--on-device-sampling", "--artifact", device)
        assert found == wanted
    assert tokens(device, "--tp", 2, *DRAWN) == wanted
    # One made for the host to draw gives logits, from which it can take the best as well.
    assert tokens(model, "--tp", 2, *DRAWN, "--artifact", host) == tokens(model, *DRAWN)
    assert tokens(host, "--tp", 2) == tokens(model)
    assert "was compiled for sampling" in error(
        "generate", model, *COMMON, "--tp", 2, "--on-device-sampling", "--artifact", host
    )
