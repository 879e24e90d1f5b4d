"""A small model, and a question about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles.small_gguf import write_small_model

ASK = ("--prompt", "the cat sat on the cat sat on the", "--max-new-tokens", 12)


@pytest.fixture(scope="module")
def small_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    write_small_model(path)
    return path
