"""Stages of a pipeline in several processes answer as one process does, and end together."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import Sampling
from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.oracles.smollm2 import smollm2_path
from tests.runtime.distributed.launches import answered, command, launch, process_of, soon

pytestmark = pytest.mark.slow

TEXTS = ["the cat", "a dog and", "one"]
NEW = 8
# Other work may keep a process from its core for long.
PATIENT = ("--silent-after", "60")
SAMPLED = ("--do-sample", "--top-k", "1,50,20", "--temperature", "2", "--seed", "3")
DRAWN = [Sampling(do_sample=True, top_k=k, temperature=2.0, seed=3) for k in (1, 50, 20)]


def in_one_process(model: Path, sampling: list[Sampling]) -> list[list[int]]:
    options = EngineOptions(CompileConfig.of(dtype="f32"), max_len=64)
    engine, prompts = open_engine(
        str(model), options, lambda t: [t.encode(text) for text in TEXTS], NEW, Silent()
    )
    request = GenerationRequest(NEW, engine.tokenizer.eos_ids, sampling=sampling)
    return [row.tokens for row in engine.generate(prompts, request).completions]


def asked(model: Path, tp: int, stages: int, *more: str) -> list[str]:
    texts = [word for text in TEXTS for word in ("--prompt", text)]
    new = ["--max-new-tokens", str(NEW), "--max-len", "64", "--json"]
    return command(model, tp, *texts, *new, "--pp-degree", str(stages), *more)


def llama(folder: Path) -> Path:
    """A small Llama of six layers, whose tokens vary."""
    save(ORACLES["llama"].model(vocab_size=301, initializer_range=0.2, num_hidden_layers=6), folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("model"))


# Whole stages in a process, stages that two processes share, and a stage of two processes' ranks.
@pytest.mark.parametrize(
    ("tp", "stages", "processes", "more"),
    [(1, 2, 2, ()), (2, 3, 3, SAMPLED), (2, 3, 2, ()), (2, 2, 4, SAMPLED)],
)
def test_tokens_are_those_of_one_process(
    tp: int, stages: int, processes: int, more: tuple[str, ...], model: Path, tmp_path: Path
):
    ended = launch(tmp_path, processes, asked(model, tp, stages, *more), None, *PATIENT)
    assert ended.status == 0, ended.err
    assert answered(ended.out) == in_one_process(model, DRAWN if more else [Sampling()] * 3)


def test_sampled_tokens_of_stages_that_a_variable_asks_for(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NEURON_PP_STAGES", "2")
    ended = launch(tmp_path, 2, asked(model, 1, 1, *SAMPLED), None, *PATIENT)
    assert ended.status == 0, ended.err
    assert answered(ended.out) == in_one_process(model, DRAWN)


@pytest.mark.usefixtures("optimized_code")
def test_smollm2_in_two_stages_of_two_processes(tmp_path: Path):
    ended = launch(tmp_path, 2, asked(smollm2_path(), 1, 2), None, *PATIENT)
    assert ended.status == 0, ended.err
    assert answered(ended.out) == in_one_process(smollm2_path(), [Sampling()] * 3)


@pytest.mark.parametrize(("how", "rank"), [(signal.SIGKILL, 1), (signal.SIGSTOP, 1)])
def test_a_stage_that_dies_or_stops_ends_all(
    how: signal.Signals, rank: int, model: Path, tmp_path: Path
):
    pids: list[int] = []

    def disturb(launcher: subprocess.Popen[str]) -> None:
        pids.extend(process_of(launcher, each) for each in (0, 1))
        assert launcher.stdout is not None
        # Tokens of the answer are streamed: the steps have begun.
        launcher.stdout.read(1)
        os.kill(pids[rank], how)

    words = command(model, 1, "--prompt", "the cat", "--pp-degree", "2", "--ignore-eos")
    ended = launch(tmp_path, 2, [*words, "--max-new-tokens", "450"], disturb)
    assert ended.status == 1
    assert ended.seconds < soon()
    assert "error[GG0708]" in ended.err
    assert f"process {rank} of 2" in ended.err
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
