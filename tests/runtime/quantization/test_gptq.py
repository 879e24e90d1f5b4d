"""GPTQ: less error on the calibration inputs, and what it does by hand on small matrices."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.passes.quantization.schemes import scheme_of_text
from graphgen.runtime.quantization.gptq import quantize_by_gptq
from graphgen.runtime.quantization.rounding import Floats, QuantizedWeight, quantize_to_nearest

INT4 = scheme_of_text("int4:group:16")


def inputs(count: int, size: int) -> Floats:
    """Correlated, and some much larger than others, as the activations of models are."""
    random = np.random.default_rng(1)
    mixed = random.standard_normal((count, 8)) @ random.standard_normal((8, size))
    noise = 0.3 * random.standard_normal((count, size))
    return ((mixed + noise) * np.exp(random.standard_normal(size))).astype(np.float32)


def error(x: Floats, weight: Floats, made: QuantizedWeight) -> float:
    exact = x.astype(np.float64) @ weight.T
    return float(np.linalg.norm(x @ made.dequantized().T - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("text", ["int4:group:16", "int4:group:64", "mxfp4", "int8"])
def test_products_are_nearer_than_with_rounding_to_nearest(text: str):
    scheme, x = scheme_of_text(text), inputs(400, 80)
    weight = np.random.default_rng(2).standard_normal((40, 80)).astype(np.float32)
    made = quantize_by_gptq(weight, x.T @ x, scheme)
    plain = quantize_to_nearest(weight, scheme)
    assert made.values.dtype == plain.values.dtype
    assert made.scale.shape == plain.scale.shape
    assert error(x, weight, made) < 0.5 * error(x, weight, plain)


def test_independent_inputs_have_nothing_to_make_up_for():
    # With H diagonal every column is rounded by itself, on the scale with the least error.
    weight = np.random.default_rng(3).standard_normal((4, 32)).astype(np.float32)
    made = quantize_by_gptq(weight, np.eye(32, dtype=np.float32), INT4)
    steps = np.repeat(made.scale, 16, axis=1)
    wanted = np.clip(np.rint(weight / steps), -8, 7)
    np.testing.assert_array_equal(made.values, wanted)


def test_two_inputs_by_hand():
    # Inputs that are always equal: the second one makes up for the rounding of the first.
    scheme = scheme_of_text("int4:group:2")
    weight = np.array([[0.75, 0.34]], np.float32)
    gram = np.array([[1, 1], [1, 1]], np.float32)
    made = quantize_by_gptq(weight, gram, scheme)
    total = made.dequantized().sum()
    nearest = quantize_to_nearest(weight, scheme).dequantized().sum()
    assert abs(total - 1.09) <= abs(nearest - 1.09)
    assert abs(total - 1.09) <= float(made.scale[0, 0]) / 2 + 1e-6


def test_inputs_that_the_text_never_has():
    weight = np.random.default_rng(4).standard_normal((4, 32)).astype(np.float32)
    x = inputs(50, 32)
    x[:, 5] = 0
    for gram in (x.T @ x, np.zeros((32, 32), np.float32)):
        made = quantize_by_gptq(weight, gram, INT4)
        assert np.isfinite(made.dequantized()).all()
        assert np.abs(made.dequantized() - weight).max() < 2.5
