"""Every simple op as HLO: XLA parses the bytes, and computes what the NumPy rule does."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate, evaluate_ranks, numpy_dtype
from graphgen.ir import Function, Literal, Module, dtype, symbol, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.hlo.dialect import BY_OP as ROWS
from graphgen.ops import OPS
from tests.lowering.stablehlo.test_ops import ROUNDING
from tests.oracles import xla_hlo
from tests.oracles.op_samples import BY_OP, inputs, program
from tests.oracles.sample import difference

pytestmark = pytest.mark.usefixtures("optimized_code")


def test_every_simple_op_has_a_form():
    simple = {name for name, op in OPS.items() if not op.composite}
    assert {*ROWS, "constant"} == simple


@pytest.mark.parametrize("name", BY_OP)
@pytest.mark.one_in(7)
def test_xla_agrees_with_numpy(name: str):
    samples = BY_OP[name]
    module = program(samples)
    function = module.function("f")
    proto = emit_hlo(module, function)
    given = inputs(samples)
    ours = evaluate(function, given)
    (theirs,) = xla_hlo.run(proto, [list(given.values())])
    found = [
        difference(item, ours[key], other, ROUNDING)
        for item, key, other in zip(samples, ours, theirs, strict=True)
    ]
    assert list(filter(None, found)) == []


@pytest.mark.parametrize("kind", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("of", ["f32", "bf16", "s32"])
def test_all_reduce_on_two_devices(kind: str, of: str):
    module = Module("m", "target", {"tp": 2})
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(dtype(of), (2, 3)), "x")
    function.outputs = [("y", Builder(function).all_reduce(x, [[0, 1]], kind))]
    proto = emit_hlo(module, function)
    random = np.random.default_rng(0)
    ranks = [{"x": random.integers(-9, 9, (2, 3)).astype(numpy_dtype(dtype(of)))} for _ in "ab"]
    theirs = xla_hlo.run(proto, [[given["x"]] for given in ranks], 2)
    for ours, other in zip(evaluate_ranks(function, ranks), theirs, strict=True):
        np.testing.assert_array_equal(ours["y"], other[0])


@pytest.mark.parametrize("name", ["2x", "x-1", "layers.0.w", "é", "-x", ".x", "7", "a$b", "$x"])
def test_any_name_of_ours_is_made_a_name_of_xla(name: str):
    module = Module("m", "target")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (2,)), name)
    y = Builder(function).reduce(x, [0], "add")
    y.name = f"{name}.sum"
    function.outputs = [(name, y)]
    xla_hlo.parsed(emit_hlo(module, function))


def test_names_that_xla_would_make_one_stay_two():
    module = Module("m", "target")
    function = module.add(Function("f"))
    b = Builder(function)
    values = [function.block.add_arg(tensor(f32), name) for name in ("é", "è", "_", "add.1")]
    total = b.binary("add", values[0], values[1])
    again = b.binary("add", total, values[2])
    again = b.binary("add", again, values[3])
    function.outputs = [("y", again)]
    proto = emit_hlo(module, function)
    names = [name for name, _ in xla_hlo.instructions(proto)["f"]]
    assert sorted(names) == ["_", "_.1", "_.2", "add.0", "add.1", "add.1.1", "add.2"]


def test_one_reducer_and_one_constant_serve_all_reductions_alike():
    module = Module("m", "target")
    function = module.add(Function("f"))
    b = Builder(function)
    x = function.block.add_arg(tensor(f32, (2, 3)), "x")
    sums = [b.reduce(x, [axis], "add") for axis in (0, 1)]
    tops = [b.reduce(x, [axis], "maximum") for axis in (0, 1)]
    function.outputs = [(str(i), value) for i, value in enumerate([*sums, *tops])]
    found = xla_hlo.instructions(emit_hlo(module, function))
    assert sorted(found) == ["add.f32", "f", "maximum.f32"]
    assert [opcode for _, opcode in found["f"]].count("kConstant") == 2


def test_a_composite_has_no_form():
    module = Module("m")
    function = module.add(Function("f"))
    function.outputs = [("y", Builder(function).silu(function.block.add_arg(tensor(f32), "x")))]
    with pytest.raises(GraphgenError) as caught:
        emit_hlo(module, function)
    assert (caught.value.code, caught.value.what) == ("GG0401", "silu has no HLO form")


def test_symbols_have_no_form():
    module = Module("m")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (symbol("B"),)), "x")
    function.outputs = [("y", Builder(function).unary("negate", x))]
    with pytest.raises(GraphgenError) as caught:
        emit_hlo(module, function)
    assert caught.value.code == "GG0106"


def test_a_big_constant_is_handed_on_and_not_copied():
    from graphgen.lowering.hlo import hlo_chunks

    module = Module("m", "target")
    function = module.add(Function("f"))
    literal = Literal(f32, (1 << 16,), bytes(1 << 18))
    function.outputs = [("y", Builder(function).op("constant", value=literal))]
    assert any(chunk is literal.data for chunk in hlo_chunks(module, function))


def test_integers_are_packed():
    module = Module("m", "target")
    function = module.add(Function("f"))
    literal = Literal.of(s32, [0, -1, 1 << 30, -(1 << 31)])
    function.outputs = [("y", Builder(function).op("constant", value=literal))]
    assert "{0, -1, 1073741824, -2147483648}" in xla_hlo.parsed(emit_hlo(module, function))
