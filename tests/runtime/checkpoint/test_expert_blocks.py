"""GPT-OSS's weights of experts in MXFP4: read as they are, with the meaning transformers has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate
from graphgen.ir import Function, Module
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.quantized.quantized_view import read_quantized
from graphgen.runtime.checkpoint.validate_tensors import check_tensors
from graphgen.text import parse

EXPERTS, HIDDEN, WIDE = 3, 64, 48
CONFIG = {
    "model_type": "gpt_oss",
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
    },
}
UP, BIAS = "model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.gate_up_proj_bias"
TEXT = f"""
module @m level=logical {{
  input %x : f32[{EXPERTS},2,{{hidden}}]
  weight %{UP} : f32[{EXPERTS},{{hidden}},{WIDE}]
  weight %{BIAS} : f32[{EXPERTS},{WIDE}]
  output %y : f32[{EXPERTS},2,{WIDE}]
  output %bias : f32[{EXPERTS},{WIDE}]
}}

func @f phase=decode {{
  arg %x : f32[{EXPERTS},2,{{hidden}}]
  arg %{UP} : f32[{EXPERTS},{{hidden}},{WIDE}]
  arg %{BIAS} : f32[{EXPERTS},{WIDE}]
  %y = dot_general(%x, %{UP}) lhs_batch_dims=[0] rhs_batch_dims=[0] \
lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : f32[{EXPERTS},2,{WIDE}]
  return y = %y
  return bias = %{BIAS}
}}
"""


def graph(hidden: int = HIDDEN) -> Module:
    return parse(TEXT.replace("{hidden}", str(hidden)))


def stored() -> dict[str, Array]:
    """Every byte of numbers, and exponents on both sides of 127."""
    rng = np.random.default_rng(11)
    blocks = rng.integers(0, 256, (EXPERTS, WIDE, HIDDEN // 32, 16))
    return {
        f"{UP}_blocks": blocks.astype(np.uint8),
        f"{UP}_scales": rng.integers(115, 131, blocks.shape[:-1]).astype(np.uint8),
        BIAS: rng.standard_normal((EXPERTS, WIDE)).astype(np.float32),
    }


def write(folder: Path) -> dict[str, Array]:
    tensors = stored()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, folder / "model.safetensors")
    return tensors


def dense(tensors: dict[str, Array]) -> Array:
    """The weight [expert, in, out] that transformers makes of the bytes."""
    torch = pytest.importorskip("torch")
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    given = [torch.from_numpy(tensors[f"{UP}_{last}"]) for last in ("blocks", "scales")]
    return convert_moe_packed_tensors(*given, dtype=torch.float32).numpy()


def args_of(function: Function, given: dict[str, Array]) -> dict[str, Array]:
    return {value.name: given[value.name] for value in function.args if value.name is not None}


@pytest.mark.parametrize("passes", ["", "default{kernels=off}"])
def test_a_batched_product_with_the_bytes_is_that_of_transformers(passes: str, tmp_path: Path):
    tensors = write(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    module = graph()
    assert read_quantized(module, checkpoint.config) == ""
    needed = {row.name: row.logical.dims for row in module.interface.values()}
    shapes = {name: shape for name, shape in needed.items() if name.startswith("model.")}
    check_tensors(checkpoint, shapes, lambda name: False)
    assert UP not in shapes
    if passes:
        run_pipeline(module, parse_pipeline(passes))
    x = np.random.default_rng(2).standard_normal((EXPERTS, 2, HIDDEN)).astype(np.float32)
    given = {"x": x, **{name: checkpoint.read(name) for name in shapes}}
    if passes:
        prepare = module.functions["weights.global"]
        given |= evaluate(prepare, args_of(prepare, given))
        assert {array.dtype.name for array in given.values()} >= {"float4_e2m1fn"}
    (function,) = module.programs()
    found = evaluate(function, args_of(function, given), MEANING)
    wanted = np.einsum("erk,ekn->ern", x.astype(np.float64), dense(tensors))
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-9)
    np.testing.assert_array_equal(found["bias"], tensors[BIAS])


def test_inputs_that_are_no_whole_groups_are_refused(tmp_path: Path):
    write(tmp_path)
    config = open_checkpoint(tmp_path).config
    with pytest.raises(GraphgenError, match="the 40 inputs of an expert's weight") as caught:
        read_quantized(graph(hidden=40), config)
    assert caught.value.code == "GG0502"
