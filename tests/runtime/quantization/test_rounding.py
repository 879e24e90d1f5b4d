"""Rounding to nearest: against the composite ``quantize``, torch, and OCP's tables."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Function, Module
from graphgen.ir.dtype import f32
from graphgen.passes.quantization.schemes import (
    BLOCKWISE,
    ELEMENTS,
    GROUP,
    PER_CHANNEL,
    PER_TENSOR,
    limit,
    scheme_of_text,
    weight_scheme,
)
from graphgen.runtime.quantization.rounding import Floats, quantize_to_nearest, round_trip


def weights(rows: int, columns: int, seed: int = 0) -> Floats:
    random = np.random.default_rng(seed)
    spread = np.exp(random.standard_normal((rows, 1)))
    return (random.standard_normal((rows, columns)) * spread).astype(np.float32)


@pytest.mark.parametrize("scheme", [PER_TENSOR, PER_CHANNEL])
@pytest.mark.parametrize("dtype", ["int8", "f8e4m3", "f8e5m2"])
def test_the_bytes_are_those_of_quantizing_while_loading(dtype: str, scheme: str):
    weight = weights(6, 9)
    weight[2] = 0
    module = Module("m")
    function = module.add(Function("f"))
    with Builder(function, module) as b:
        w = b.weight("w", f32, weight.shape)
        over = (0, 1) if scheme == PER_TENSOR else (1,)
        values, scale = b.quantize(w, ELEMENTS[dtype], over, limit(dtype, scheme))
        b.output("values", values)
        b.output("scale", scale)
    wanted = evaluate(function, {"w": weight})
    made = quantize_to_nearest(weight, weight_scheme(dtype, scheme))
    np.testing.assert_array_equal(
        made.values.view(np.uint8), np.asarray(wanted["values"]).view(np.uint8)
    )
    np.testing.assert_array_equal(made.scale.ravel(), np.asarray(wanted["scale"]).ravel())


@pytest.mark.parametrize("text", ["int4:group:4", "int8:blockwise", "f8e4m3:blockwise", "mxfp4"])
def test_blocks_by_loops_with_a_short_one_at_the_end(text: str):
    scheme = scheme_of_text(text)
    weight = weights(130, 140)
    made = quantize_to_nearest(weight, scheme)
    high, wide = scheme.block((130, 140))
    assert made.scale.shape == (-(-130 // high), -(-140 // wide))
    for row in range(0, 130, max(high, 43)):
        for column in range(0, 140, wide):
            part = np.s_[row // high * high : row // high * high + high, column : column + wide]
            alone = quantize_to_nearest(weight[part], scheme)
            assert alone.scale.size == 1
            np.testing.assert_array_equal(made.dequantized()[part], alone.dequantized())


def test_int8_per_tensor_is_torchs():
    weight = weights(16, 24)
    step = float(np.abs(weight).max() / np.float32(127.5))
    wanted = torch.fake_quantize_per_tensor_affine(torch.tensor(weight), step, 0, -128, 127)
    made = quantize_to_nearest(weight, weight_scheme("int8", PER_TENSOR)).dequantized()
    np.testing.assert_allclose(made, wanted.numpy(), rtol=1e-6)


def test_mxfp4_of_the_format():
    # 6 = 1.5 * 2**2 is the largest element; the scale is a power of two; 7 saturates.
    weight = np.zeros((1, 32), np.float32)
    weight[0, :8] = [0.5, 1, 1.5, 2, 3, 4, 6, 7]
    made = quantize_to_nearest(weight, weight_scheme("mxfp4"))
    assert made.scale.tolist() == [[1.0]]
    wanted = [0.5, 1, 1.5, 2, 3, 4, 6, 6]
    assert made.values[0, :8].astype(np.float32).tolist() == wanted
    assert made.values.dtype == ml_dtypes.float4_e2m1fn
    scaled = quantize_to_nearest(weight * 2.0**-40, weight_scheme("mxfp4"))
    np.testing.assert_array_equal(scaled.values, made.values)
    assert scaled.scale.tolist() == [[2.0**-40]]


@pytest.mark.parametrize(
    "text",
    ["int8", "int8:per_tensor_symmetric", "f8e4m3", "f8e4m3:per_tensor_symmetric", "f8e5m2",
     "f8e4m3:blockwise", "int4", "mxfp4"],
)  # fmt: skip
def test_a_tensor_of_zeros_stays_zero(text: str):
    # NxD Inference divides by the scale 0 of an all-zero tensor in f8, per tensor: NaN.
    back = round_trip(np.zeros((64, 96), np.float32), 1, scheme_of_text(text))
    assert (back == 0).all()


@pytest.mark.parametrize("scheme", [PER_TENSOR, PER_CHANNEL, BLOCKWISE])
def test_f8e4m3_never_exceeds_what_neuron_has(scheme: str):
    made = quantize_to_nearest(weights(200, 300), weight_scheme("f8e4m3", scheme))
    largest = np.abs(made.values.astype(np.float32)).max()
    assert largest == 240


def test_inputs_may_be_the_first_dimension():
    weight, scheme = weights(8, 64), scheme_of_text("int4:group:16")
    np.testing.assert_array_equal(round_trip(weight.T, 0, scheme), round_trip(weight, 1, scheme).T)


def test_texts_of_schemes():
    for text in ("int8:per_channel_symmetric", "int4:group:64", "mxfp4:group:32"):
        assert scheme_of_text(text).text == text
    assert scheme_of_text("int4") == weight_scheme("int4", GROUP, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int5", "dtype int5 is unknown"),
        ("int8:rows", "type rows is unknown"),
        ("int4:per_tensor_symmetric", "int4 has no scheme per_tensor_symmetric"),
        ("int8:group:64", "int8 has no scheme group"),
        ("mxfp4:group:64", "mxfp4 has groups of 32, not 64"),
        ("int8:per_channel_symmetric:64", "a group size has no effect"),
        ("int4:group:0", "names no scheme"),
        ("int4:group:4:4", "names no scheme"),
    ],
)
def test_schemes_that_no_format_has_are_refused(text: str, message: str):
    with pytest.raises(GraphgenError, match=message) as caught:
        scheme_of_text(text)
    assert caught.value.code == "GG0705"
