"""What the peers' quantized weights get wrong: each defect by its number, as a test of ours."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.eval import Array, evaluate
from graphgen.ir import Role
from graphgen.passes.core import run_pipeline
from graphgen.passes.quantize.quantize_weights import QuantizeWeights
from graphgen.passes.quantize.schemes import GROUP, LOADED_DTYPES, PER_CHANNEL, PER_TENSOR
from tests.passes.fusion.test_fuse_projections import dot, program

FORMS = [
    QuantizeWeights(element, scheme)
    for element in LOADED_DTYPES
    for scheme in ((GROUP,) if element == "int4" else (PER_CHANNEL, PER_TENSOR))
]
LARGEST = {"int8": 128, "f8e4m3": 240, "f8e5m2": 57344, "int4": 8}


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
