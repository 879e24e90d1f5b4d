"""The element type a checkpoint declares, and every way GGUF stores tensors."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf import GGUFReader
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from safetensors.numpy import save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.dtype_policy import chosen_types, declared_dtype
from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.progress import Silent
from tests.oracles.small_gguf import small_metadata, write_gguf, write_small_model

# Those that only products of a running model have, never a file's weights, or that the gguf package
# has no rule for.
_NOT_READ = ("Q8_1", "Q8_K", "Q1_0")
_PLAIN = ("F32", "F16", "F64", "I8", "I16", "I32", "I64")
QUANTIZED = [kind for kind in GGMLQuantizationType if kind.name not in (*_NOT_READ, *_PLAIN)]


def test_all_types_are_named():
    assert len(QUANTIZED) >= 23
    assert {"Q4_K", "IQ1_M", "TQ1_0", "MXFP4", "BF16"} <= {kind.name for kind in QUANTIZED}


@pytest.mark.parametrize("kind", QUANTIZED, ids=lambda kind: kind.name)
def test_a_quantized_tensor_is_what_the_gguf_package_makes_of_it(
    tmp_path: Path, kind: GGMLQuantizationType
):
    block, size = GGML_QUANT_SIZES[kind]
    rows = np.random.default_rng(1).integers(0, 256, (5, 3 * size), np.uint8)
    path = write_gguf(tmp_path / "q.gguf", small_metadata(), {"w": rows}, kinds={"w": kind})
    checkpoint = GgufCheckpoint(path)
    (theirs,) = GGUFReader(path).tensors
    with np.errstate(all="ignore"):
        wanted = dequantize(theirs.data, theirs.tensor_type)
    got = checkpoint.read("w")
    assert got.shape == checkpoint.tensors()["w"].shape == (5, 3 * block) == wanted.shape
    # Bit by bit: any byte is some scale, also one that is not a number.
    assert got.astype(np.float32).tobytes() == wanted.tobytes()
    assert np.isfinite(wanted).any()


def folder(path: Path, config: dict[str, object]) -> Checkpoint:
    (path / "config.json").write_text(json.dumps(config))
    kinds = {"a": np.float32, "b": ml_dtypes.bfloat16, "c": np.int64}
    tensors = {name: np.zeros(3 + ord(name), kind) for name, kind in kinds.items()}
    save_file(tensors, path / "model.safetensors")
    return open_checkpoint(path)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"torch_dtype": "torch.float16"}, "f16"),
        ({"dtype": "float32", "torch_dtype": "float16"}, "f32"),
        ({"dtype": None, "torch_dtype": "float16"}, "f16"),
        # 100 elements of 4 bytes are more than 101 of 2; integers do not count.
        ({}, "f32"),
    ],
)
def test_what_a_checkpoint_declares(tmp_path: Path, config: dict[str, object], wanted: str):
    checkpoint = folder(tmp_path, config)
    others = tuple(
        f"{kind}:{name}" for name, kind in (("a", "f32"), ("b", "bf16")) if kind != wanted
    )
    stated = bool(config.get("dtype") or config.get("torch_dtype"))
    types = {"dtype": wanted, "weight_dtypes": others if stated else ()}
    assert declared_dtype(checkpoint) == wanted
    assert chosen_types("as-declared", checkpoint) == types
    assert chosen_types("f16", checkpoint) == {"dtype": "f16"}


@pytest.mark.parametrize("value", ["float64", "auto", 3])
def test_a_type_that_models_are_not_run_in(tmp_path: Path, value: object):
    with pytest.raises(GraphgenError) as caught:
        declared_dtype(folder(tmp_path, {"torch_dtype": value}))
    assert str(caught.value) == (
        f"error[GG0502]: the checkpoint declares torch_dtype {value!r}; models run in float32, "
        "bfloat16, float16\n  help: choose one: --dtype f32, bf16 or f16"
    )


def test_gguf_declares_by_what_it_holds(tmp_path: Path):
    values = np.ones((4, 64), np.float32)
    half = {"a": values.astype(np.float16), "b": values[:1]}
    path = write_gguf(tmp_path / "half.gguf", small_metadata(), half)
    assert declared_dtype(GgufCheckpoint(path)) == "f16"


def test_the_engine_runs_in_what_is_declared(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    engine, _ = open_engine(
        str(tmp_path / "small.gguf"),
        EngineOptions(CompileConfig.of(dtype="as-declared"), artifact=tmp_path / "kept"),
        lambda tokenizer: [tokenizer.encode("The llama")],
        2,
        Silent(),
    )
    assert engine.model.settings.dtype == "f32"
    with pytest.raises(GraphgenError, match="is about a checkpoint, and the model is an artifact"):
        open_engine(
            str(tmp_path / "kept"),
            EngineOptions(CompileConfig.of(dtype="as-declared")),
            lambda tokenizer: [[1]],
            2,
            Silent(),
        )
