"""Two ranks on virtual devices compute what one computes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role, dtype
from graphgen.models import build, read_model_config
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.session.session import Logits, Session
from tests.oracles.sessions import open_session
from tests.oracles.small_gguf import write_small_model

FULL: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 49152,
    "max_position_embeddings": 512,
}
ROWS = 3


def write_mini(folder: Path, *, vocab: int = 258, **changes: object) -> None:
    """The mini twin with random weights, as a checkpoint folder."""
    config = read_model_config({**FULL, **changes}).mini()
    settings = {**config.to_hf(), "vocab_size": vocab}
    rng = np.random.default_rng(5)
    module = build(settings, dtype("f32"))
    weights = {
        row.name: 0.1 * rng.standard_normal(row.logical.dims).astype(np.float32)
        for row in module.entries(Role.WEIGHT)
    }
    for name, array in weights.items():
        if name.endswith("norm.weight"):
            array += 1
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(weights, folder / "model.safetensors")


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
}


@cache
def mini_session(variant: str, element: str, tp: int) -> Session:
    with TemporaryDirectory() as folder:
        write_mini(Path(folder), **VARIANTS[variant])
        return open_session(
            Path(folder), CompileConfig(dtype=element, tp=tp).serving(batch=ROWS, max_len=256)
        )


def script(session: Session) -> list[Logits]:
    """Ragged prefill, decode steps with an idle row, another prompt in it, a bucket boundary."""
    rng = np.random.default_rng(9)
    prompts = [rng.integers(0, 257, size).tolist() for size in (126, 1, 40)]
    session.reset()
    everything = [session.prefill(prompts, "left")]
    idle = [True, False, True]
    everything += [session.decode(rng.integers(0, 257, ROWS).tolist(), idle) for _ in range(3)]
    everything.append(session.prefill([[], prompts[2], []]))
    everything += [session.decode(rng.integers(0, 257, ROWS).tolist()) for _ in range(3)]
    active = [[0, 1, 2], *[[0, 2]] * 3, [1], *[[0, 1, 2]] * 3]
    return [logits[rows] for logits, rows in zip(everything, active, strict=True)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_f32_logits_of_two_ranks_are_those_of_one(variant: str):
    one, two = (script(mini_session(variant, "f32", tp)) for tp in (1, 2))
    for ours, wanted in zip(two, one, strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-5, rtol=0)
        assert ours.argmax(-1).tolist() == wanted.argmax(-1).tolist()


def test_bf16_logits_of_two_ranks_are_as_near_to_f32_as_those_of_one():
    exact = np.concatenate(script(mini_session("plain", "f32", 1)))
    one, two = (np.concatenate(script(mini_session("plain", "bf16", tp))) for tp in (1, 2))
    # Rounded weights are most of the distance; a missing part of a sum would be far more.
    assert np.abs(one - exact).max() < 0.1 * np.std(exact)
    assert np.sqrt(np.mean((two - exact) ** 2)) <= 1.25 * np.sqrt(np.mean((one - exact) ** 2))


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_each_rank_holds_half_of_the_caches_and_idle_rows_keep_theirs(element: str):
    session = mini_session("plain", element, 2)
    session.reset()
    session.prefill([[1, 2, 3], [4, 5], [6]])
    names = [entry.name for entry in session.module.entries(Role.STATE)]
    before = {name: np.asarray(session.state(name)) for name in names}
    one = mini_session("plain", element, 1)
    for name, cache_ in before.items():
        rows, slots, heads, size = one.module.interface[name].physical.dims
        # The ranks are stacked along the rows.
        assert cache_.shape == (2 * rows, slots, heads // 2, size)
        assert cache_.any()
    session.decode([7, 7, 7], [True, False, True])
    for name, cache_ in before.items():
        after = np.asarray(session.state(name))
        for rank in range(2):
            row = rank * ROWS + 1
            np.testing.assert_array_equal(after[row], cache_[row])
            assert (after[row + 1] != cache_[row + 1]).any()


def opened(path: Path, options: EngineOptions) -> tuple[Engine, list[list[int]]]:
    texts = ["The llama said", "It's 2024", "12 tokens: don't panic"]
    return open_engine(
        str(path), options, lambda t: [t.encode(text) for text in texts], 30, Silent()
    )


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_engine_and_artifact_give_the_tokens_of_one_rank(element: str, tmp_path: Path):
    model = tmp_path / "small.gguf"
    write_small_model(model, {"llama.context_length": 512}, tied=False)
    texts: list[list[list[int]]] = []
    kept = tmp_path / "artifact"
    for tp, artifact in ((1, None), (2, None), (2, kept), (2, kept)):
        engine, prompts = opened(
            model,
            EngineOptions(
                CompileConfig.of(dtype=element, tp=tp),
                max_len=128,
                artifact=artifact,
            ),
        )
        done = engine.generate(prompts, GenerationRequest(30)).completions
        texts.append([completion.tokens for completion in done])
        assert engine.model.module.ranks == tp
    assert engine.from_artifact
    files = sorted(file.name for file in (kept / "weights").iterdir())
    assert files == [f"tp{rank}_sharded_checkpoint.safetensors" for rank in range(2)]
    assert texts[1] == texts[2] == texts[3]
    # 16-bit sums of two ranks are rounded in another order: near-ties may fork.
    assert texts[1] == texts[0] or element == "bf16"


@pytest.mark.parametrize("tp", [1, 2, 3])
def test_programs_that_choose_give_the_tokens_of_logits(tp: int, tmp_path: Path):
    # 258 tokens divide over two and three ranks, 257 over neither.
    write_mini(tmp_path, vocab=257 + tp % 2)
    prompts = [[1, 2, 3], [4] * 20, [256, 0]]
    wanted, _ = generate(
        open_session(tmp_path, CompileConfig(dtype="f32").serving(batch=ROWS, max_len=64)),
        prompts,
        GenerationRequest(30),
    )
    session = open_session(
        tmp_path,
        CompileConfig(dtype="f32", tp=tp, sampling="on-device-sampling").serving(
            batch=ROWS, max_len=64
        ),
    )
    assert session.chooses
    found, _ = generate(session, prompts, GenerationRequest(30))
    assert [one.tokens for one in found] == [one.tokens for one in wanted]
    for function in session.module.programs():
        sizes = [op.result.type.nbytes for op in function.ops if op.name == "all_gather"]
        # One logit and its place for each row and rank.
        assert sizes == [4 * ROWS * tp] * (2 if tp > 1 else 0)
    with pytest.raises(GraphgenError) as caught:
        generate(session, prompts, GenerationRequest(30, sampling=Sampling(do_sample=True)))
    assert caught.value.code == "GG0705"
