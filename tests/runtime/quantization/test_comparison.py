"""Tables of schemes: against torch's own divergence, and the numbers of ``perplexity``."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import Array
from graphgen.ir import Role, dtype
from graphgen.models import build
from graphgen.passes.quantization.schemes import scheme_of_text
from graphgen.runtime.accuracy.perplexity import perplexity, read_windows
from graphgen.runtime.checkpoint.interfaces import TensorInfo
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.progress import Report, Silent
from graphgen.runtime.quantization.calibration import gram_matrices
from graphgen.runtime.quantization.comparison import (
    compare_schemes,
    compared_models,
    kl_divergence,
)
from graphgen.runtime.quantization.quantizable import quantizable_stacks, quantizable_weights
from graphgen.runtime.quantization.rounding import round_trip
from graphgen.runtime.quantization.sensitivity import sensitivity
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.small_gguf import CORPUS, write_small_model
from tests.runtime.checkpoint.test_quantized_checkpoints import CONFIG

TEXT = " ".join(CORPUS)[:120]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.gguf"
    write_small_model(path)
    return path


def test_divergence_against_torch():
    random = np.random.default_rng(0)
    p, q = (random.standard_normal((5, 33)).astype(np.float32) * 4 for _ in range(2))
    wanted = torch.nn.functional.kl_div(
        torch.log_softmax(torch.tensor(q).double(), -1),
        torch.log_softmax(torch.tensor(p).double(), -1),
        log_target=True, reduction="sum",
    )  # fmt: skip
    np.testing.assert_allclose(kl_divergence(p, q), float(wanted), rtol=1e-12)
    assert kl_divergence(p, p) == 0


def test_a_row_is_what_perplexity_says_alone(small: Path):
    checkpoint = open_checkpoint(small)
    windows = read_windows(checkpoint, TEXT, 16)
    models = compared_models("f32,bf16,int8,int8:per_tensor_symmetric", CompileConfig())
    scores = compare_schemes(checkpoint, windows, models, Silent())
    assert [score.name for score in scores] == [model.name for model in models]
    exact, half, channels, tensors = scores
    assert (exact.divergence, exact.agreement) == (0, 1)
    assert 0 < half.divergence < channels.divergence < tensors.divergence
    assert half.weight_bytes * 2 == exact.weight_bytes > channels.weight_bytes
    for score, model in zip(scores, models, strict=True):
        alone = perplexity(checkpoint, TEXT, 16, model.settings, Silent())
        np.testing.assert_allclose(score.perplexity, alone.value, rtol=1e-6)
        assert score.weight_bytes == alone.weight_bytes


def test_one_part_at_a_time(small: Path):
    checkpoint = open_checkpoint(small)
    windows = read_windows(checkpoint, TEXT, 16)
    scheme = scheme_of_text("int4:group:16")
    layers = sensitivity(checkpoint, windows, scheme, "layer", Silent())
    assert sorted(cost.name for cost in layers) == ["model.layers.0", "model.layers.1"]
    assert layers[0].divergence > layers[1].divergence > 0
    modules = sensitivity(checkpoint, windows, scheme, "module", Silent())
    assert len(modules) == 14
    assert sum(cost.weights for cost in modules) == sum(cost.weights for cost in layers)
    # Least of all is lost by what is rounded finely.
    fine = sensitivity(checkpoint, windows, scheme_of_text("int8"), "layer", Silent())
    assert fine[0].divergence < layers[1].divergence


def test_rounded_rows_cost_more_than_rounded_weights(small: Path):
    checkpoint = open_checkpoint(small)
    windows = read_windows(checkpoint, TEXT, 16)
    scheme = scheme_of_text("int8")
    alone = sensitivity(checkpoint, windows, scheme, "layer", Silent())
    seen = Recorded()
    both = sensitivity(checkpoint, windows, scheme, "layer", seen, "dynamic")
    assert seen.tasks["quantizing one part after the other"] == [0.5, 1.0]
    assert {cost.name: cost.weights for cost in both} == {c.name: c.weights for c in alone}
    weights = {cost.name: cost.divergence for cost in alone}
    assert all(cost.divergence > weights[cost.name] > 0 for cost in both)


class Recorded:
    """The fractions of each task."""

    def __init__(self) -> None:
        self.tasks: dict[str, list[float]] = {}

    @contextmanager
    def task(self, title: str) -> Generator[Report]:
        yield self.tasks.setdefault(title, []).append


class HeldCheckpoint:
    """Tensors in memory."""

    path = Path("held")

    def __init__(self, config: Mapping[str, object], held: Mapping[str, Array]) -> None:
        self.config, self._held = config, held

    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name: TensorInfo(name, array.shape, "f32") for name, array in self._held.items()}

    def read(self, name: str) -> Array:
        return self._held[name]

    def fingerprint(self) -> str:
        return "held"


def test_experts_are_parts_too():
    mixture = {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    config: dict[str, object] = {**CONFIG, **mixture}
    stacks = quantizable_stacks(config, ())
    assert len(stacks) == 2 * 3
    shapes = sorted((stack.shape, stack.contracted) for stack in stacks.values())
    assert shapes == 2 * [((4, 32, 48), 2)] + 4 * [((4, 48, 32), 2)]
    rng = np.random.default_rng(2)
    rows = build(config, dtype("f32")).entries(Role.WEIGHT)
    held = {row.name: rng.standard_normal(row.logical.dims, np.float32) for row in rows}
    windows, int4 = [[3, 1, 4, 1, 5, 9], [2, 6, 5, 3]], scheme_of_text("int4:group:16")
    costs = sensitivity(HeldCheckpoint(config, held), windows, int4, "module", Silent())
    found = {cost.name: cost for cost in costs}
    for name, stack in stacks.items():
        assert found[stack.module].weights == held[name].size
        assert found[stack.module].divergence > 0
    both = sensitivity(
        HeldCheckpoint(config, held), windows, scheme_of_text("int8"), "layer", Silent(), "dynamic"
    )
    assert sum(c.weights for c in both) == sum(c.weights for c in costs)
    scheme = scheme_of_text("int8")
    stack = np.random.default_rng(1).standard_normal((4, 32, 48), np.float32)
    rounded = round_trip(stack, 2, scheme)
    for made, matrix in zip(rounded, stack, strict=True):
        np.testing.assert_array_equal(made, round_trip(matrix, 1, scheme))
    assert 0 < np.abs(rounded - stack).max() < np.abs(stack).max() / 127


def test_grams_are_those_of_the_embedding(small: Path):
    # Of the first layer the inputs are known: the normed embeddings of the tokens.
    checkpoint = open_checkpoint(small)
    windows = [window for window in read_windows(checkpoint, TEXT, 16) if len(window) == 16]
    weights = quantizable_weights(checkpoint.config, ())
    assert len(weights) == 14
    ((part, grams),) = gram_matrices(checkpoint, windows, weights, Silent())
    assert part == list(weights)
    assert grams.keys() == weights.keys()
    table = checkpoint.read("model.embed_tokens.weight").astype(np.float64)
    x = table[np.concatenate([np.asarray(window) for window in windows])]
    x /= np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    x *= checkpoint.read("model.layers.0.input_layernorm.weight")
    for name in "qkv":
        found = grams[f"model.layers.0.self_attn.{name}_proj.weight"]
        np.testing.assert_allclose(found, x.T @ x, rtol=1e-4, atol=1e-4)


def test_the_commands(small: Path, tmp_path: Path):
    (tmp_path / "text").write_text(TEXT)
    given = ("perplexity", small, "--text", tmp_path / "text", "--window", 16)
    picture = tmp_path / "out.svg"
    found = facts(*given, "--compare", f"f32,int8,{small}", "--plot", picture)
    names = [row["name"] for row in found["schemes"]]
    assert names == ["f32", "int8", str(small)]
    assert found["schemes"][2] == {**found["schemes"][0], "name": str(small)}
    assert "int8" in picture.read_text()
    rows = facts(*given, "--sensitivity", "int8+dynamic")
    assert (rows["scheme"], len(rows["parts"])) == ("int8:per_channel_symmetric+dynamic", 2)
    ranked = facts(*given, "--sensitivity", "int8", "--each", "module")
    costs = [row["kl_to_f32"] for row in ranked["parts"]]
    assert costs == sorted(costs, reverse=True)
    shown = done(*given, "--sensitivity", "int8", "--plot", picture).stdout
    assert "model.layers.1" in shown
    assert "model.layers.1" in picture.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--compare", "f32,int9"], "--compare int9: neither"),
        (["--compare", "f32", "--sensitivity", "int8"], "exclude each other"),
        (["--compare", "f32", "--quantized"], "--quantized has no effect"),
        (["--sensitivity", "int8", "--tp", "2"], "--tp has no effect"),
        (["--sensitivity", "int7"], "int7 is unknown"),
        (["--sensitivity", "int8+static"], "can be dynamic, and"),
        (["--sensitivity", "int4+dynamic"], "can be dynamic, and"),
        (["--sensitivity", "f8e4m3+blocks"], "an integer is multiplied by in blocks"),
        (["--each", "module"], "--each has no effect"),
        (["--plot", "x.svg"], "--plot needs several numbers"),
    ],
)
def test_options_without_effect_are_refused(
    small: Path, tmp_path: Path, options: list[str], message: str
):
    (tmp_path / "text").write_text(TEXT)
    assert message in error("perplexity", small, "--text", tmp_path / "text", *options)
