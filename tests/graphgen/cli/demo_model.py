"""``inference_demo`` in process, on a small random Llama."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from graphgen.cli.inference_demo import run
from tests.oracles.families import ORACLES, save, save_tokenizer

HEAD = "--model-type llama --task-type causal-lm run --model-path MODEL"


@dataclass(frozen=True)
class Outcome:
    """What a command line printed."""

    status: int
    out: str
    err: str


Demo = Callable[[str], Outcome]


@pytest.fixture(scope="session")
def demo_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two layers with a tokenizer."""
    folder = tmp_path_factory.mktemp("demo") / "model"
    save(ORACLES["llama"].model(vocab_size=300), folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture
def demo(
    demo_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Demo:
    """Run a command line in an empty folder; the word MODEL stands for the checkpoint."""
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> Outcome:
        capsys.readouterr()
        status = run(
            [str(demo_checkpoint) if word == "MODEL" else word for word in shlex.split(line)]
        )
        printed = capsys.readouterr()
        return Outcome(status, printed.out, printed.err.replace(str(tmp_path), "HERE"))

    return call
