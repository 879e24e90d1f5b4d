"""Proposals of process 0 that several processes verify: the tokens are those of one process."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.lowering.cpu import processes
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.open_speculator import LocalProposer, SpeculationOptions, open_speculator
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.speculation.proposal import Proposal
from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.oracles.medusa import random_heads, save_heads
from tests.runtime.distributed.launched_server import BODIES, Server
from tests.runtime.distributed.launches import answered, command, launch

TEXTS = ["the cat", "a dog and", "one"]
NEW = 8
# Other work may keep a process from its core for long.
PATIENT = ("--silent-after", "60")
FOUR = {"dtype": "f32", "speculation_length": 4}
DRAWN = Sampling(do_sample=True, top_k=40, temperature=2.0, seed=3)


def saved(folder: Path, layers: int) -> Path:
    """A small Llama, whose tokens vary."""
    model = ORACLES["llama"].model(vocab_size=301, initializer_range=0.2, num_hidden_layers=layers)
    save(model, folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model"), 4)


def in_one_process(
    model: Path, sampling: Sampling, proposals: SpeculationOptions | None = None
) -> list[list[int]]:
    asked = FOUR if proposals else {"dtype": "f32"}
    options = EngineOptions(CompileConfig.of(**asked), max_len=64)
    engine, prompts = open_engine(
        str(model), options, lambda t: [t.encode(text) for text in TEXTS], NEW, Silent()
    )
    if proposals is not None:
        engine.speculator = open_speculator(engine, proposals, Silent())
    request = GenerationRequest(NEW, engine.tokenizer.eos_ids, sampling=sampling)
    return [row.tokens for row in engine.generate(prompts, request).completions]


def launched(model: Path, logs: Path, tp: int, *more: str) -> list[list[int]]:
    """What two processes answer."""
    texts = [word for text in TEXTS for word in ("--prompt", text)]
    new = ["--max-new-tokens", str(NEW), "--max-len", "64", "--json"]
    ended = launch(logs, 2, command(model, tp, *texts, *new, *more), None, *PATIENT)
    assert ended.status == 0, ended.err
    return answered(ended.out)


@pytest.mark.slow
def test_drawn_tokens_after_proposals_of_the_first_layers(model: Path, tmp_path: Path):
    drawn = ("--do-sample", "--top-k", "40", "--temperature", "2", "--seed", "3")
    wanted = in_one_process(model, DRAWN, SpeculationOptions(layers=2, model=str(model), length=4))
    flags = ("--draft-layers", "2", "--speculation-length", "4", *drawn)
    assert launched(model, tmp_path, 2, *flags) == wanted


@pytest.mark.slow
def test_stages_that_verify_what_the_prompt_has(model: Path, tmp_path: Path):
    flags = ("--pp-degree", "2", "--prompt-lookup", "2", "--speculative-adaptive")
    assert launched(model, tmp_path, 1, *flags) == in_one_process(model, Sampling())


@pytest.mark.slow
def test_trees_of_heads_of_medusa(model: Path, tmp_path: Path):
    heads = save_heads(tmp_path / "heads", random_heads(32, 301, 2))
    found = launched(model, tmp_path, 2, "--medusa-heads", str(heads))
    assert found == in_one_process(model, Sampling())


@pytest.mark.slow
def test_a_server_with_a_draft_in_process_0(model: Path, tmp_path: Path):
    draft = saved(tmp_path / "draft", 1)
    words = [str(model), "--max-num-seqs", "3", "--max-model-len", "64"]
    words += ["--speculative-model", str(draft), "--num-speculative-tokens", "3"]
    with Server(words, 0, tmp_path) as server:
        wanted = server.answers(BODIES)
    with Server([*words, "-tp", "2"], 2, tmp_path, *PATIENT) as server:
        assert server.answers(BODIES) == wanted
        ended = server.stop(time.monotonic())
    assert ended.status == 0, ended.err
    assert not ended.logs[1].count("error")


class Counting:
    """Notes the number of processes that share a launch at each call."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def start(self) -> None:
        self.seen.append(processes.count())

    def warm_up(self) -> None:
        self.seen.append(processes.count())

    def propose(self, rows: object) -> list[Proposal]:
        self.seen.append(len(processes.local_ranks(1)))
        return []


def test_a_draft_of_a_launch_runs_in_its_own_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(processes._joined, "count", 4)
    monkeypatch.setattr(processes._joined, "stages", 2)
    inner = Counting()
    proposer = LocalProposer(inner)
    proposer.start()
    proposer.warm_up()
    proposer.propose([])
    assert inner.seen == [1, 1, 1]
    with processes.alone():
        assert not processes.in_stages()
    assert (processes.count(), processes.in_stages()) == (4, True)
