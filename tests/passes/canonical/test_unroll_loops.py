"""Loops of JAX programs written out: the same numbers, layers again, and why one is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from graphgen.analysis.layers import layers_of
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse

TEXT = (Path(__file__).parents[2] / "data" / "control.gg").read_text()
X = np.arange(4, dtype=np.float32)
STACK = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def count_up(x: Any, rows: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, c: c * 2 + i, x + rows[0])


def scan(x: Any, rows: Any) -> Any:
    return lax.scan(lambda c, row: (c + row, c * row), x, rows)


def scan_backward(x: Any, rows: Any) -> Any:
    return lax.scan(lambda c, row: (c + row, c * row), x, rows, reverse=True)


def nested(x: Any, rows: Any) -> Any:
    def outer(c: Any, row: Any) -> Any:
        inner = lax.fori_loop(0, 3, lambda i, d: d + row * i, c)
        return inner, inner.sum()

    return lax.scan(outer, x, rows)


def alternating(x: Any, rows: Any) -> Any:
    def layer(c: Any, given: Any) -> Any:
        row, number = given
        return lax.cond(number % 2 == 0, lambda: c + row, lambda: c * row), None

    return lax.scan(layer, x, (rows, np.arange(3)))[0]


def by_number(x: Any, rows: Any) -> Any:
    branches = [lambda c: c + 1, lambda c: -c, lambda c: c * rows[2]]
    return lax.fori_loop(0, 5, lambda i, c: lax.switch(i, branches, c), x)


def caches(x: Any, rows: Any) -> Any:
    """A cache a layer, stacked, that each layer reads and writes a slot of."""

    def layer(c: Any, cache: Any) -> Any:
        cache = lax.dynamic_update_slice(cache, c[:1], (2,))
        return c + cache.sum(), cache

    return lax.scan(layer, x, rows)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    f.__name__: f
    for f in (count_up, scan, scan_backward, nested, alternating, by_number, caches)
}  # fmt: skip


def read(function: Callable[[Any, Any], Any]) -> Module:
    module = read_stablehlo(jax.jit(function).lower(X, STACK).as_text(debug_info=True))
    verify(module)
    return module


def ops(module: Module) -> Counter[str]:
    return Counter(op.name for function in module.functions.values() for op in function.block)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_jax_loops_over_is_computed_with_and_without_loops(name: str):
    wanted = jax.tree_util.tree_leaves(PROGRAMS[name](jnp.asarray(X), jnp.asarray(STACK)))
    module = read(PROGRAMS[name])
    assert ops(module)["while"]
    plain = clone_module(module)
    run_pipeline(plain, pipeline("unroll-loops,cse,dce"))
    left = ops(plain)
    assert not left["while"]
    assert not left["conditional"]
    assert list(plain.functions) == ["main"]
    for each in (module, plain):
        given = each.evaluate({"x": X, "rows": STACK})
        for found, array in zip(given.values(), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(found), array, rtol=1e-6)
    checked = validate(module, pipeline("unroll-loops,cse,dce"), make_workload(module))
    assert all(item.ok for item in checked)


def test_turns_are_layers_of_slices_and_stacks_are_concatenations():
    module = read(caches)
    run_pipeline(module, pipeline("unroll-loops,cse,dce"))
    (program,) = module.programs()
    assert [name.rpartition(".")[2] for name in layers_of(program)] == ["0", "1", "2"]
    counts = ops(module)
    # What is left to be written at a place is what the user wrote.
    assert (counts["dynamic_update_slice"], counts["dynamic_slice"]) == (3, 0)
    assert counts["concatenate"] == 1
    assert counts["slice"] >= 3


def test_a_loop_of_unknown_length_stays():
    def until(x: Any, rows: Any) -> Any:
        return lax.while_loop(lambda c: c.sum() < 100, lambda c: c + rows[0] ** 2 + 1, x)

    module = read(until)
    run_pipeline(module, pipeline("imported"), journal=(journal := Journal()))
    assert ops(module)["while"] == 1
    miss = journal.nearest("unroll")
    assert miss is not None
    assert miss.why.reason == "it is not known to turn at most 256 times"
    wanted = until(jnp.asarray(X), jnp.asarray(STACK))
    (found,) = module.evaluate({"x": X, "rows": STACK}).values()
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("limit=2", "it is not known to turn at most 2 times"),
        ("most_ops=8", "its turns have 9 ops, more than 8"),
    ],
)
def test_reasons(option: str, reason: str):
    loop = "  %c = constant() value=s32[](2) : s32[]\n  %n, %y = while(%c"
    module = parse(TEXT.replace("  %n, %y = while(%i", loop))
    passes = pipeline(f"unroll-loops{{{option}}}")
    run_pipeline(module, passes, journal=(journal := Journal()))
    miss = journal.nearest("unroll")
    assert miss is not None
    assert miss.why.reason == reason
    said = parse(TEXT.replace("body=step", "body=step trip_count=3"))
    run_pipeline(said, pipeline("unroll-loops{limit=2}"), journal=(journal := Journal()))
    miss = journal.nearest("unroll")
    assert miss is not None
    assert miss.why.reason == "it turns 3 times, more than 2"


@pytest.mark.parametrize("option", ["limit=3", "most_ops=9"])
def test_a_loop_of_just_as_many_turns_and_ops_is_written_out(option: str):
    module = parse(TEXT.replace("body=step", "body=step trip_count=3"))
    assert ops(module)["while"] == 1
    run_pipeline(module, pipeline(f"unroll-loops{{{option}}}"))
    assert ops(module)["while"] == 0


def test_options_are_checked():
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(parse(TEXT), pipeline("unroll-loops{limit=-1}"))
    assert caught.value.code == "GG0302"


def test_updates_that_do_not_cover_stay():
    text = """module @m level=logical {
  input %x : f32[4]
  input %u : f32[2]
  output %y : f32[4]
}

func @same {
  arg %y : f32[4]
  return y = %y
}

func @f phase=main {
  arg %x : f32[4]
  arg %u : f32[2]
  %p = constant() value=pred[](true) : pred[]
  %a = constant() value=s32[](FIRST) : s32[]
  %b = constant() value=s32[](SECOND) : s32[]
  %v = dynamic_update_slice(%x, %u, %a) : f32[4]
  %w = dynamic_update_slice(%v, %u, %b) : f32[4]
  %y = conditional(%p, %w, %w) branches=[same,same] takes=[1,1] results=[f32[4]] : f32[4]
  return y = %y
}
"""
    for first, second, stays in ((0, 2, False), (2, 0, False), (9, -3, False), (0, 1, True)):
        module = parse(text.replace("FIRST", str(first)).replace("SECOND", str(second)))
        given = {"x": X, "u": np.array([5, 6], np.float32)}
        before = module.evaluate(given)["y"]
        run_pipeline(module, pipeline("unroll-loops,dce"))
        assert (ops(module)["dynamic_update_slice"] > 0) == stays
        np.testing.assert_array_equal(np.asarray(module.evaluate(given)["y"]), before)
