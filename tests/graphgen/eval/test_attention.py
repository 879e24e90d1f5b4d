"""Attention and its optional operands against JAX."""

from __future__ import annotations

import jax
import numpy as np

from graphgen.ir.dtype import f32
from tests.graphgen.eval.test_composites import Sizes, normal, run


def test_attention_against_jax():
    random = np.random.default_rng(1)
    q = normal(random, f32, 2, 3, 6, 8)
    k, v = (normal(random, f32, 2, 5, 2, 8) for _ in range(2))
    mask = random.random((2, 3, 5)) < 0.7
    mask[..., 0] = True
    theirs = jax.nn.dot_product_attention(q, k, v, mask=mask[:, None], scale=0.3)
    ours = run("attention", {"scale": 0.3}, q, k, v, mask)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_linear_biases_against_jax():
    random = np.random.default_rng(2)
    q = normal(random, f32, 2, 3, 6, 8)
    k, v = (normal(random, f32, 2, 5, 2, 8) for _ in range(2))
    mask = np.ones((2, 3, 5), np.bool_)
    slopes = np.array([0.5, 0.25, 0.125, 1.0, 2.0, 0.0], np.float32)
    distance = run("key_distance", {"attended": 5}, np.array([[2, 3, 4], [0, 1, 4]], np.int32))
    assert distance[1].tolist() == [[0, 1, 2, 3, 4], [-1, 0, 1, 2, 3], [-4, -3, -2, -1, 0]]
    bias = np.stack([slope * distance for slope in slopes], 1)
    theirs = jax.nn.dot_product_attention(q, k, v, bias, scale=0.3)
    ours = run("attention", {"scale": 0.3}, q, k, v, mask, slopes, distance)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_bias_softcap_and_value_width_against_jax():
    random = np.random.default_rng(3)
    q, k = normal(random, f32, 2, 3, 6, 8), normal(random, f32, 2, 5, 2, 8)
    v = normal(random, f32, 2, 5, 2, 4)
    bias, mask = normal(random, f32, 2, 6, 3, 5), random.random((2, 6, 3, 5)) < 0.7
    mask[..., 0] = True
    scores = np.einsum("bshd,bchd->bhsc", q, k.repeat(3, 2)) * 0.3
    scores = np.where(mask, 2 * np.tanh(scores / 2) + bias, -np.inf)
    theirs = np.einsum("bhsc,bchd->bshd", jax.nn.softmax(scores), v.repeat(3, 2))
    ours = run("attention", {"scale": 0.3, "softcap": 2.0}, q, k, v, mask, bias)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_sinks_are_a_slot_without_a_value():
    random = np.random.default_rng(4)
    q, k = normal(random, f32, 1, 2, 2, 4), normal(random, f32, 1, 3, 2, 4)
    sinks = np.array([0.5, -np.inf], np.float32)
    ours = run("attention", {"scale": 0.5}, q, k, k, np.ones((1, 2, 3), np.bool_), sinks)
    scores = np.einsum("bshd,bchd->bhsc", q, k) * 0.5
    extra = np.broadcast_to(sinks[:, None, None], (1, 2, 2, 1))
    weights = np.asarray(jax.nn.softmax(np.concatenate([scores, extra], -1)))[..., :-1]
    np.testing.assert_allclose(ours, np.einsum("bhsc,bchd->bshd", weights, k), rtol=1e-5)


def test_a_row_that_reads_nothing_stays_finite():
    random = np.random.default_rng(1)
    q, k = normal(random, f32, 1, 2, 2, 4), normal(random, f32, 1, 3, 2, 4)
    mask = np.zeros((1, 2, 3), np.bool_)
    mask[0, 1] = True
    case = Sizes(0, f32).case("attention", {"scale": 0.5}, q, k, k, mask)
    for out in (case.whole(wide=False)["r0"], case.parts(wide=False)["r0"]):
        assert np.isfinite(out).all()
