"""Quantized models run: as unquantized ones whose weights were rounded beforehand, on any ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import ml_dtypes
import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Entry
from graphgen.runtime.artifact import open_artifact
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from tests.graphgen.cli.conftest import error, facts
from tests.oracles.sessions import open_session
from tests.oracles.small_gguf import write_small_model
from tests.runtime.test_tp import script, write_mini

pytestmark = pytest.mark.usefixtures("optimized_code")

INT8 = "quantize-weights"
TENSORS = "quantize-weights{scheme=per_tensor_symmetric}"
F8 = "quantize-weights{dtype=f8e4m3,scheme=per_channel_symmetric}"

Rounded = Callable[[Array], Array]


def channels(weight: Array) -> Array:
    scale = np.abs(weight).max(1, keepdims=True) / 127
    return np.rint(weight / scale) * scale


def tensors(weight: Array) -> Array:
    scale = np.abs(weight).max() / 127.5
    return np.clip(np.rint(weight / scale), -128, 127) * scale


def floats(weight: Array) -> Array:
    scale = np.abs(weight).max(1, keepdims=True) / 240
    return (weight / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale


CASES = {INT8: channels, TENSORS: tensors, F8: floats}
SOME = [pytest.param(case, marks=() if case == INT8 else pytest.mark.slow) for case in CASES]


@cache
def session(quantization: str, tp: int, rounded: Rounded | None = None) -> Session:
    def read(checkpoint: Checkpoint, row: Entry) -> Array:
        array = checkpoint.read(row.name)
        return rounded(array).astype(np.float32) if rounded and "_proj" in row.name else array

    with TemporaryDirectory() as folder:
        write_mini(Path(folder))
        return open_session(
            Path(folder),
            CompileConfig(dtype="f32", tp=tp, quantization=quantization).serving(
                batch=3, max_len=256
            ),
            read,
        )


@pytest.mark.parametrize("tp", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("quantization", CASES)
@pytest.mark.one_in(3)
def test_logits_are_those_of_weights_rounded_beforehand(quantization: str, tp: int):
    wanted = script(session("", 1, CASES[quantization]))
    plain = script(session("", 1))
    for ours, theirs, full in zip(script(session(quantization, tp)), wanted, plain, strict=True):
        seen = np.isfinite(theirs) & (theirs != 0)
        scale = np.abs(theirs[seen]).max()
        gap = np.abs(ours - theirs)[seen].max() / scale
        lost = np.abs(full - theirs)[seen].max() / scale
        # What the activations' digits leave, well below what rounding the weights takes away.
        assert gap < 1e-3
        assert lost > 5 * gap


def test_weights_in_memory_are_small():
    held = {
        name: row.physical.text
        for name, row in session(INT8, 1).module.interface.items()
        if ".0.mlp" in name and "prepared" not in name and "weight" in name
    }
    assert "model.layers.0.mlp.gate_proj-up_proj.weight.quantized" in held
    assert held["model.layers.0.mlp.down_proj.weight.quantized"].startswith("s8[")


def start(model: Path, artifact: Path | None = None, quantization: str | None = None) -> Engine:
    options = EngineOptions(
        CompileConfig.of(quantization=quantization), max_len=64, artifact=artifact
    )
    return open_engine(
        str(model), options, lambda tokenizer: [tokenizer.encode("The llama")], 8, Silent()
    )[0]


def answer(engine: Engine) -> list[int]:
    prompt = engine.tokenizer.encode("The llama")
    return engine.generate([prompt], GenerationRequest(8)).completions[0].tokens


@pytest.mark.parametrize("quantization", SOME)
def test_an_artifact_carries_its_quantization(tmp_path: Path, quantization: str):
    write_small_model(tmp_path / "small.gguf")
    made = start(tmp_path / "small.gguf", tmp_path / "artifact", quantization)
    wanted = answer(made)
    again = start(tmp_path / "artifact")
    assert again.from_artifact
    assert answer(again) == wanted == answer(start(tmp_path / "small.gguf", None, quantization))
    assert open_artifact(tmp_path / "artifact").model.settings.quantization == quantization
    with pytest.raises(GraphgenError, match="was compiled for quantization"):
        start(tmp_path / "small.gguf", tmp_path / "artifact", "quantize-weights{skip=[]}")


QUANTIZED = ("--quantized", "--quantization-type", "per_tensor_symmetric")


def test_the_command_knows_the_names_of_aws(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    model = str(tmp_path / "small.gguf")
    told = [*QUANTIZED, "--quantization-dtype", "int8", "--modules-to-not-convert", "layers.0"]
    out = facts(
        "generate", model, "--prompt", "The llama", "--max-new-tokens", "2", "--max-len", "64",
        "--artifact", str(tmp_path / "artifact"), *told,
    )  # fmt: skip
    assert len(out["outputs"][0]["tokens"]) == 2
    settings = open_artifact(tmp_path / "artifact").model.settings
    assert settings.quantization == (
        "quantize-weights{scheme=per_tensor_symmetric,skip=[layers.0]}"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quantization-type", "per_tensor_symmetric"], "--quantization-type has no effect"),
        (["--quantization-dtype", "int8"], "--quantization-dtype has no effect"),
        (["--modules-to-not-convert", "mlp"], "--modules-to-not-convert has no effect"),
        (["--quantized", "--quantization-dtype", "int2"], "quantization dtype int2 is unknown"),
        (["--quantized", "--quantization-type", "blockwise_symmetric"], "is unknown"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "shard-weights"])
def test_options_without_effect_are_refused(command: str, options: list[str], message: str):
    # In NxD Inference such combinations pass without a word.
    given = ["--prompt", "x"] if command == "generate" else ["-o", "nowhere"]
    assert message in error(command, "smollm2", *given, *options)
