"""Perplexity: what transformers makes of the same windows, and what quantization costs.

The text is ``tests/data/lighthouse.txt``, prose written for this repository. The rows of the last
test, with ``-s``; or ``graphgen perplexity smollm2 --text tests/data/lighthouse.txt --quantized``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.exec.session import Runner
from graphgen.ir import Role, dtype
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.workload.make_workload import make_workload
from graphgen.runtime.accuracy.perplexity import Perplexity, perplexity, read_windows, surprise
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.engine import locate_checkpoint
from graphgen.runtime.progress import Silent
from graphgen.runtime.tokenizer.tokenizer import load_tokenizer
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.families import save_tokenizer
from tests.oracles.llama import all_logits, write_llama
from tests.oracles.small_gguf import CORPUS, write_small_model
from tests.oracles.smollm2 import arrays_model, smollm2_path

pytestmark = pytest.mark.usefixtures("optimized_code")

TEXT = Path(__file__).parents[2] / "data" / "lighthouse.txt"
WINDOW = 256


def test_surprise_against_torch():
    random = np.random.default_rng(0)
    logits = (random.standard_normal((9, 33)) * 20).astype(np.float32)
    tokens = random.integers(0, 33, 7).tolist()
    wanted = torch.nn.functional.cross_entropy(
        torch.tensor(logits[:6]).double(), torch.tensor(tokens[1:]), reduction="sum"
    )
    np.testing.assert_allclose(surprise(logits, tokens), float(wanted), rtol=1e-12)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt2", "bloom-560m", "gemma-3-1b"])
def test_the_last_of_every_token_is_the_last_token(name: str):
    config: Mapping[str, object] = known_shape(name)
    last, every = (
        build(config, dtype("f32"), phases=("prefill",), mini=True, every_token=all_of_them)
        for all_of_them in (False, True)
    )
    verify(every)
    (row,) = every.entries(Role.OUTPUT)
    assert row.logical.text.startswith("f32[B,S,")
    script = make_workload(last, 1)
    lengths = script.calls[0].inputs["lengths"]
    positions = script.calls[0].inputs["positions"]
    (one,), (many,) = (Runner(module, script).outcomes() for module in (last, every))
    for index, length in enumerate(lengths):
        (at,) = np.flatnonzero(positions[index] == length - 1)
        np.testing.assert_allclose(many["logits"][index, at], one["logits"][index], rtol=1e-9)


def test_windows_that_do_not_fit_are_cut_to_the_text(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    checkpoint = open_checkpoint(tmp_path / "small.gguf")
    text = " ".join(CORPUS)[:120]
    count = len(load_tokenizer(checkpoint.path).encode(text))
    whole = perplexity(checkpoint, text, 64, CompileConfig(), Silent())
    assert whole.tokens == count - math.ceil((count - 1) / min(64, count))
    halves = perplexity(checkpoint, text, 8, CompileConfig(), Silent())
    assert halves.tokens == count - math.ceil((count - 1) / 8)
    # Random weights are confidently wrong.
    assert 1 < whole.value < math.inf
    for given, window, code in (("", 8, "GG0702"), (text, 1, "GG0705"), (text, 4096, "GG0705")):
        with pytest.raises(GraphgenError) as caught:
            perplexity(checkpoint, given, window, CompileConfig(), Silent())
        assert caught.value.code == code


def test_tokens_that_are_not_the_models_are_refused(tmp_path: Path):
    write_llama(tmp_path, vocab_size=10)
    save_tokenizer(tmp_path)
    with pytest.raises(GraphgenError, match=r"the text has the token .* are 0 to 9\n") as caught:
        read_windows(open_checkpoint(tmp_path), "the cat", 8)
    assert caught.value.code == "GG0706"


def test_the_command(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    (tmp_path / "text").write_text(" ".join(CORPUS)[:120])
    given = ("perplexity", tmp_path / "small.gguf", "--text", tmp_path / "text", "--window", 8)
    plain, small = facts(*given), facts(*given, "--quantized")
    assert plain["quantization"] is None
    assert small["quantization"] == "quantize-weights"
    assert small["weight_bytes"] < plain["weight_bytes"]
    assert sum(small["weight_types"].values()) == small["weight_bytes"]
    assert (set(plain["weight_types"]), set(small["weight_types"])) == ({"f32"}, {"f32", "s8"})
    assert plain["perplexity"] != small["perplexity"]
    assert f"{plain['perplexity']:.4f}" in done(*given).stdout
    assert "GG0705" in error(*given[:3], tmp_path / "nothing")
    (tmp_path / "text").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in error(*given)


@cache
def of_smollm2(quantization: str) -> Perplexity:
    settings = CompileConfig(quantization=quantization)
    text = TEXT.read_text(encoding="utf-8")
    return perplexity(locate_checkpoint("smollm2"), text, WINDOW, settings, Silent())


@pytest.mark.slow
def test_f32_is_as_surprised_as_transformers():
    text = TEXT.read_text(encoding="utf-8")[:2500]
    tokens = load_tokenizer(smollm2_path()).encode(text)
    nats = 0.0
    for start in range(0, len(tokens) - 1, WINDOW):
        part = tokens[start : start + WINDOW]
        nats += surprise(all_logits(arrays_model(), part), part)
    ours = perplexity(
        locate_checkpoint("smollm2"),
        text,
        WINDOW,
        CompileConfig(),
        Silent(),
    )
    assert ours.tokens > 2 * WINDOW - 10
    np.testing.assert_allclose(ours.nats, nats, rtol=1e-5)


@pytest.mark.slow
def test_int8_channels_cost_less_than_one_percent():
    exact = of_smollm2("").value
    channels = of_smollm2("quantize-weights").value / exact - 1
    tensors = of_smollm2("quantize-weights{scheme=per_tensor_symmetric}").value / exact - 1
    print(
        f"\nperplexity f32 {exact:.4f}, int8 per channel {channels:+.2%}, per tensor {tensors:+.2%}"
    )
    assert abs(channels) < 0.01
    assert abs(channels) < abs(tensors) < 0.1
