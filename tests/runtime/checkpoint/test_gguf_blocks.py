"""GGUF's weights kept in their blocks mean what the gguf package makes of them."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Role, dtype
from graphgen.models import build
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.runtime.artifact import open_artifact
from graphgen.runtime.aws_config.model_checks import stored_quantization
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint
from graphgen.runtime.checkpoint.gguf_stored_blocks import GgufBlocks
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES
from graphgen.runtime.checkpoint.open_checkpoint import as_stored, open_checkpoint
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.small_gguf import (
    HIDDEN,
    LAYERS,
    small_metadata,
    small_weights,
    to_gguf,
    write_gguf,
)
from tests.runtime.checkpoint.test_quantized_checkpoints import logical, prefill

# What of a block is f16: a scale, and of some kinds a smallest number.
HALVES = {"Q8_0": 1, "Q4_0": 1, "Q4_1": 2, "Q4_K": 2, "Q6_K": 0}
FACTOR = 8


def blocks(kind: str, rows: int, columns: int, seed: int) -> Array:
    """Random bytes of a kind, with scales of ordinary size; some of them are 0."""
    rng = np.random.default_rng([seed, rows, columns])
    size, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    made = rng.integers(0, 256, (rows, columns // size, nbytes), np.uint8)
    for index in range(HALVES[kind]):
        scale = rng.uniform(-0.02, 0.02, made.shape[:2]).astype(np.float16)
        scale[::3, 0] = 0 if index == 0 else 0.25
        made[..., 2 * index : 2 * index + 2] = scale[..., None].view(np.uint8)
    if kind == "Q6_K":
        scale = rng.uniform(0.0001, 0.0002, made.shape[:2]).astype(np.float16)
        made[..., -2:] = scale[..., None].view(np.uint8)
    return made.reshape(rows, -1)


def write(path: Path, *kinds: str) -> None:
    """A model whose weights of products are of these kinds in turn."""
    metadata = small_metadata()
    for key, value in metadata.items():
        if key in ("llama.embedding_length", "llama.feed_forward_length"):
            assert isinstance(value, int)
            metadata[key] = value * FACTOR
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tensors: dict[str, Array] = {}
    stored: dict[str, GGMLQuantizationType] = {}
    weights = small_weights(len(tokens), tied=False, bias=True)
    for layer in range(LAYERS):
        weights[f"model.layers.{layer}.self_attn.o_proj.bias"] = np.ones(HIDDEN, np.float32)
    for index, (name, weight) in enumerate(weights.items()):
        wide = np.tile(weight, (1,) * (weight.ndim - 1) + (FACTOR,))
        if name.endswith("_proj.weight"):
            rows = len(weight) * FACTOR
            kind = kinds[index % len(kinds)]
            own, _ = to_gguf(name, wide)
            tensors[own] = blocks(kind, rows, wide.shape[1], index)
            stored[own] = GGMLQuantizationType[kind]
        else:
            own, values = to_gguf(name, wide)
            tensors[own] = values
    write_gguf(path, metadata, tensors, kinds=stored)


def test_plans_and_graphs_keep_the_blocks(tmp_path: Path):
    path, wide = tmp_path / "m.gguf", ["--target", "trn1", "--batch", "1", "--seq", "32"]
    write(path, "Q4_0")
    sizes = [
        facts("plan", path, *wide, "--tp", "1", *more)["degrees"][0]["use"]["weights"]
        for more in ([], ["--keep-quantized"])
    ]
    assert sizes[1] < 0.65 * sizes[0]
    graph = tmp_path / "m.gg"
    done("build", path, "-o", graph, "--keep-quantized")
    assert "weight %model.layers.0.mlp.down_proj.qs : u8[256,16,16]" in graph.read_text()
    for command in (("plan", *wide), ("build", "-o", tmp_path / "none.gg")):
        what = error(command[0], "llama-3.1-8b", *command[1:], "--keep-quantized")
        assert "--keep-quantized has no effect: llama-3.1-8b has no weights" in what
    assert "no effect on a twin" in error("build", path, "--mini", "--keep-quantized")


def test_the_quantized_checkpoint_of_aws_may_be_a_file_of_blocks(tmp_path: Path):
    path = tmp_path / "m.gguf"
    write(path, "Q8_0")
    config = NeuronConfig(quantized=True, quantized_checkpoints_path=str(path))
    assert stored_quantization(config)["quant_method"] == "gguf"


@pytest.mark.parametrize(
    "kinds", [("Q8_0",), ("Q4_0",), ("Q4_1",), ("Q4_K",), ("Q4_K", "Q6_K", "Q8_0")], ids=" ".join
)
def test_weights_in_blocks_mean_the_dequantized_ones(kinds: tuple[str, ...], tmp_path: Path):
    write(tmp_path / "m.gguf", *kinds)
    checkpoint = GgufCheckpoint(tmp_path / "m.gguf")
    narrow = GgufBlocks(checkpoint)
    module = logical(narrow)
    names = {row.name for row in module.entries(Role.WEIGHT)}
    kept = [name for name in names if name.endswith("_proj.qs")]
    assert len(kept) == 14 if "Q6_K" not in kinds else 0 < len(kept) < 14
    for name, info in narrow.tensors().items():
        array = narrow.read(name)
        assert (array.shape, array.dtype) == (info.shape, NUMPY_DTYPES[info.dtype]), name
    wanted = prefill(build(checkpoint.config, dtype("f32")), checkpoint.read)
    ours = prefill(module, narrow.read)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=2e-6 * np.abs(wanted).max())


def test_a_compiled_program_reads_4_bits(tmp_path: Path):
    """No weight of a product is prepared as floats."""
    write(tmp_path / "m.gguf", "Q4_K", "Q4_0")
    module = logical(GgufBlocks(GgufCheckpoint(tmp_path / "m.gguf")))
    run_pipeline(module, parse_pipeline("default{context=[8],tokens=[16],kernels=off}"))
    held = [entry.logical for entry in module.interface.values() if entry.role is Role.PARAM]
    narrow = [type_ for type_ in held if type_.dtype.bits == 4]
    assert len(narrow) >= 8
    wide = [type_.dims for type_ in held if type_.dtype.bits > 8 and type_.rank == 2]
    assert all(rows * columns <= 256 * 8 * 3 for rows, columns in wide), wide


def test_keeping_is_refused_where_nothing_is_kept(tmp_path: Path):
    write(tmp_path / "m.gguf", "Q6_K")
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert as_stored(checkpoint, keep=False) is checkpoint
    with pytest.raises(GraphgenError, match="--keep-quantized has no effect") as caught:
        as_stored(checkpoint, keep=True)
    assert caught.value.code == "GG0705"


def test_the_flag_answers_with_4_bits(tmp_path: Path):
    write(tmp_path / "m.gguf", "Q4_1")
    model = [str(tmp_path / "m.gguf"), "--prompt", "The llama", "--max-new-tokens", "4"]
    wide = facts("generate", *model)
    narrow = facts("generate", *model, "--keep-quantized", "--artifact", str(tmp_path / "narrow"))
    assert narrow["outputs"] == wide["outputs"]
    module = open_artifact(tmp_path / "narrow").model.module
    held = {name: row.logical for name, row in module.interface.items() if "_proj" in name}
    assert held["model.layers.0.mlp.down_proj.qs"].text == "u8[256,16,16]"
    floats = [type_ for type_ in held.values() if type_.dtype.is_float]
    # Gate and up are one product: scales in the type of the file, and zero points, quotients.
    largest = [type_.dtype.name for type_ in floats if prod(type_.dims) == 2 * 512 * 256 // 32]
    assert sorted(largest) == ["f16"] * LAYERS + ["f32"] * LAYERS
    assert max(prod(type_.dims) for type_ in floats) == 2 * 512 * 256 // 32
    facts("generate", *model, "--artifact", str(tmp_path / "wide"))
    kept = error("generate", *model, "--keep-quantized", "--artifact", str(tmp_path / "wide"))
    assert "was compiled for keep_quantized False, requested True" in kept
