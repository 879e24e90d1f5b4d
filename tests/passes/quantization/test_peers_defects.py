"""What the peers' quantized weights get wrong: each defect by its number, as a test of ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate, numpy_dtype
from graphgen.ir import Role
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.quantization.cache_ranges import write_ranges
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.quantization.schemes import GROUP, LOADED_DTYPES, PER_CHANNEL, PER_TENSOR
from graphgen.runtime.aws_config.config_json import config_json, inspect_config
from graphgen.runtime.aws_config.neuron_config import KVQuantizationConfig, NeuronConfig
from graphgen.text import parse
from tests.passes.canonical.test_fuse_projections import dot, program

FORMS = [
    QuantizeWeights(element, scheme)
    for element in LOADED_DTYPES
    for scheme in ((GROUP,) if element == "int4" else (PER_CHANNEL, PER_TENSOR))
]
LARGEST = {"int8": 128, "f8e4m3": 240, "f8e5m2": 57344, "int4": 8}
LARGEST_OF_CACHE = {**LARGEST, "int8": 127}


def quantized(item: QuantizeWeights, weight: Array) -> tuple[Array, Array, Array]:
    """The numbers, the scales, and the product with the rows of a unit matrix: the weight."""
    rows, columns = weight.shape
    lines = (dot("a", "w", rows), "return a = %a")
    module = program({"w": f"f32[{rows},{columns}]"}, *lines)
    run_pipeline(module, [item])
    function = module.function("f")
    (made,) = [op for op in function.ops if op.name == "quantize"]
    function.outputs = [*function.outputs, *zip(("values", "scale"), made.results, strict=True)]
    assert [row.name for row in module.entries(Role.WEIGHT)] == ["w"]
    # The input has two rows of four.
    parts = [np.eye(4, dtype=np.float32)[at : at + 2] for at in (0, 2)]
    found = [evaluate(function, {"x": part, "w": weight}) for part in parts]
    (name,) = [key for key in found[0] if key not in ("values", "scale")]
    whole = np.concatenate([each[name] for each in found]).T
    return found[0]["values"].astype(np.float32), found[0]["scale"], whole


@pytest.mark.parametrize("item", FORMS, ids=str)
def test_s18_a_weight_of_zeros_stays_zero(item: QuantizeWeights):
    """transformers-neuronx divides by a scale of zero."""
    values, scale, whole = quantized(item, np.zeros((3, 4), np.float32))
    assert not values.any()
    assert (scale > 0).all()
    assert not whole.any()


@pytest.mark.parametrize("item", [f for f in FORMS if f.dtype.startswith("int")], ids=str)
def test_s18_integers_are_rounded_to_the_nearest(item: QuantizeWeights):
    """transformers-neuronx truncates: its error is a whole step, and ours half of one."""
    weight = np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32)
    _, scale, whole = quantized(item, weight)
    step = scale.reshape(-1, 1) if scale.size > 1 else scale
    error = np.abs(whole - weight) / step
    assert error.max() <= 0.5 + 1e-5
    assert error.max() > 0.25


@pytest.mark.parametrize("item", FORMS, ids=str)
def test_n2_no_number_is_beyond_the_end_of_its_type(item: QuantizeWeights):
    """NxD Inference casts to f8e4m3 without a look at 240, where Neuron's type ends."""
    weight = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32) * 1e6
    values, _, whole = quantized(item, weight)
    assert np.abs(values).max() <= LARGEST[item.dtype]
    assert np.isfinite(whole).all()
    np.testing.assert_allclose(whole, weight, atol=0.13 * np.abs(weight).max())


@pytest.mark.parametrize("item", FORMS, ids=str)
def test_an_axis_of_one_element(item: QuantizeWeights):
    """A weight of one output, whose scale a channel is an axis of one element."""
    weight = np.array([[0.5, -3, 2, 1]], np.float32)
    values, scale, whole = quantized(item, weight)
    assert (values.shape, scale.size) == ((1, 4), 1)
    np.testing.assert_allclose(whole, weight, atol=0.07 * 3)


