"""Drafts of EAGLE in ``graphgen generate`` and ``graphgen speculate``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import error, facts
from tests.graphgen.cli.speculation_model import ASK
from tests.oracles.eagle import write_eagle
from tests.oracles.small_gguf import HIDDEN, small_vocabulary


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("draft")
    words = len(small_vocabulary()[0])
    write_eagle(path, hidden_size=HIDDEN, vocab_size=words, max_position_embeddings=64)
    return path


@pytest.mark.parametrize("flags", [(), ("--tp", 2), ("--speculation-length", 3)])
def test_answers_are_those_of_plain_decoding(
    small_gguf: Path, draft: Path, flags: tuple[object, ...]
):
    plain = facts("generate", small_gguf, *ASK)
    found = facts("generate", small_gguf, *ASK, "--draft-model-path", draft, *flags)
    answers = [[row["tokens"] for row in made["outputs"]] for made in (found, plain)]
    assert answers[0] == answers[1]
    assert found["speculation"]["launches"] <= 11
    assert found["speculation"]["proposed"][0] > 5


def test_an_artifact_has_the_features_that_it_was_compiled_for(
    small_gguf: Path, draft: Path, tmp_path: Path
):
    kept = tmp_path / "kept"
    flags = ("--draft-model-path", draft, "--artifact", kept)
    first, again = (facts("generate", small_gguf, *ASK, *flags) for _ in range(2))
    assert first["outputs"] == again["outputs"]


def test_acceptance_is_measured(small_gguf: Path, draft: Path, tmp_path: Path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat and the dog ran after the cat " * 8)
    found = facts(
        *("speculate", small_gguf, "--draft-model-path", draft, "--text", text, "--lengths", "2,3"),
        *("--prompts", 1, "--prompt-tokens", 8, "--max-new-tokens", 8),
    )
    assert [row["speculation_length"] for row in found["lengths"]] == [2, 3]


def test_a_draft_of_another_width_is_refused(small_gguf: Path, tmp_path: Path):
    write_eagle(tmp_path / "wide", hidden_size=64)
    found = error("generate", small_gguf, *ASK, "--draft-model-path", tmp_path / "wide")
    assert "takes 64 numbers of each of the target's tokens" in " ".join(found.split())
