"""Loading a quantized checkpoint holds its numbers once, and no tensor before it is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from safetensors.numpy import save_file

from graphgen.eval import Array
from graphgen.ir import Role, dtype
from graphgen.models import build
from tests.oracles.small_gguf import small_metadata, to_gguf, write_gguf
from tests.runtime.checkpoint.test_quantized_checkpoints import CONFIG, compressed

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
from pathlib import Path
from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import as_stored, open_checkpoint
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.weights.rank_weights import put_weights, weight_bytes, weights_of
import jax
jax.devices()
def peak():
    # Not ru_maxrss: a child begins with the largest size of its parent there.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
before = peak()
checkpoint = as_stored(open_checkpoint(sys.argv[1]), keep=sys.argv[1].endswith("gguf"))
settings = CompileConfig().serving(batch=1, max_len=64)
built = build_model(checkpoint.config, settings)
opened = peak()
held = put_weights(weights_of(checkpoint, built.module), Silent())
print(opened - before, peak() - opened, weight_bytes(built.module))
"""
SIZES = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 20}


def write_int8(folder: Path) -> Path:
    """A folder with random int8 weights of about 130 MB."""
    config: dict[str, object] = {**CONFIG, **SIZES}
    rng = np.random.default_rng(1)
    tensors: dict[str, Array] = {}
    for row in build(config, dtype("f32")).entries(Role.WEIGHT):
        dims = row.logical.dims
        if "_proj" in row.name:
            base = row.name.removesuffix(".weight")
            tensors[row.name] = rng.integers(-127, 128, dims, np.int8)
            tensors[f"{base}.weight_scale"] = np.full((dims[0], 1), 0.01, np.float32)
        else:
            tensors[row.name] = np.ones(dims, np.float32)
    stated = compressed("int-quantized", num_bits=8, type="int", strategy="channel")
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": stated}))
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_gptq(folder: Path) -> Path:
    """A folder with random 4-bit weights of about 100 MB."""
    config: dict[str, object] = {**CONFIG, **SIZES, "num_hidden_layers": 32}
    rng = np.random.default_rng(1)
    tensors: dict[str, Array] = {}
    for row in build(config, dtype("f32")).entries(Role.WEIGHT):
        dims = row.logical.dims
        if "_proj" not in row.name:
            tensors[row.name] = np.ones(dims, np.float32)
            continue
        base, (rows, columns) = row.name.removesuffix(".weight"), dims
        for last, shape in (
            ("qweight", (columns // 8, rows)),
            ("qzeros", (columns // 128, rows // 8)),
        ):
            tensors[f"{base}.{last}"] = rng.integers(0, 1 << 30, shape, np.int32)
        tensors[f"{base}.scales"] = np.full((columns // 128, rows), 0.01, np.float16)
    stated = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": stated}))
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_q8(folder: Path) -> Path:
    """A GGUF file with random weights in Q8_0 of about 130 MB."""
    metadata = {
        **small_metadata(),
        "llama.embedding_length": SIZES["hidden_size"],
        "llama.feed_forward_length": SIZES["intermediate_size"],
        "llama.block_count": SIZES["num_hidden_layers"],
    }
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    config: dict[str, object] = {**CONFIG, **SIZES, "vocab_size": len(tokens)}
    rng = np.random.default_rng(1)
    tensors: dict[str, Array] = {}
    kinds: dict[str, GGMLQuantizationType] = {}
    for row in build(config, dtype("f32")).entries(Role.WEIGHT):
        rows, *columns = row.logical.dims
        name, values = to_gguf(row.name, np.ones(row.logical.dims, np.float32))
        if "_proj" in row.name:
            blocks = rng.integers(-127, 128, (rows, columns[0] // 32, 34), np.int8)
            blocks[..., :2] = np.full(1, 0.01, np.float16).view(np.int8)
            values = blocks.reshape(rows, -1).view(np.uint8)
            kinds[name] = GGMLQuantizationType.Q8_0
        tensors[name] = values
    return write_gguf(folder / "m.gguf", metadata, tensors, kinds=kinds)


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_int8, write_q8, write_gptq])
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_memory_is_the_file_and_a_tenth(write: Callable[[Path], Path], tmp_path: Path):
    """Each tensor's pages leave the process's memory when its weight is made.

    Programs hold scales in the file's type, and zero points in 16 bits, of which a file has 4.
    """
    model = write(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert size > 80e6
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(model)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )
    opening, loading, held = map(int, done.stdout.split())
    print(f"file {size}, opening {opening / size:.3f}, peak {loading / size:.3f} of it")
    assert opening < 0.5 * size
    assert held <= 1.04 * size
    assert held <= loading <= 1.1 * size