@pytest.mark.parametrize("item", FORMS, ids=str)
def test_n18_products_read_narrow_numbers(item: QuantizeWeights):
    """NxD Inference widens a weight to 16 bits before the program reads it; ours is kept narrow."""
    from graphgen.passes.weights.lift import LiftWeights

    module = program({"w": "f32[6,4]"}, dot("a", "w", 6), "return a = %a")
    run_pipeline(module, [item, LiftWeights()])
    kept = [
        row.physical.dtype.bits for row in module.entries(Role.PARAM) if "quantized" in row.name
    ]
    assert kept == [4 if item.dtype == "int4" else 8]


def read_of_cache(passes: str, new: Array) -> Array:
    """What a token reads of the keys [D] that it has just written."""
    size = len(new)
    module = parse(f"""\
module @m level=canonical {{
  input %new : f32[1,1,1,{size}]
  input %slots : s32[1,1]
  input %seq_ids : s32[1]
  state %k : f32[1,1,1,{size}]
  output %r : f32[1,1,1,{size}]
}}

func @f phase=decode {{
  arg %k : f32[1,1,1,{size}]
  arg %new : f32[1,1,1,{size}]
  arg %slots : s32[1,1]
  arg %seq_ids : s32[1]
  %0 = kv_update(%k, %new, %seq_ids, %slots) : f32[1,1,1,{size}]
  %r = cache_read(%0, %seq_ids) attended=1 : f32[1,1,1,{size}]
  return k = %0
  return r = %r
}}
""")
    run_pipeline(module, parse_pipeline(passes))
    zero = np.zeros((1, 1), np.int32)
    kept = np.zeros((1, 1, 1, size), numpy_dtype(module.interface["k"].physical.dtype))
    given = {"k": kept, "new": new.reshape(1, 1, 1, -1), "slots": zero, "seq_ids": zero[0]}
    return evaluate(module.function("f"), given)["r"].ravel()


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2", "int8"])
@pytest.mark.parametrize("scale", ["per_tensor", "per_key", "per_channel"])
def test_n18_scales_of_caches_come_from_a_calibration(tmp_path: Path, dtype: str, scale: str):
    """NxD Inference never calibrates: with its scales of 1 keys of 1e6 are clamped, 1e-6 is 0."""
    for size in (1e6, 1e-6):
        new = (size * np.random.default_rng(2).uniform(0.3, 1, 8)).astype(np.float32)
        for name, share in (("measured", 1.0), ("ones", LARGEST_OF_CACHE[dtype] / size)):
            write_ranges(tmp_path / name, {"k": [[float(new.max()) * share] * 8]})
        options = f"dtype={dtype},scale={scale},ranges={tmp_path}"
        found = read_of_cache(f"quantize-cache{{{options}/measured}}", new)
        np.testing.assert_allclose(found, new, rtol=0.13)
        ones = read_of_cache(f"quantize-cache{{{options}/ones}}", new)
        assert np.abs(ones / new - 1).max() > 0.2


def test_n18_fixed_scales_of_aws_are_refused_with_the_way_to_measure_them():
    """``direct_cast=False`` of NxD Inference reads scales that nothing ever sets."""
    for numbers in ("float8_e4m3fn", "float8_e5m2", "int8"):
        with pytest.raises(GraphgenError) as caught:
            KVQuantizationConfig(direct_cast=False, quant_dtype=numbers)
        assert caught.value.code == "GG0904"
        assert "which no calibration ever sets" in str(caught.value)
        assert "graphgen calibrate" in str(caught.value)


@pytest.mark.parametrize("numbers", ["float8_e4m3fn", "float8_e5m2", "int8"])
def test_n12_the_configuration_of_caches_survives_json(numbers: str):
    """NxD Inference writes methods as tables and types as text, and reads neither."""
    narrow = KVQuantizationConfig(
        k_quant_method="per_key_symmetric",
        v_quant_method="per_channel_symmetric",
        quant_dtype=numbers,
    )
    config = NeuronConfig(kv_cache_quant=True, kv_quant_config=narrow)
    text = json.dumps(config_json(config))
    again, problems = inspect_config(NeuronConfig, json.loads(text))
    assert (again, list(problems)) == (config, [])
    assert again.kv_quant_config == narrow
    assert json.dumps(config_json(again)) == text
