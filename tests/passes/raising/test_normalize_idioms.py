"""The spellings of other compilers' dumps: PyTorch's through HLO, and transformers-neuronx's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphgen.eval import evaluate
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.ops import OPS
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.raising.near_misses import near_misses
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload

ROWS, COUNT, SLOTS, HEADS, KV, SIZE = 1, 5, 16, 4, 2, 8
WIDTH = HEADS * SIZE


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def raised(module: Module, text: str = "imported") -> tuple[dict[str, int], Module]:
    """The composites found, each raising checked by numbers."""
    verdicts = validate(clone_module(module), pipeline(text), make_workload(module, seed=3))
    assert [v.pass_text for v in verdicts if not v.ok] == []
    run_pipeline(module, pipeline(text))
    ops = Counter(op.name for function in module.functions.values() for op in function.ops)
    return {name: count for name, count in ops.items() if OPS[name].composite}, module


def lower(function: Any, *arguments: Any) -> Module:
    return read_stablehlo(jax.jit(function).lower(*arguments).as_text(debug_info=True))


# ---- as PyTorch writes it ------------------------------------------------------------------------


def norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    mean = jnp.power(x, jnp.full(x.shape, 2.0)).sum(-1, keepdims=True) / WIDTH
    return weight * (x * (1.0 / jnp.sqrt(mean + 1e-5)))


def linear(x: jax.Array, weight: jax.Array) -> jax.Array:
    """A product over rows and tokens in one dimension, with the matrix turned around."""
    flat = x.reshape(-1, weight.shape[1]) @ weight.T
    return flat.reshape(*x.shape[:2], weight.shape[0])


def rotated(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    half = SIZE // 2
    return x * cos + jnp.concatenate([-x[..., half:], x[..., :half]], -1) * sin


def batched(a: jax.Array, b: jax.Array) -> jax.Array:
    """A product for each of rows times heads."""
    left, right = (x.reshape(ROWS * HEADS, *x.shape[2:]) for x in (a, b))
    made = jax.lax.batch_matmul(left, right)
    return made.reshape(ROWS, HEADS, *made.shape[1:])


def decoder(
    x: jax.Array,
    positions: jax.Array,
    bias: jax.Array,
    k_cache: jax.Array,
    v_cache: jax.Array,
    weights: dict[str, jax.Array],
) -> tuple[jax.Array, ...]:
    """A layer with transformers' static cache; the mask comes in as numbers to add."""
    angles = positions.astype(jnp.float32)[None, :, None] * weights["frequencies"]
    whole = jnp.concatenate([angles, angles], -1)[:, None]
    h = norm(x, weights["ln"])

    def heads(name: str, count: int) -> jax.Array:
        return linear(h, weights[name]).reshape(ROWS, COUNT, count, SIZE).transpose(0, 2, 1, 3)

    q, k, v = heads("q", HEADS), heads("k", KV), heads("v", KV)
    q, k = (rotated(y, jnp.cos(whole), jnp.sin(whole)) for y in (q, k))
    k_cache = k_cache.at[:, :, positions].set(k)
    v_cache = v_cache.at[:, :, positions].set(v)

    def repeated(c: jax.Array) -> jax.Array:
        wide = jnp.broadcast_to(c[:, :, None], (ROWS, KV, HEADS // KV, SLOTS, SIZE))
        return wide.reshape(ROWS, HEADS, SLOTS, SIZE)

    scores = batched(q, repeated(k_cache).transpose(0, 1, 3, 2)) * SIZE**-0.5 + bias
    read = batched(jax.nn.softmax(scores, -1), repeated(v_cache)).transpose(0, 2, 1, 3)
    x = x + linear(read.reshape(ROWS, COUNT, WIDTH), weights["o"])
    return x, k_cache, v_cache


def test_a_layer_as_pytorch_writes_it():
    weights = {
        **{name: zeros(WIDTH, WIDTH) for name in "qo"},
        **{name: zeros(KV * SIZE, WIDTH) for name in "kv"},
        "ln": zeros(WIDTH),
        "frequencies": zeros(SIZE // 2),
    }
    cache = zeros(ROWS, KV, SLOTS, SIZE)
    bias, positions = zeros(ROWS, 1, COUNT, SLOTS), np.zeros(COUNT, np.int32)
    module = lower(decoder, zeros(ROWS, COUNT, WIDTH), positions, bias, cache, cache, weights)
    found, module = raised(module)
    assert found == {"rms_norm": 1, "rope": 2, "kv_update": 2, "attention": 1}
    assert near_misses(module) == []
    (attention,) = (op for op in module.function("main").ops if op.name == "attention")
    # The bias, and the cache as it is kept.
    assert [value.shape for value in attention.operands[4:]] == [(ROWS, HEADS, COUNT, SLOTS)]
    assert attention.operands[1].shape == (ROWS, SLOTS, KV, SIZE)
    products = [op for op in module.function("main").ops if op.name == "dot_general"]
    assert {op.operands[0].shape for op in products} == {(ROWS, COUNT, WIDTH)}
    assert all(op.operands[1].op is None for op in products)


# ---- as transformers-neuronx writes it -----------------------------------------------------------


def neuronx(
    x: jax.Array,
    slot: jax.Array,
    start: jax.Array,
    k_cache: jax.Array,
    v_cache: jax.Array,
    weights: dict[str, jax.Array],
) -> tuple[jax.Array, ...]:
    """A layer of one token: features first, slots first, cache and new token apart."""
    count = x.shape[2]
    mean = (x * x).sum(0) * (1 / WIDTH)
    h = x * jax.lax.rsqrt(mean + 1e-5)[None] * weights["ln"][:, None, None]
    flat = h.reshape(WIDTH, count)

    def heads(name: str) -> jax.Array:
        return jax.lax.dot_general(flat, weights[name], (((0,), (0,)), ((), ()))).reshape(
            1, count, HEADS, SIZE
        )

    def scores(keys: jax.Array, allowed: jax.Array) -> jax.Array:
        made = jax.lax.dot_general(heads("q") / 4.0, keys, (((3,), (3,)), ((1, 2), (1, 2))))
        return jnp.where(allowed[:, None, None], made, -30000.0)

    slots = jnp.arange(SLOTS)
    old = scores(k_cache, (slots < slot[0])[None] & (slots[None] >= start[:, None]))
    new = scores(heads("k"), slot[None] >= start[:, None])
    top = jnp.maximum(old.max(-1), new.max(-1))[..., None]
    old, new = jnp.exp(old - top), jnp.exp(new - top)

    def weighted(w: jax.Array, values: jax.Array) -> jax.Array:
        return jax.lax.dot_general(w, values, (((3,), (0,)), ((0, 1), (1, 2))))

    total = weighted(old, v_cache) + weighted(new, heads("v"))
    read = total / (old.sum(-1) + new.sum(-1))[..., None]
    read = read.transpose(2, 0, 1, 3).reshape(count, WIDTH)
    out = jax.lax.dot_general(read, weights["o"], (((1,), (1,)), ((), ()))).T
    caches = (c.at[slot].set(y) for c, y in ((k_cache, heads("k")), (v_cache, heads("v"))))
    return x + out.reshape(WIDTH, 1, count), *caches


def test_a_layer_as_transformers_neuronx_writes_it():
    weights = {**{name: zeros(WIDTH, WIDTH) for name in "qkvo"}, "ln": zeros(WIDTH)}
    cache, one = zeros(SLOTS, 3, HEADS, SIZE), np.zeros(1, np.int32)
    start = np.zeros(3, np.int32)
    module = lower(neuronx, zeros(WIDTH, 1, 3), one, start, cache, cache, weights)
    found, module = raised(module)
    assert found == {"rms_norm": 1, "kv_update": 2, "attention": 1}
    (attention,) = (op for op in module.function("main").ops if op.name == "attention")
    assert attention.operands[1].shape == (3, SLOTS + 1, HEADS, SIZE)


def test_parts_of_another_maximum_are_not_one_attention():
    def apart(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = [jnp.einsum("bqhd,bkhd->bhqk", q.reshape(2, 3, 4, 4), y) for y in (k, v)]
        old, new = (jnp.exp(s - s.max(-1, keepdims=True)) for s in scores)
        read = [jnp.einsum("bhqk,bkhd->bhqd", w, y) for w, y in ((old, k), (new, v))]
        return (read[0] + read[1]) / (old.sum(-1) + new.sum(-1))[..., None]

    module = lower(apart, zeros(2, 3, 16), zeros(2, 5, 4, 4), zeros(2, 5, 4, 4))
    journal = Journal()
    run_pipeline(module, pipeline("imported"), journal=journal)
    told = {miss.why.reason for miss in journal.misses}
    assert "the value subtracted is not the largest score" in told
    assert "attention" not in {op.name for op in module.function("main").ops}


# ---- dumps of one rank, with Neuron's kernels ----------------------------------------------------

RANK = """HloModule rank

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main {
  x = f32[2,3,8]{2,1,0} parameter(0)
  w = f32[8]{0} parameter(1)
  m = f32[8,4]{1,0} parameter(2)
  ring = f32[8,4]{1,0} custom-call(m), custom_call_target="AwsNeuronTransferWithStaticRing"
  eps = f32[] constant(1e-05)
  h = f32[2,3,8]{2,1,0} custom-call(x, w, eps), KERNEL, backend_config="2"
  flat = f32[6,8]{1,0} reshape(h)
  up = f32[6,4]{1,0} dot(flat, ring), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  wide = f32[2,3,4]{2,1,0} reshape(up)
  act = f32[2,3,4]{2,1,0} custom-call(wide), custom_call_target="AwsNeuronSilu"
  ROOT out = f32[2,3,4]{2,1,0} all-reduce(act), replica_groups={{0,1}}, to_apply=add
}
""".replace("KERNEL", 'custom_call_target="AwsNeuronRmsNorm"')


def test_a_rank_with_kernels_and_collectives():
    module = read_hlo(parse_hlo_text(RANK, "rank.hlo"), "rank.hlo")
    assert module.level == "sharded"
    found, module = raised(module, "imported{sharded=true}")
    assert found == {"rms_norm": 1, "silu": 1}
    names = [op.name for op in module.function("main").ops]
    assert names == ["rms_norm", "dot_general", "silu", "all_reduce"]


LOOKED_UP: dict[str, tuple[Callable[[jax.Array], jax.Array], bool]] = {
    "from the end": (lambda x: x[:, :, jnp.array([-2])], True),
    "two": (lambda x: x[:, :, jnp.array([3, 4])], True),
    "in another order": (lambda x: x[:, :, jnp.array([4, 3])], False),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_a_lookup_at_known_places_is_a_slice(name: str):
    """Falcon's keys are the second to last head of its projection."""
    function, is_slice = LOOKED_UP[name]
    given = np.random.default_rng(4).standard_normal((2, 3, 6, 4)).astype(np.float32)
    module = read_stablehlo(jax.jit(function).lower(given).as_text())
    run_pipeline(module, pipeline("imported"))
    program = module.function("main")
    assert ("slice" in [op.name for op in program.ops]) == is_slice
    assert ("gather" in [op.name for op in program.ops]) != is_slice
    (made,) = evaluate(program, {program.args[0].name or "": given}).values()
    np.testing.assert_array_equal(made, function(jnp.asarray(given)))


@pytest.mark.parametrize(("exponent", "root"), [(0.5, "sqrt"), (-0.5, "rsqrt")])
def test_a_power_of_one_half_is_a_root_of_sums_alone(exponent: float, root: str):
    """The power of -inf is +inf, its root NaN; that of -0 has another sign."""

    def powers(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        given = jnp.full(x.shape, exponent)
        return jnp.power(x * x + 1e-5, given), jnp.power(x, given)

    _, module = raised(lower(powers, zeros(3, 5)))
    ops = Counter(op.name for function in module.functions.values() for op in function.ops)
    assert (ops[root], ops["power"]) == (1, 1)
