"""Processes that share the ranks of a model answer as one process does."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import Sampling
from tests.oracles.small_gguf import write_small_model
from tests.oracles.smollm2 import smollm2_path
from tests.runtime.distributed.launches import answered, command, launch

TEXTS = ["The llama said", "It's 2024"]
NEW = 12
# Other work may keep a process from its core for long.
PATIENT = ("--silent-after", "60")
DRAWS = ("--do-sample", "--top-k", "20", "--seed", "7")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    write_small_model(path, {"llama.context_length": 512}, tied=False)
    return path


def in_one_process(model: Path, tp: int, sampling: list[Sampling]) -> list[list[int]]:
    options = EngineOptions(CompileConfig.of(dtype="f32", tp=tp), max_len=128)
    engine, prompts = open_engine(
        str(model), options, lambda t: [t.encode(text) for text in TEXTS], NEW, Silent()
    )
    request = GenerationRequest(NEW, engine.tokenizer.eos_ids, sampling=sampling)
    return [row.tokens for row in engine.generate(prompts, request).completions]


def asked(model: Path, tp: int, *more: str) -> list[str]:
    texts = [word for text in TEXTS for word in ("--prompt", text)]
    new = ["--max-new-tokens", str(NEW), "--max-len", "128", "--json"]
    return command(model, tp, *texts, *new, *more)


def test_two_processes_give_the_tokens_of_one(model: Path, tmp_path: Path):
    sampling = [Sampling(do_sample=True, top_k=k, temperature=2.0, seed=3) for k in (1, 50)]
    wanted = in_one_process(model, 2, sampling)
    words = asked(model, 2, "--do-sample", "--top-k", "1,50", "--temperature", "2", "--seed", "3")
    ended = launch(tmp_path, 2, words, None, *PATIENT)
    assert ended.status == 0, ended.err
    # Process 0 alone writes: one JSON object, without a word of gloo.
    assert answered(ended.out) == wanted
    assert list(ended.logs) == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tp", "processes", "more"), [(2, 2, ()), (4, 4, ()), (4, 4, DRAWS), (4, 2, ())]
)
def test_tokens_of_processes_are_those_of_one(
    tp: int, processes: int, more: tuple[str, ...], model: Path, tmp_path: Path
):
    ended = launch(tmp_path, processes, asked(model, tp, *more), None, *PATIENT)
    assert ended.status == 0, ended.err
    sampling = Sampling(do_sample=True, top_k=20, seed=7) if more else Sampling()
    assert answered(ended.out) == in_one_process(model, 1, [sampling] * 2)


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_code")
@pytest.mark.parametrize("more", [(), DRAWS])
def test_smollm2_over_three_processes(more: tuple[str, ...], tmp_path: Path):
    ended = launch(tmp_path, 3, asked(smollm2_path(), 3, *more), None, *PATIENT)
    assert ended.status == 0, ended.err
    sampling = Sampling(do_sample=True, top_k=20, seed=7) if more else Sampling()
    assert answered(ended.out) == in_one_process(smollm2_path(), 1, [sampling] * 2)


@pytest.mark.slow
@pytest.mark.parametrize(("tp", "stages"), [(2, 1), (1, 2)])
def test_programs_and_weights_of_an_artifact(tp: int, stages: int, model: Path, tmp_path: Path):
    kept = tmp_path / "kept"
    requested = {"dtype": "f32", "tp": tp, "pp_degree": stages}
    options = EngineOptions(CompileConfig.of(**requested), max_len=128, artifact=kept)
    engine, prompts = open_engine(
        str(model), options, lambda t: [t.encode(text) for text in TEXTS], NEW, Silent()
    )
    request = GenerationRequest(NEW, engine.tokenizer.eos_ids)
    wanted = [row.tokens for row in engine.generate(prompts, request).completions]
    files = {path: path.stat().st_mtime_ns for path in kept.glob("**/*")}
    words = [*asked(model, tp), "--pp-degree", str(stages), "--artifact", str(kept)]
    ended = launch(tmp_path / "logs", 2, words, None, *PATIENT)
    assert ended.status == 0, ended.err
    assert answered(ended.out) == wanted
    # What one process has compiled is loaded.
    assert "compiling" not in ended.err + ended.logs[1]
    assert {path: path.stat().st_mtime_ns for path in kept.glob("**/*")} == files
