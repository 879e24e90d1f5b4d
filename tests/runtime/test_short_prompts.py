"""Short prompts have programs of their own on the CPU, and the tokens that longer ones give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphgen.config.bucket_ladder import powers
from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.buckets import with_short_prompts
from tests.oracles.small_gguf import write_small_model

LENGTHS = (1, 16, 17, 40, 64, 65, 128)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("short") / "small.gguf"
    write_small_model(path, {"llama.context_length": 256})
    return path


def opened(model: Path, length: int = 1, **options: object) -> Engine:
    """The model for prompts of a length, with sequences of up to 256 tokens unless given."""
    asked = EngineOptions(**{"max_len": 256, **options})  # pyright: ignore[reportArgumentType]
    return open_engine(str(model), asked, lambda _: [[2] * length], 1, Silent())[0]


def test_a_model_gets_the_bucket_of_its_prompts_and_a_served_one_gets_all(
    model: Path, tmp_path: Path
):
    def buckets(length: int = 1, **options: object) -> list[int]:
        return opened(model, length, **options).session.table.buckets("prefill")

    assert buckets(17) == [32, 128, 256]
    every = [16, 32, 64, 128, 256]
    kept = tmp_path / "kept"
    assert buckets(served=True) == buckets(artifact=kept) == every
    # What an artifact has been compiled for stays.
    assert buckets(40, artifact=kept) == every
    assert buckets(bucketing=False) == [256]


def test_tokens_do_not_depend_on_the_bucket(model: Path):
    short = opened(model, served=True)
    long = opened(model, context=(128, 256))
    assert long.session.table.buckets("prefill") == [128, 256]
    request = GenerationRequest(6, frozenset())
    for length in LENGTHS:
        prompt = [(7 * place + length) % 300 + 2 for place in range(length)]
        made = [engine.generate([prompt], request).completions[0] for engine in (short, long)]
        assert made[0].tokens == made[1].tokens
    used = [report.name for report in short.programs.reports if "prefill" in report.name]
    assert used == [f"prefill.b1.s{size}" for size in powers(128, 16)]


def test_devices_and_divided_prompts_keep_their_ladder():
    plain = CompileConfig().serving(batch=1, max_len=512)
    assert with_short_prompts(plain).context == powers(512, 16)
    with_one = [with_short_prompts(plain, longest).context[0] for longest in (16, 17, 64, 65)]
    assert with_one == [16, 32, 64, 128]
    for kept in (
        replace(plain, target="trn2"),
        replace(plain, tp=2, cp_degree=2),
        replace(plain, rules=("prefill:sequence:tp",)),
        replace(plain, capacity_factor=1.0),
        CompileConfig().serving(batch=1, max_len=100),
    ):
        assert with_short_prompts(kept) == kept
