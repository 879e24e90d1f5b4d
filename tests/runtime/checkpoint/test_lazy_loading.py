"""Loading a quantized checkpoint holds its numbers once, and no tensor before it is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from graphgen.eval import Array
from graphgen.ir import Role, dtype
from graphgen.models import build
from tests.runtime.checkpoint.test_quantized_checkpoints import CONFIG, compressed

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys
from pathlib import Path
from graphgen.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.model import build_model
from graphgen.runtime.progress_callback import Silent
from graphgen.runtime.weights.rank_weights import put_weights, weights_of
import jax
jax.devices()
def peak():
    # Not ru_maxrss: a child begins with the largest size of its parent there.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
before = peak()
checkpoint = open_checkpoint(sys.argv[1])
settings = CompileConfig().serving(batch=1, max_len=64)
built = build_model(checkpoint.config, settings)
opened = peak()
held = put_weights(weights_of(checkpoint, built.module), Silent())
print(opened - before, peak() - opened)
"""


def write(folder: Path) -> int:
    """Random int8 weights of about 200 MB; returns the bytes of the file."""
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 12}
    config: dict[str, object] = {**CONFIG, **sizes}
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
    return (folder / "model.safetensors").stat().st_size


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_memory_is_the_file_and_a_tenth(tmp_path: Path):
    """Each tensor's pages leave the process's memory when its weight is made."""
    size = write(tmp_path)
    assert size > 180e6
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )
    opening, loading = map(int, done.stdout.split())
    assert opening < 0.5 * size
    print(opening / size, loading / size)
    assert size < loading <= 1.1 * size
