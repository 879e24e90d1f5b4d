"""Caches of models from elsewhere: however they are written, they become states of ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphgen.ir import Module, Role
from graphgen.ir.clone import clone_module
from graphgen.ir.domain import Domain
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.ops import OPS
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles import jax_llama_cached as cached
from tests.passes.raising.test_raise_composites import split

ROWS, SLOTS, KV, SIZE = 2, 8, 3, 4


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


CACHE, TOKEN, TOKENS = (zeros(ROWS, count, KV, SIZE) for count in (SLOTS, 1, 3))
HEADS_FIRST = zeros(ROWS, KV, SLOTS, SIZE)
ONE, EACH, ALL = np.int32(0), np.zeros(ROWS, np.int32), np.zeros((ROWS, 3), np.int32)
COUNT = jnp.arange(ROWS)
WRITES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "slice": (
        lambda c, n, s: jax.lax.dynamic_update_slice(c, n, (0, s, 0, 0)),
        (CACHE, TOKENS, ONE),
    ),
    "slice of one row": (
        lambda c, n, r: jax.lax.dynamic_update_slice(c, n[:1], (r, 0, 0, 0)),
        (CACHE, TOKENS, ONE),
    ),
    "front": (lambda c, n: c.at[:, :3].set(n), (CACHE, TOKENS)),
    "one slot": (lambda c, n, s: c.at[:, s].set(n[:, 0]), (CACHE, TOKEN, ONE)),
    "slots of all rows": (lambda c, n, p: c.at[:, p[0]].set(n), (CACHE, TOKENS, ALL)),
    "a slot a row": (lambda c, n, p: c.at[COUNT, p].set(n[:, 0]), (CACHE, TOKEN, EACH)),
    "slots a row": (lambda c, n, p: c.at[COUNT[:, None], p].set(n), (CACHE, TOKENS, ALL)),
    "named rows": (lambda c, n, r, p: c.at[r[:, None], p].set(n), (CACHE, TOKENS, EACH, ALL)),
    "heads first": (
        lambda c, n, p: c.at[COUNT[:, None], :, p].set(n),
        (HEADS_FIRST, TOKENS, ALL),
    ),
    "mapped": (
        lambda c, n, p: jax.vmap(jax.lax.dynamic_update_slice_in_dim, (0, 0, 0, None))(c, n, p, 0),
        (CACHE, TOKENS, EACH),
    ),
    "slots first": (
        lambda c, n, s: jax.lax.dynamic_update_slice(c, n.transpose(1, 0, 2, 3), (s, 0, 0, 0)),
        (zeros(SLOTS, ROWS, KV, SIZE), TOKENS, ONE),
    ),
    "slices joined with new tokens": (
        lambda c, n: jnp.concatenate([c[:, :2], n, c[:, 5:]], 1),
        (CACHE, TOKENS),
    ),
    "a slice joined with new tokens, heads first": (
        lambda c, n: jnp.concatenate([c[:, :, :5], n.transpose(0, 2, 1, 3)], 2),
        (HEADS_FIRST, TOKENS),
    ),
    "choice": (
        lambda c, n, p: jnp.where((jnp.arange(SLOTS) == p[:, None])[..., None, None], n, c),
        (CACHE, TOKEN, EACH),
    ),
    "choice, heads first": (
        lambda c, n, p: jnp.where(
            jnp.arange(SLOTS)[:, None] == p[:, None, None, None], n.transpose(0, 2, 1, 3), c
        ),
        (HEADS_FIRST, TOKEN, EACH),
    ),
}


def lower(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Module:
    return read_stablehlo(jax.jit(function).lower(*arguments).as_text())


def composites(module: Module) -> dict[str, int]:
    ops = [op.name for function in module.functions.values() for op in function.ops]
    return dict(Counter(name for name in ops if OPS[name].composite))


@pytest.mark.parametrize("name", WRITES)
def test_each_way_to_write_is_an_update_that_writes_the_same(name: str):
    module = lower(*WRITES[name])
    verdicts = validate(clone_module(module), pipeline("imported"), make_workload(module, seed=1))
    assert [verdict for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, pipeline("imported"))
    assert composites(module) == {"kv_update": 1}
    (update,) = (op for op in module.function("main").ops if op.name == "kv_update")
    named = name in ("named rows", "slice of one row")
    assert update.attrs.text("rows") == ("any" if named else "in_place")
    assert update.result.shape == (ROWS, SLOTS, KV, SIZE)


STACKED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a slot of a layer": (
        lambda c, n, s: c.at[1, :, s].set(n[:, 0]),
        (zeros(3, ROWS, SLOTS, KV, SIZE), TOKEN, ONE),
    ),
    "slots of a layer": (
        lambda c, n, p: c.at[2, COUNT[:, None], p].set(n),
        (zeros(3, ROWS, SLOTS, KV, SIZE), TOKENS, ALL),
    ),
    "a layer after the other": (
        lambda c, n, s: c.at[0].set(c[0].at[:, s].set(n[:, 0])).at[1, :, s].set(n[:, 0]),
        (zeros(2, ROWS, SLOTS, KV, SIZE), TOKEN, ONE),
    ),
}


@pytest.mark.parametrize("name", STACKED)
def test_layers_of_one_tensor_are_written_one_by_one(name: str):
    module = lower(*STACKED[name])
    verdicts = validate(clone_module(module), pipeline("imported"), make_workload(module, seed=1))
    assert [verdict for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, pipeline("imported"))
    updates = [op for op in module.function("main").ops if op.name == "kv_update"]
    assert len(updates) == (2 if "after" in name else 1)
    assert {op.result.shape for op in updates} == {(ROWS, SLOTS, KV, SIZE)}
    assert not {"scatter", "dynamic_update_slice"} & {op.name for op in module.function("main").ops}


OUTSIDE: dict[str, Callable[..., Any]] = {
    "slots of a layer": lambda c, n, place: c.at[place, :, 2].set(n[:, 0], mode="drop"),
    "a layer": lambda c, n, place: c.at[place].set(jnp.tile(n, (1, SLOTS, 1, 1)), mode="drop"),
    "a layer, moved to the last": lambda c, n, place: jax.lax.dynamic_update_slice(
        c, jnp.tile(n, (1, SLOTS, 1, 1))[None], (place, 0, 0, 0, 0)
    ),
}


@pytest.mark.parametrize("place", [0, 2, 3, 7])
@pytest.mark.parametrize("name", OUTSIDE)
def test_layers_that_lie_outside_are_written_as_they_were(name: str, place: int):
    random = np.random.default_rng(0)
    arrays = zeros(3, ROWS, SLOTS, KV, SIZE), TOKEN
    given = [random.standard_normal(x.shape).astype(x.dtype) for x in arrays]
    function = partial(OUTSIDE[name], place=place)
    wanted = np.asarray(function(*map(jnp.asarray, given)))
    module, journal = lower(function, arrays), Journal()
    run_pipeline(module, pipeline("imported"), journal=journal)
    outside = "the layer is outside the cache" in {miss.why.reason for miss in journal.misses}
    assert outside == (place > 2)
    names = [value.name or "" for value in module.function("main").args]
    found = module.evaluate(dict(zip(names, given, strict=True)))["result"]
    np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize("start", [-20, -1, 5, 6, 20])
@pytest.mark.parametrize(
    "name", ["slice", "one slot", "mapped", "slots of all rows", "slots a row"]
)
def test_what_lies_outside_is_moved_or_dropped_as_it_was(name: str, start: int):
    function, arguments = WRITES[name]
    random = np.random.default_rng(0)
    given = [
        np.full_like(x, start) if x.dtype == np.int32 else random.standard_normal(x.shape)
        for x in arguments
    ]
    given = [x.astype(a.dtype) for x, a in zip(given, arguments, strict=True)]
    if given[-1].ndim == 2:
        # Each token has a slot of its own: of several in one slot, any may stay.
        given[-1] = given[-1] + np.arange(3, dtype=np.int32)
    wanted = np.asarray(function(*map(jnp.asarray, given)))
    module = lower(function, arguments)
    run_pipeline(module, pipeline("imported"))
    names = [value.name or "" for value in module.function("main").args]
    found = module.evaluate(dict(zip(names, given, strict=True)))["result"]
    np.testing.assert_array_equal(np.asarray(found), wanted)


NEAR: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "added": (
        lambda c, n: c.at[:, :3].add(n),
        (CACHE, TOKENS),
        "it adds to what is there",
    ),
    "not kept": (
        lambda c, n, s: jax.lax.dynamic_update_slice(c * 2, n, (0, s, 0, 0)),
        (CACHE, TOKENS, ONE),
        "the buffer written to is not an argument, so nothing is kept",
    ),
    "made of what is cut": (
        lambda c, n: jnp.concatenate([c[:, :2], jnp.exp(n + c[:, 2:5]), c[:, 5:]], 1),
        (CACHE, TOKENS),
        "the new part is made of what is cut",
    ),
    "a slice that moves": (
        lambda c, n: jnp.concatenate([c[:, 1:3], n, c[:, 5:]], 1),
        (CACHE, TOKENS),
        "a slice does not stay where it was",
    ),
    "two new parts": (
        lambda c, n: jnp.concatenate([n, c[:, 3:5], n * 2], 1),
        (CACHE, TOKENS),
        "it is not a new part between slices of a cache",
    ),
    "longer": (
        lambda c, n: jnp.concatenate([c, n], 1)[:, :11] + 0,
        (CACHE, TOKENS),
        "it is not a new part between slices of a cache",
    ),
    "shorter": (
        lambda c, n: jnp.concatenate([c[:, :2], n], 1),
        (CACHE, TOKENS),
        "the concatenation does not have the shape of the cache",
    ),
    "some heads": (
        lambda c, n, s: jax.lax.dynamic_update_slice(c, n[:1, :, :1], (s, s, s, 0)),
        (CACHE, TOKENS, ONE),
        "it writes at computed places in 3 dimensions",
    ),
    "other slots for each head": (
        lambda c, n, p: jnp.where(jnp.arange(SLOTS)[:, None, None] == p[:, None, :, None], n, c),
        (CACHE, TOKEN, ALL),
        "the slot differs in more than the row",
    ),
    "another token for each slot": (
        lambda c, n, p: jnp.where((jnp.arange(SLOTS) == p[:, None])[..., None, None], n, c),
        (CACHE, CACHE, EACH),
        "each slot would be given another token",
    ),
    "every slot up to one": (
        lambda c, n, p: jnp.where((jnp.arange(SLOTS) <= p[:, None])[..., None, None], n, c),
        (CACHE, TOKEN, EACH),
        "the mask is not an equality of slots and positions",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_not_quite_an_update_stays_and_the_reason_is_told(name: str):
    function, arguments, reason = NEAR[name]
    module, journal = lower(function, arguments), Journal()
    run_pipeline(module, pipeline("imported"), journal=journal)
    assert composites(module) == {}
    assert reason in {miss.why.reason for miss in journal.misses}


# ---- whole models --------------------------------------------------------------------------------


@cache
def program(style: str, phase: str) -> Module:
    module = read_stablehlo(cached.lowered(style, phase).as_text(debug_info=True))
    for name, row in list(module.interface.items()):
        if name.startswith("params."):
            module.interface[name] = replace(row, role=Role.WEIGHT)
        if name == "positions":
            # Beyond these JAX writes the nearest slot, and ``kv_update`` none.
            module.interface[name] = replace(row, domain=Domain(0, cached.SLOTS - 1))
    return module


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("style", cached.STYLES)
@pytest.mark.one_in(3)
def test_every_idea_is_found_and_donated_caches_are_states(style: str, phase: str):
    module = clone_module(program(style, phase))
    script = make_workload(module, seed=2)
    assert all(v.ok for v in validate(clone_module(module), pipeline("imported"), script))
    run_pipeline(module, pipeline("imported"))
    whole = {"embedding": 1, "rms_norm": 5, "rope": 4, "kv_update": 4, "attention": 2, "silu": 2}
    assert composites(module) == whole
    assert len(module.entries(Role.STATE)) == 4
    attentions = [op for op in module.function("main").ops if op.name == "attention"]
    assert {op.operands[1].shape[2] for op in attentions} == {cached.KV_HEADS}


@pytest.mark.parametrize("tp", [2, 3, 4])
@pytest.mark.parametrize("style", cached.STYLES)
@pytest.mark.one_in(6)
def test_caches_are_split_with_their_heads(style: str, tp: int):
    module = clone_module(program(style, "decode"))
    run_pipeline(module, pipeline("imported"))
    script = make_workload(module, seed=tp)
    passes = pipeline(split(tp) + "cse,fuse-projections,lift-weights,legalize,cse,dce")
    assert [v.pass_text for v in validate(clone_module(module), passes, script) if not v.ok] == []
    run_pipeline(module, passes)
    heads = 2 if style == "heads_first" else 1
    dims = {row.physical.shape[3 - heads] for row in module.entries(Role.STATE)}
    assert dims == {1}
    ops = Counter(op.name for op in module.function("main").ops)
    # Two a layer and the embedding's: the caches are never sent.
    assert (ops["all_reduce"], ops["all_gather"]) == (5, 1)


@pytest.mark.parametrize("tp", [2, 3])
@pytest.mark.parametrize("scanned", [True, False])
@pytest.mark.one_in(4)
def test_caches_of_all_layers_in_one_tensor_are_split(scanned: bool, tp: int):
    kept = zeros(cached.LAYERS, cached.ROWS, cached.SLOTS, cached.KV_HEADS, cached.SIZE)
    jitted = jax.jit(partial(cached.stacked_decode, scanned=scanned), donate_argnums=1)
    given = ({"k": kept, "v": kept}, *cached.decode_arguments("sliced", 0))
    lowered = jitted.lower(cached.stacked_parameters(), *given)
    module = read_stablehlo(lowered.as_text(debug_info=True))
    for name, row in list(module.interface.items()):
        if name.startswith("params."):
            module.interface[name] = replace(row, role=Role.WEIGHT)
    run_pipeline(module, pipeline("imported"))
    whole = {"embedding": 1, "rms_norm": 5, "rope": 4, "kv_update": 4, "attention": 2, "silu": 2}
    assert composites(module) == whole
    rules = "*.wg:{-,-,tp},*.wu:{-,-,tp},*.wd:{-,tp,-}"
    text = f"heads{{tp={tp}}},shard{{tp={tp},rules=[{rules}]}},pad-to-mesh,partition,cse"
    passes, script = (
        pipeline(f"{text},lift-weights,legalize,cse,dce"),
        make_workload(module, seed=tp),
    )
    assert [v.pass_text for v in validate(clone_module(module), passes, script) if not v.ok] == []
    run_pipeline(module, passes)
    shape = (cached.LAYERS, cached.ROWS, cached.SLOTS, 1, cached.SIZE)
    assert {row.physical.shape for row in module.entries(Role.STATE)} == {shape}
    ops = Counter(op.name for op in module.function("main").ops)
    assert (ops["all_reduce"], ops["all_gather"]) == (5, 1)
