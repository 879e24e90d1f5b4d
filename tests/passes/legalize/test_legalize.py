"""Legalization for the CPU: composites inlined, 16-bit products in the forms that run fast."""

from __future__ import annotations

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate, numpy_dtype
from graphgen.ir import Function, dtype
from graphgen.models import build, known_shape
from graphgen.ops import OPS
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.legalize.neuron_sort import in_reach
from graphgen.text import parse
from graphgen.text.grammar import parse_type
from tests.oracles.small_modules import after, function

DIMS = "lhs_contracting_dims=[1] rhs_contracting_dims=[1]"


def dot(rows: int, kind: str = "bf16", to: str = "bf16") -> str:
    return function(
        f"arg %x : {kind}[{rows},4]",
        f"arg %w : {kind}[8,4]",
        f"%y = dot_general(%x, %w) {DIMS} dtype={to} : {to}[{rows},8]",
        "return y = %y",
    )


@pytest.mark.parametrize("rows", range(1, 10))
@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_few_rows_are_padded_to_eight(rows: int, kind: str):
    text = after(dot(rows, kind), "legalize")
    tall = max(rows, 8)
    assert f"dot_general(%{'x' if rows >= 8 else 1}, %w) {DIMS} dtype=f32 : f32[{tall},8]" in text
    assert ("pad(" in text) == (rows < 8)
    assert text.count("convert(") == 1
    before, now = parse(dot(rows, kind)), parse(text)
    random = np.random.default_rng(rows)
    arrays = {
        "x": random.standard_normal((rows, 4)).astype(numpy_dtype(dtype(kind))),
        "w": random.standard_normal((8, 4)).astype(numpy_dtype(dtype(kind))),
    }
    ours, theirs = (evaluate(m.function("f"), arrays)["y"] for m in (before, now))
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def test_a_product_that_is_wide_already_is_only_padded():
    text = after(dot(1, "bf16", "f32"), "legalize")
    assert "pad(" in text
    assert "convert(" not in text


def test_how_many_rows_is_an_option():
    assert "f32[3,8]" in after(dot(1), "legalize{min_rows=3}")
    assert "pad(" not in after(dot(1), "legalize{min_rows=1}")
    assert "pad(" not in after(dot(3), "legalize{min_rows=3}")


@pytest.mark.parametrize(
    ("x", "w", "attrs", "result"),
    [
        (
            "2,1,4",
            "2,8,4",
            "[2] rhs_contracting_dims=[2] lhs_batch_dims=[0] rhs_batch_dims=[0]",
            "2,1,8",
        ),
        ("4,1", "8,4", "[0] rhs_contracting_dims=[1]", "1,8"),
        ("1,4", "8,4,2", "[1] rhs_contracting_dims=[1]", "1,8,2"),
        ("0,4", "8,4", "[1] rhs_contracting_dims=[1]", "0,8"),
        ("1,2,4", "2,4", "[1,2] rhs_contracting_dims=[0,1]", "1"),
    ],
)  # fmt: skip
def test_products_of_another_form_are_not_padded(x: str, w: str, attrs: str, result: str):
    text = function(
        f"arg %x : bf16[{x}]",
        f"arg %w : bf16[{w}]",
        f"%y = dot_general(%x, %w) lhs_contracting_dims={attrs} dtype=bf16 : bf16[{result}]",
        "return y = %y",
    )
    now = after(text, "legalize")
    assert "pad(" not in now
    assert f"dtype=f32 : f32[{result}]" in now


def test_nothing_but_simple_ops_is_left():
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    run_pipeline(module, parse_pipeline("specialize{batch=[1,2],context=[4],tokens=[4]},legalize"))
    assert module.level == "target"
    for each in module.functions.values():
        assert not any(OPS[op.name].composite for op in each.ops)
        assert all("legalize" in op.loc.via for op in each.ops if op.name == "exponential")


def test_inlined_ops_come_from_where_the_composite_came_from():
    text = function("arg %x : f32[2]", "%y = silu(%x) : f32[2]  # m.py:4 mlp", "return y = %y")
    module = parse(text)
    run_pipeline(module, parse_pipeline("legalize"))
    assert {repr(op.loc) for op in module.function("f").ops} == {"m.py:4 mlp via legalize"}
    (_, value), *_ = module.function("f").outputs
    assert value.name == "y"


def test_symbols_are_refused():
    negate = function("arg %x : f32[B]", "%y = negate(%x) : f32[B]", "return y = %y")
    for body in (dot(1).replace("[1,", "[B,"), negate):
        with pytest.raises(GraphgenError) as caught:
            after(body, "legalize")
        assert caught.value.code == "GG0303"
        assert caught.value.help == "run specialize before it"


def test_an_unknown_target_is_refused():
    with pytest.raises(GraphgenError) as caught:
        after(dot(1), "legalize{target=tpu}")
    assert caught.value.code == "GG0302"
    assert caught.value.what == "legalize: target is 'tpu', expected cpu, inf2, trn1, trn2 or trn3"
    assert caught.value.help == "did you mean cpu?"
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(parse(dot(1)), [Legalize(target="tpu")])
    assert caught.value.help.startswith("targets: cpu, ")


@pytest.mark.parametrize(
    ("type_", "fits"),
    [("f32[1048576,2047]", True), ("f32[1048576,2048]", False), ("f32[0,4]", False),
     ("s4[4]", False), ("s8[4]", True), ("pred[4]", False)],
)  # fmt: skip
def test_rows_that_the_sort_kernel_takes(type_: str, fits: bool):
    assert in_reach(Function("f").block.add_arg(parse_type(type_), "x")) is fits


@pytest.mark.parametrize(("target", "kept"), [("Sharding", True), ("sdy.reshard", False)])
def test_the_call_that_partitioners_read_is_kept(target: str, kept: bool):
    """XLA takes the layout of the value from it; other markers are their operands."""
    call = f'%y = custom_call(%x) target="{target}" results=[f32[4]] : f32[4]'
    text = after(
        function("arg %x : f32[4]", call, "%z = negate(%y) : f32[4]", "return z = %z"), "legalize"
    )
    assert ("custom_call" in text) == kept
