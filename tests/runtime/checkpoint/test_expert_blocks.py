"""GPT-OSS's weights of experts in MXFP4: read as they are, with the meaning transformers has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedModel
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate
from graphgen.ir import Function, Module
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.quantization.stored_readings import read_quantized
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_tensors
from graphgen.text import parse
from tests.oracles.families import ORACLES
from tests.oracles.sessions import open_session

EXPERTS, HIDDEN, WIDE = 3, 64, 24
CONFIG = {
    "model_type": "gpt_oss",
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
    },
}
STORED = "model.layers.0.mlp.experts.gate_up_proj"
UP, BIAS = (f"model.layers.0.mlp.experts.up_proj.{last}" for last in ("weight", "bias"))
TEXT = f"""
module @m level=logical {{
  input %x : f32[{EXPERTS},2,{{hidden}}]
  weight %{UP} : f32[{EXPERTS},{WIDE},{{hidden}}]
  weight %{BIAS} : f32[{EXPERTS},{WIDE}]
  output %y : f32[{EXPERTS},2,{WIDE}]
  output %bias : f32[{EXPERTS},{WIDE}]
}}

func @f phase=decode {{
  arg %x : f32[{EXPERTS},2,{{hidden}}]
  arg %{UP} : f32[{EXPERTS},{WIDE},{{hidden}}]
  arg %{BIAS} : f32[{EXPERTS},{WIDE}]
  %y = dot_general(%x, %{UP}) lhs_batch_dims=[0] rhs_batch_dims=[0] \
lhs_contracting_dims=[2] rhs_contracting_dims=[2] dtype=f32 : f32[{EXPERTS},2,{WIDE}]
  return y = %y
  return bias = %{BIAS}
}}
"""


def graph(hidden: int = HIDDEN) -> Module:
    return parse(TEXT.replace("{hidden}", str(hidden)))


def stored() -> dict[str, Array]:
    """Every byte of numbers, and exponents on both sides of 127."""
    rng = np.random.default_rng(11)
    blocks = rng.integers(0, 256, (EXPERTS, 2 * WIDE, HIDDEN // 32, 16))
    return {
        f"{STORED}_blocks": blocks.astype(np.uint8),
        f"{STORED}_scales": rng.integers(115, 131, blocks.shape[:-1]).astype(np.uint8),
        f"{STORED}_bias": rng.standard_normal((EXPERTS, 2 * WIDE)).astype(np.float32),
    }


def write(folder: Path) -> dict[str, Array]:
    tensors = stored()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, folder / "model.safetensors")
    return tensors


def dense(tensors: dict[str, Array]) -> Array:
    """The weight [expert, in, out] that transformers makes of the bytes; gate and up take turns."""
    given = [torch.from_numpy(tensors[f"{STORED}_{last}"]) for last in ("blocks", "scales")]
    return convert_moe_packed_tensors(*given, dtype=torch.float32).numpy()


def args_of(function: Function, given: dict[str, Array]) -> dict[str, Array]:
    return {value.name: given[value.name] for value in function.args if value.name is not None}


# On an accelerator, which has no floats of four bits, others of a byte have the same numbers.
KEPT = {"cpu": "float4_e2m1fn", "trn2": "float8_e5m2"}


@pytest.mark.parametrize(
    ("passes", "target"), [("", "cpu"), ("default{kernels=off}", "cpu"), ("default", "trn2")]
)
def test_a_batched_product_with_the_bytes_is_that_of_transformers(
    passes: str, target: str, tmp_path: Path
):
    tensors = write(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    module = graph()
    assert read_quantized(module, checkpoint.config, target) == ""
    needed = {row.name: row.logical.dims for row in module.interface.values()}
    shapes = {name: shape for name, shape in needed.items() if name.startswith("model.")}
    check_tensors(checkpoint, shapes, lambda name: "gate_proj" in name)
    assert UP not in shapes
    if passes:
        run_pipeline(module, parse_pipeline(passes))
    x = np.random.default_rng(2).standard_normal((EXPERTS, 2, HIDDEN)).astype(np.float32)
    given = {"x": x, **{name: checkpoint.read(name) for name in shapes}}
    if passes:
        prepare = module.functions["weights.global"]
        given |= evaluate(prepare, args_of(prepare, given))
        assert KEPT[target] in {array.dtype.name for array in given.values()}
    (function,) = module.programs()
    found = evaluate(function, args_of(function, given), MEANING)
    wanted = np.einsum("erk,ekn->ern", x.astype(np.float64), dense(tensors)[:, :, 1::2])
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-9)
    np.testing.assert_array_equal(found["bias"], tensors[f"{STORED}_bias"][:, 1::2])


def test_inputs_that_are_no_whole_groups_are_refused(tmp_path: Path):
    write(tmp_path)
    config = open_checkpoint(tmp_path).config
    with pytest.raises(GraphgenError, match="the 40 inputs of an expert's weight") as caught:
        read_quantized(graph(hidden=40), config)
    assert caught.value.code == "GG0502"


def write_model(folder: Path) -> PreTrainedModel:
    """A model with experts in MXFP4, and as transformers dequantizes it."""
    model = ORACLES["gpt_oss"].model(hidden_size=64, intermediate_size=96, initializer_range=0.1)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    rng = np.random.default_rng(3)
    for name, own in model.named_parameters():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = tensors.pop(name).shape
            shape = (experts, outputs, inputs // 32, 16)
            blocks = rng.integers(0, 256, shape).astype(np.uint8)
            scales = rng.integers(120, 125, shape[:-1]).astype(np.uint8)
            tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            given = [torch.from_numpy(array) for array in (blocks, scales)]
            own.data = convert_moe_packed_tensors(*given, dtype=torch.float32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = CONFIG["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    return model


FORMS = [
    *[{"expert_dispatch": form} for form in ("all", "selective", "capacity", "blockwise")],
    *({"tp": 2}, {"tp": 4, "moe_ep_degree": 2}, {"tp": 3, "kernels": "off"}),
]


@pytest.mark.parametrize("changes", FORMS, ids=str)
@pytest.mark.one_in(9)
def test_a_model_keeps_four_bits_and_has_the_logits_of_transformers(
    changes: dict[str, object], tmp_path: Path
):
    model = write_model(tmp_path)
    config = CompileConfig(dtype="f32", batch=(2,), context=(16,), tokens=(16, 32))
    session = open_session(tmp_path, config.updated(changes))
    programs = list(session.module.programs())
    args = [x for function in programs for x in function.args if ".experts." in (x.name or "")]
    assert {x.dtype.name for x in args if x.type.rank > 2} == {"f4e2m1fn", "f8e8m0fnu"}
    lengths, steps = (3, 14), 3
    texts = [[*range(7, 7 + size + steps)] for size in lengths]
    logits = [session.prefill([text[:-steps] for text in texts])]
    logits += [session.decode([text[step - steps] for text in texts]) for step in range(steps)]
    for step, ours in enumerate(logits):
        with torch.no_grad():
            wanted = [model(torch.tensor([t])).logits[0, step - steps - 1] for t in texts]
        np.testing.assert_allclose(ours, np.stack(wanted), rtol=0, atol=1e-4)
