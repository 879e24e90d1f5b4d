"""``graphgen generate --medusa-heads``: answers, artifacts, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from tests.graphgen.cli.conftest import done, error, facts
from tests.graphgen.cli.speculation_model import ASK
from tests.oracles.medusa import random_heads, save_heads


@pytest.fixture(scope="module")
def heads(small_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tensors = open_checkpoint(small_gguf).tensors()
    vocabulary, width = tensors["model.embed_tokens.weight"].shape
    return save_heads(tmp_path_factory.mktemp("heads"), random_heads(width, vocabulary, 3)).parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree.json"
    path.write_text(json.dumps([[0], [1], [0, 0], [0, 1]]))
    return path


def answers(*arguments: object) -> list[list[int]]:
    return [row["tokens"] for row in facts("generate", *arguments)["outputs"]]


def test_answers_are_those_of_plain_decoding(small_gguf: Path, heads: Path, tree: Path):
    plain = answers(small_gguf, *ASK)
    found = facts("generate", small_gguf, *ASK, "--medusa-heads", heads, "--medusa-tree", tree)
    assert [row["tokens"] for row in found["outputs"]] == plain
    assert found["speculation"]["speculation_length"] == 5
    assert answers(small_gguf, *ASK, "--medusa-heads", heads, "--num-medusa-heads", 2) == plain


def test_an_artifact_keeps_the_heads(small_gguf: Path, heads: Path, tree: Path, tmp_path: Path):
    plain, kept = answers(small_gguf, *ASK), tmp_path / "model.art"
    ask = (*ASK, "--medusa-tree", tree)
    assert answers(small_gguf, *ask, "--medusa-heads", heads, "--artifact", kept) == plain
    assert answers(small_gguf, *ask, "--medusa-heads", heads, "--artifact", kept) == plain
    assert answers(kept, *ask) == plain
    assert answers(kept, *ASK) == plain
    text = error("generate", kept, *ask, "--medusa-heads", heads)
    assert "--medusa-heads has no effect: the model is an artifact" in text
    other = save_heads(tmp_path / "other", random_heads(8, 9, 3)).parent
    assert "other weights" in error(
        "generate", small_gguf, *ask, "--medusa-heads", other, "--artifact", kept
    )
    larger = tmp_path / "larger.json"
    larger.write_text(json.dumps([[0], [1], [2], [3], [4]]))
    text = error("generate", kept, *ASK, "--medusa-tree", larger)
    assert "these programs verify trees of 5 nodes, not 6" in text


def test_the_summary_tells_the_tokens_a_step(small_gguf: Path, heads: Path):
    text = done("generate", small_gguf, *ASK, "--medusa-heads", heads, "--summary").stderr
    assert "tokens per step" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--medusa-tree", "TREE"), "--medusa-tree has no effect without heads"),
        (("--num-medusa-heads", 2), "--num-medusa-heads has no effect without heads"),
        (("--medusa-heads", "HEADS", "--num-medusa-heads", 4), "has 3 heads of Medusa, not 4"),
        (("--medusa-heads", "HEADS", "--prompt-lookup", 2), "exclude each other"),
        (("--medusa-heads", "none"), "there is no such file or folder"),
        (
            ("--medusa-heads", "HEADS", "--num-medusa-heads", 1, "--medusa-tree", "TREE"),
            "needs 2 heads, and there are 1",
        ),
        (("--medusa-heads", "HEADS", "--async-mode", "--on-device-sampling"), "async_mode"),
    ],
)
def test_what_does_not_fit_is_refused(
    small_gguf: Path, heads: Path, tree: Path, flags: tuple[object, ...], message: str
):
    places = {"HEADS": heads, "TREE": tree}
    given = [places.get(str(flag), flag) for flag in flags]
    assert message in " ".join(error("generate", small_gguf, *ASK, *given).split())
