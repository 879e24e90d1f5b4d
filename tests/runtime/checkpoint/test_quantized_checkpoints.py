"""Quantized checkpoints mean their dequantized weights, whatever the scheme.

The vectors are written here from the formats' own descriptions, number by number, and not with the
functions that the product packs and unpacks with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate, numpy_dtype
from graphgen.ir import Function, Module, Role, dtype, tensor
from graphgen.ir.dtype import f8e4m3fn, f32
from graphgen.models import build
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.inspect.catalog import page_of
from graphgen.passes.quantization.rescale_f8 import rescaled
from graphgen.passes.quantization.stored_readings import ReadQuantized, read_quantized
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.text import parse, print_module

CONFIG: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 40,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
GROUP = 16
# A weight as it is stored, under the last names of its tensors, and what it means.
Stored = tuple[Mapping[str, Array], Array]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def scales(*shape: int) -> Array:
    return (np.abs(random(*shape, seed=1)) / 64 + 1 / 128).astype(np.float32)


def words(numbers: Array, axis: int, places: list[int]) -> Array:
    """Each run of eight along ``axis`` as one word, number i at place ``places[i]``."""
    rows = np.moveaxis(numbers.astype(np.int64), axis, -1)
    out = np.zeros((*rows.shape[:-1], rows.shape[-1] // 8), np.int64)
    for index in np.ndindex(*out.shape):
        for i, place in enumerate(places):
            out[index] |= int(rows[(*index[:-1], 8 * index[-1] + i)]) << (4 * place)
    return np.ascontiguousarray(np.moveaxis(out.astype(np.uint32).view(np.int32), -1, axis))


def integers(low: int, high: int, *shape: int) -> Array:
    return np.random.default_rng([7, *shape]).integers(low, high, shape)


def aws_rows(shape: tuple[int, int]) -> Stored:
    values, scale = integers(-128, 128, *shape).astype(np.int8), scales(shape[0], 1)
    return {"weight": values, "scale": scale}, values * scale


def aws_tensor(shape: tuple[int, int]) -> Stored:
    values, scale = (4 * random(*shape)).astype(ml_dtypes.float8_e4m3fn), scales(1)
    return {"weight": values, "scale": scale}, values.astype(np.float32) * scale


def compressed_int8(shape: tuple[int, int]) -> Stored:
    values, scale = integers(-128, 128, *shape).astype(np.int8), scales(shape[0], 1)
    return {"weight": values, "weight_scale": scale}, values * scale


def compressed_float8(shape: tuple[int, int]) -> Stored:
    values, scale = (4 * random(*shape)).astype(ml_dtypes.float8_e4m3fn), scales(1)
    return {"weight": values, "weight_scale": scale}, values.astype(np.float32) * scale


def compressed_int4(shape: tuple[int, int]) -> Stored:
    values, scale = integers(-8, 8, *shape), scales(shape[0], shape[1] // GROUP)
    stored = {
        "weight_packed": words(values + 8, 1, [*range(8)]),
        "weight_scale": scale,
        "weight_shape": np.array(shape),
    }
    return stored, values * np.repeat(scale, GROUP, 1)


def compressed_int4_points(shape: tuple[int, int]) -> Stored:
    values, scale = integers(-8, 8, *shape), scales(shape[0], shape[1] // GROUP)
    zero = integers(-8, 8, *scale.shape)
    stored = {
        "weight_packed": words(values + 8, 1, [*range(8)]),
        "weight_scale": scale,
        "weight_zero_point": words(zero + 8, 0, [*range(8)]),
        "weight_shape": np.array(shape),
    }
    return stored, (values - np.repeat(zero, GROUP, 1)) * np.repeat(scale, GROUP, 1)


def mxfp4(shape: tuple[int, int]) -> Stored:
    """OCP's table of E2M1, two codes in a byte, and exponents biased by 127."""
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = integers(0, 16, *shape)
    numbers = np.where(codes & 8, -1, 1) * magnitudes[codes & 7]
    exponents = integers(118, 126, shape[0], shape[1] // GROUP)
    stored = {
        "weight_packed": (codes[:, ::2] + 16 * codes[:, 1::2]).astype(np.uint8),
        "weight_scale": exponents.astype(np.uint8),
    }
    return stored, numbers * np.repeat(2.0 ** (exponents - 127), GROUP, 1)


def fbgemm(shape: tuple[int, int]) -> Stored:
    values = (4 * random(*shape)).astype(ml_dtypes.float8_e4m3fn)
    scale = scales(shape[0], 1)
    bound = np.array([1200.0], np.float32)
    stored = {"weight": values, "weight_scale": scale, "input_scale_ub": bound}
    return stored, values.astype(np.float32) * scale


def blocks(shape: tuple[int, int]) -> Stored:
    """Blocks of 32 x 20, of which the last of a weight are short."""
    values = (4 * random(*shape)).astype(ml_dtypes.float8_e4m3fn)
    scale = scales(-(-shape[0] // 32), -(-shape[1] // 20))
    spread = np.repeat(np.repeat(scale, 32, 0), 20, 1)[: shape[0], : shape[1]]
    return {"weight": values, "weight_scale_inv": scale}, values.astype(np.float32) * spread


def gptq(shape: tuple[int, int], ordered: bool = False, first: int = 1) -> Stored:
    rows, columns = shape
    values, zero = (
        integers(0, 16, columns, rows),
        integers(first, 16 + first, columns // GROUP, rows),
    )
    scale = scales(columns // GROUP, rows)
    group = np.arange(columns) // GROUP
    if ordered:
        group = np.random.default_rng(4).permutation(group)
    stored = {
        "qweight": words(values, 0, [*range(8)]),
        "qzeros": words(zero - first, 1, [*range(8)]),
        "scales": scale.astype(np.float16),
        "g_idx": group.astype(np.int32),
    }
    wide = stored["scales"].astype(np.float32)
    return stored, ((values - zero[group]) * wide[group]).T


def awq(shape: tuple[int, int]) -> Stored:
    rows, columns = shape
    values, zero = integers(0, 16, columns, rows), integers(0, 16, columns // GROUP, rows)
    scale = scales(columns // GROUP, rows).astype(np.float16)
    # The word holds the columns 0 2 4 6 1 3 5 7 from its lowest bits on.
    places = [0, 4, 1, 5, 2, 6, 3, 7]
    stored = {
        "qweight": words(values, 1, places),
        "qzeros": words(zero, 1, places),
        "scales": scale,
    }
    spread = np.repeat(scale.astype(np.float32), GROUP, 0)
    return stored, ((values - np.repeat(zero, GROUP, 0)) * spread).T


def bitsandbytes(shape: tuple[int, int]) -> Stored:
    values = integers(-127, 128, *shape).astype(np.int8)
    most = np.abs(random(shape[0], seed=3)).astype(np.float32) + 0.5
    return {"weight": values, "SCB": most}, values * most[:, None] / 127


def compressed(form: str, activations: object = None, **weights: object) -> dict[str, object]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
    }


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP}
DYNAMIC = {"num_bits": 8, "type": "int", "dynamic": True, "strategy": "token"}
GPTQ: dict[str, object] = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
Case = tuple[Callable[[tuple[int, int]], Stored], "dict[str, object] | None"]
CASES: dict[str, Case] = {
    "aws rows": (aws_rows, None),
    "aws tensor": (aws_tensor, None),
    "compressed int8": (
        compressed_int8,
        compressed("int-quantized", DYNAMIC, num_bits=8, type="int", strategy="channel"),
    ),
    "compressed float8": (
        compressed_float8,
        compressed("float-quantized", num_bits=8, type="float", strategy="tensor"),
    ),
    "compressed int4": (compressed_int4, compressed("pack-quantized", **INT4)),
    "compressed int4 with zero points": (
        compressed_int4_points,
        compressed("pack-quantized", **INT4, symmetric=False),
    ),
    "compressed mxfp4": (
        mxfp4,
        compressed(
            "mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=GROUP
        ),
    ),
    "fbgemm": (fbgemm, {"quant_method": "fbgemm_fp8"}),
    "fp8": (blocks, {"quant_method": "fp8", "weight_block_size": [32, 20]}),
    "gptq": (gptq, GPTQ),
    "gptq v2": (
        lambda shape: gptq(shape, first=0),
        {**GPTQ, "checkpoint_format": "gptq_v2", "desc_act": False},
    ),
    "gptq ordered": (lambda shape: gptq(shape, ordered=True), {**GPTQ, "desc_act": True}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True}),
    "bitsandbytes": (bitsandbytes, {"quant_method": "bitsandbytes", "load_in_8bit": True}),
}
# A layer of its own is left as it is.
LEFT = "model.layers.1.mlp.up_proj"


def is_quantized(name: str) -> bool:
    return "_proj" in name and LEFT not in name


def write(folder: Path, case: str) -> dict[str, Array]:
    """A mini checkpoint of this scheme; returns its dequantized weights."""
    make, stated = CASES[case]
    module = build(CONFIG, dtype("f32"))
    tensors: dict[str, Array] = {}
    dense: dict[str, Array] = {}
    for row in module.entries(Role.WEIGHT):
        name = row.name
        if is_quantized(name):
            rows, columns = row.logical.dims
            stored, dense[name] = make((rows, columns))
            base = name.removesuffix(".weight")
            tensors |= {f"{base}.{last}": array for last, array in stored.items()}
        else:
            size = 0.1 * random(*row.logical.dims) + ("norm" in name)
            tensors[name] = dense[name] = size.astype(np.float32)
    config = dict(CONFIG) if stated is None else {**CONFIG, "quantization_config": stated}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return dense


def prefill(module: Module, weights: Callable[[str], Array], passes: str = "") -> Array:
    """Logits of a few tokens, in double precision."""
    run_pipeline(module, parse_pipeline("specialize{batch=[2],context=[4],tokens=[8]}" + passes))
    (function,) = [f for f in module.programs() if f.phase == "prefill"]
    given: dict[str, Array] = {
        "tokens": np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.int32),
        "positions": np.tile(np.arange(4, dtype=np.int32), (2, 1)),
        "lengths": np.full(2, 4, np.int32),
        "seq_ids": np.arange(2, dtype=np.int32),
    }
    for value in function.args:
        name = value.name or ""
        if module.interface[name].role is Role.STATE:
            given[name] = np.zeros(value.type.dims)
        elif name not in given:
            given[name] = weights(name).astype(numpy_dtype(value.dtype))
    return evaluate(function, given, MEANING)["logits"]


def logical(checkpoint: Checkpoint) -> Module:
    module = build(checkpoint.config, dtype("f32"))
    read_quantized(module, checkpoint.config)
    check_checkpoint(checkpoint, module)
    return module


def from_configuration(config: Mapping[str, object]) -> dict[str, str]:
    """Name and type of each weight of a model that is built from a configuration alone."""
    module = build(config, dtype("f32"))
    read_quantized(module, config)
    return {row.name: str(row.logical) for row in module.entries(Role.WEIGHT)}


@pytest.mark.parametrize("case", [case for case, (_, stated) in CASES.items() if stated])
def test_a_configuration_without_weights_states_the_same_ones(case: str, tmp_path: Path):
    write(tmp_path, case)
    rows = logical(open_checkpoint(tmp_path)).entries(Role.WEIGHT)
    stated: dict[str, object] = {**(CASES[case][1] or {}), "modules_to_not_convert": [LEFT]}
    found = from_configuration({**CONFIG, "quantization_config": stated})
    # Of which type scales are, tensors alone say.
    assert found == {row.name: re.sub(r"^b?f16\[", "f32[", str(row.logical)) for row in rows}


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("modules_to_not_convert", ["lm_head", "model.layers.1.mlp"]),
        ("modules_to_not_convert", ["layers.1.mlp"]),
        ("ignore", ["lm_head", r"re:.*\.1\.mlp\..*"]),
        ("exclude_modules", ["lm_head", "layers.1.mlp.*_proj"]),
        ("ignored_layers", [f"model.layers.1.mlp.{x}_proj" for x in ("gate", "up", "down")]),
    ],
)
def test_exceptions_of_a_configuration_without_weights(key: str, names: list[str]):
    stated = {"quant_method": "fbgemm_fp8", key: names}
    found = from_configuration({**CONFIG, "quantization_config": stated})
    narrow = {name for name, text in found.items() if text.startswith("f8e4m3fn")}
    plain = build(CONFIG, dtype("f32")).entries(Role.WEIGHT)
    every = {row.name for row in plain if is_quantized(row.name)}
    assert narrow == {name for name in every if ".1.mlp." not in name}


def test_a_layer_as_wide_as_the_vocabulary_is_no_table_of_logits():
    wide = {**CONFIG, "intermediate_size": CONFIG["vocab_size"]}
    found = from_configuration({**wide, "quantization_config": {"quant_method": "fbgemm_fp8"}})
    assert found["model.layers.0.mlp.up_proj.weight"].startswith("f8e4m3fn")
    assert found["lm_head.weight"].startswith("f32")


def test_a_table_of_logits_is_quantized_where_gptq_says_so():
    for stated, last in ((GPTQ, "weight"), ({**GPTQ, "lm_head": True}, "qweight")):
        assert f"lm_head.{last}" in from_configuration({**CONFIG, "quantization_config": stated})
    # The same table is looked up, too.
    tied = {**CONFIG, "tie_word_embeddings": True}
    found = from_configuration({**tied, "quantization_config": {**GPTQ, "lm_head": True}})
    assert "model.embed_tokens.weight" in found


def test_a_pattern_of_exceptions_that_is_not_one_is_refused():
    stated = {"quant_method": "fbgemm_fp8", "ignore": ["re:(.*"]}
    with pytest.raises(GraphgenError, match=r"the pattern 're:\(\.\*' is not read") as caught:
        from_configuration({**CONFIG, "quantization_config": stated})
    assert caught.value.code == "GG0502"


def test_the_page_of_the_pass_is_true():
    page = page_of(ReadQuantized)
    module = parse(page.given)
    run_pipeline(module, [ReadQuantized(block=(1, 4), modules=("up",))])
    wanted = parse(page.result)
    assert print_module(module, locs=False) == print_module(wanted, locs=False)


@pytest.mark.parametrize("case", CASES)
def test_a_quantized_checkpoint_means_its_dequantized_weights(case: str, tmp_path: Path):
    dense = write(tmp_path, case)
    checkpoint = open_checkpoint(tmp_path)
    module = logical(checkpoint)
    narrow = [row.logical for row in module.entries(Role.WEIGHT) if "_proj" in row.name]
    assert {type_.dtype.name for type_ in narrow} >= {"f32"}
    wanted = prefill(build(CONFIG, dtype("f32")), lambda name: dense[name])
    ours = prefill(module, checkpoint.read)
    np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_layers_of_their_own_are_read_as_they_are(tmp_path: Path):
    write(tmp_path, "gptq")
    module = logical(open_checkpoint(tmp_path))
    assert module.interface[f"{LEFT}.weight"].logical.text == "f32[48,32]"
    assert module.interface["lm_head.weight"].logical.text == "f32[40,32]"
    assert f"{LEFT.replace('1', '0')}.weight" not in module.interface


REFUSED: dict[str, dict[str, object]] = {
    "quant_method 'quanto'": {"quant_method": "quanto"},
    "bitsandbytes of 4 bits (NF4, FP4)": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "activation_scheme 'static' of blocks": {
        "quant_method": "fp8",
        "activation_scheme": "static",
        "weight_block_size": [32, 20],
    },
    "version 'gemv' of awq": {"quant_method": "awq", "version": "gemv"},
    "bits 3": {**GPTQ, "bits": 3},
    "format 'marlin-24' of compressed-tensors": compressed("marlin-24", **INT4),
    "sparsity_config of format 'sparse-24-bitmask'": {
        **compressed("pack-quantized", **INT4),
        "sparsity_config": {"format": "sparse-24-bitmask"},
    },
    "transform_config with R4 of location 'input'": {
        **compressed("pack-quantized", **INT4),
        "sparsity_config": {"format": "dense"},
        "transform_config": {
            "config_groups": {
                "R2": {"apply": [{"location": "weight_output"}, {"location": "weight_input"}]},
                "R4": {"apply": [{"location": "input"}]},
            }
        },
    },
    "group_0.input_activations with static scales of strategy 'token', "
    "symmetric True, of 8 bits": compressed(
        "int-quantized",
        {"dynamic": False, "strategy": "token"},
        num_bits=8,
        strategy="channel",
    ),
}


def test_scales_of_caches_are_not_read(tmp_path: Path):
    write(tmp_path, "compressed int8")
    file = tmp_path / "model.safetensors"
    scales = {f"model.layers.0.self_attn.{name}_scale": np.ones(1, np.float32) for name in "kv"}
    save_file({**load_file(file), **scales}, file)
    logical(open_checkpoint(tmp_path))


def test_integers_without_their_scales_are_refused(tmp_path: Path):
    write(tmp_path, "compressed int8")
    file = tmp_path / "model.safetensors"
    name = "model.layers.0.self_attn.q_proj.weight"
    tensors = load_file(file)
    save_file({key: array for key, array in tensors.items() if key != f"{name}_scale"}, file)
    with pytest.raises(GraphgenError, match=rf"'{name}' is s8, the model reads f32") as caught:
        logical(open_checkpoint(tmp_path))
    assert caught.value.code == "GG0602"


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_read_is_refused_by_name(what: str, tmp_path: Path):
    write(tmp_path, "gptq")
    stated = {**CONFIG, "quantization_config": REFUSED[what]}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    with pytest.raises(GraphgenError) as caught:
        open_checkpoint(tmp_path)
    assert caught.value.code == "GG0502"
    assert caught.value.what == f"quantization_config: {what} is not read"


def rescaled_numbers(numbers: Array) -> tuple[Array, Array]:
    """The numbers and the scale that the weight program makes of a scale of 1."""
    function = Function("f")
    b = Builder(function)
    args = [
        function.block.add_arg(tensor(f8e4m3fn, numbers.shape), "values"),
        function.block.add_arg(tensor(f32, (1,)), "scale"),
    ]
    function.outputs = list(zip(("values", "scale"), rescaled(b, *args), strict=True))
    found = evaluate(function, {"values": numbers, "scale": np.ones(1, np.float32)})
    return found["values"].astype(np.float32), found["scale"]


def test_every_code_of_f8_fits_neuron_after_the_rescale():
    """N25 of the peers' defects: nothing looks whether a checkpoint was rescaled."""
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    values, scale = rescaled_numbers(codes)
    before = codes.astype(np.float32)
    finite = np.isfinite(before)
    assert finite.sum() == 254
    assert np.abs(values[finite]).max() == 240
    assert np.isnan(values[~finite]).all()
    # Half a step of three bits of mantissa, or of the smallest number.
    bound = np.maximum(np.abs(before) / 16, 2**-10 * scale) * 1.01
    assert (np.abs(values * scale - before) <= bound)[finite].all()


def test_the_rescale_is_that_of_aws():
    given = np.array([448, -448, 240, 1, 0.0625, -3.5]).astype(ml_dtypes.float8_e4m3fn)
    values, scale = rescaled_numbers(given)
    assert values.tolist() == [240, -240, 128, 0.5625, 0.03515625, -1.875]
    np.testing.assert_allclose(scale, 448 / 240, rtol=1e-6)


def test_weights_in_f8_are_rescaled_for_neuron_alone(tmp_path: Path):
    write(tmp_path, "fbgemm")
    config = open_checkpoint(tmp_path).config
    divided: list[bool] = []
    for target in ("cpu", "trn2"):
        module = build(config, dtype("bf16"))
        read_quantized(module, config, target)
        ops = [op.name for function in module.programs() for op in function.ops]
        divided.append("divide" in ops)
    assert divided == [False, True]
