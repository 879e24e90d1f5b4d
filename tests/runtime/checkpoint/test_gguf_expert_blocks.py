"""GGUF's blocks of experts and of parts of fused layers stay narrow, with the same meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import Array
from graphgen.ir import dtype
from graphgen.models import build
from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint
from graphgen.runtime.checkpoint.gguf_stored_blocks import GgufBlocks
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES
from graphgen.runtime.checkpoint.open_checkpoint import as_stored, open_checkpoint
from tests.oracles.families import ORACLES
from tests.oracles.gguf_models import write_model
from tests.oracles.sessions import open_session, session_of
from tests.runtime.checkpoint.test_gguf_blocks import blocks
from tests.runtime.checkpoint.test_quantized_checkpoints import logical, prefill

SIZES = {"hidden_size": 64, "intermediate_size": 96}
WIDE = {"hidden_size": 256, "moe_intermediate_size": 256, "head_dim": 16}
# Family, its sizes, the kind of each stored layer, and the numbers of a weight that is kept.
CASES: list[tuple[str, dict[str, Any], dict[str, str], str, tuple[int, ...]]] = [
    (
        "gpt_oss",
        {**SIZES, "head_dim": 16, "swiglu_limit": 7.0},
        {"exps": "MXFP4", "attn": "Q8_0"},
        "model.layers.1.mlp.experts.up_proj.weight_blocks",
        (5, 96, 2, 16),
    ),
    (
        "qwen3_moe",
        WIDE,
        {"ffn_up_exps": "Q4_K", "ffn_gate_exps": "Q4_1", "ffn_down_exps": "Q8_0", "attn": "Q4_0"},
        "model.layers.1.mlp.experts.up_proj.qs",
        (5, 256, 4, 32),
    ),
    (
        "phi3",
        SIZES,
        {"attn_qkv": "Q8_0", "ffn": "Q4_0"},
        "model.layers.0.mlp.up_proj.qs",
        (96, 2, 16),
    ),
]


def write(path: Path, family: str, sizes: dict[str, Any], kinds: dict[str, str]) -> None:
    """A model whose layers are of these kinds, by parts of their names."""

    def stored(name: str, values: Array) -> tuple[Array, GGMLQuantizationType | None]:
        found = [kind for part, kind in kinds.items() if part in name]
        if not found or not name.endswith(".weight") or values.ndim < 2:
            return np.ascontiguousarray(values, np.float32), None
        kind, columns = GGMLQuantizationType[found[0]], values.shape[-1]
        if kind is not GGMLQuantizationType.Q4_K:
            return quantize(np.ascontiguousarray(values, np.float32), kind), kind
        # The package does not quantize to it.
        made = blocks(found[0], values.size // columns, columns, 3)
        return made.reshape(*values.shape[:-1], -1), kind

    write_model(ORACLES[family].model(initializer_range=0.1, **sizes), path, stored=stored)


@pytest.mark.parametrize(("family", "sizes", "kinds", "kept", "shape"), CASES)
def test_blocks_of_stacks_and_of_parts_mean_the_dequantized_ones(
    family: str,
    sizes: dict[str, Any],
    kinds: dict[str, str],
    kept: str,
    shape: tuple[int, ...],
    tmp_path: Path,
):
    write(tmp_path / "m.gguf", family, sizes, kinds)
    checkpoint = GgufCheckpoint(tmp_path / "m.gguf")
    narrow = GgufBlocks(checkpoint)
    module = logical(narrow)
    assert module.interface[kept].logical.dims == shape
    for name, info in narrow.tensors().items():
        array = narrow.read(name)
        assert (array.shape, array.dtype) == (info.shape, NUMPY_DTYPES[info.dtype]), name
    wanted = prefill(build(checkpoint.config, dtype("f32")), checkpoint.read)
    ours = prefill(module, narrow.read)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=2e-6 * np.abs(wanted).max())


def test_a_program_multiplies_four_bits_of_experts(tmp_path: Path):
    """In one and the same file experts in MXFP4, and attention in 8 bits."""
    family, sizes, kinds, *_ = CASES[0]
    path = tmp_path / "m.gguf"
    write(path, family, sizes, kinds)
    config = CompileConfig(dtype="f32").serving(batch=2, max_len=16)
    wide = open_session(path, config)
    narrow = session_of(as_stored(open_checkpoint(path), keep=True), config)
    args = [x for function in narrow.module.programs() for x in function.args]
    experts = {x.dtype.name for x in args if ".experts." in (x.name or "") and x.type.rank > 2}
    assert experts == {"f4e2m1fn", "f8e8m0fnu"}
    assert "s8" in {x.dtype.name for x in args if "q_proj" in (x.name or "")}
    tokens = [[3, 1, 4, 1, 5], [9, 2, 6]]
    np.testing.assert_allclose(narrow.prefill(tokens), wide.prefill(tokens), rtol=0, atol=1e-4)
    np.testing.assert_allclose(narrow.decode([7, 8]), wide.decode([7, 8]), rtol=0, atol=1e-4)
