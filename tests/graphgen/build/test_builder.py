"""The builder: operators, scopes, provenance, declarations, and errors at the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Function, Literal, Module, Role, Value, dtype, loc, symbol, tensor
from graphgen.ir.dtype import bf16, f32, pred, s32
from graphgen.ops import verify
from graphgen.text import print_function

HERE = "tests/graphgen/build/test_builder.py"
B, S = symbol("B"), symbol("S")


def line() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def function_of(*types: str, kind: DType = f32) -> tuple[Function, list[Value]]:
    """A function with an argument ``x``, ``y``, ... of each shape such as ``2,3``."""
    function = Function("f")
    shapes = [[int(n) for n in shape.split(",") if n] for shape in types]
    pairs = zip("xyz", shapes, strict=False)
    return function, [function.block.add_arg(tensor(kind, s), name) for name, s in pairs]


def text(function: Function, *outputs: Value) -> list[str]:
    """The op lines of the function's text."""
    function.outputs = [(f"o{i}", value) for i, value in enumerate(outputs)]
    lines = print_function(function, locs=False).splitlines()
    return [line.strip() for line in lines if " = " in line and "return" not in line]


def test_operators_append_in_program_order():
    function, (x, y) = function_of("2", "2")
    with Builder(function):
        out = -(x + y) * x / y - y
    assert text(function, out) == [
        "%0 = add(%x, %y) : f32[2]",
        "%1 = negate(%0) : f32[2]",
        "%2 = multiply(%1, %x) : f32[2]",
        "%3 = divide(%2, %y) : f32[2]",
        "%4 = subtract(%3, %y) : f32[2]",
    ]


@pytest.mark.parametrize(
    ("use", "names"),
    [
        (lambda x: 2 - x, ["constant", "broadcast_in_dim", "subtract"]),
        (lambda x: 2 / x, ["constant", "broadcast_in_dim", "divide"]),
        (lambda x: 2 + x, ["constant", "broadcast_in_dim", "add"]),
        (lambda x: x * 2, ["constant", "broadcast_in_dim", "multiply"]),
    ],
)
def test_numbers_stand_on_either_side(use: Callable[[Value], Value], names: list[str]):
    function, (x,) = function_of("2")
    with Builder(function):
        out = use(x)
    assert [op.name for op in function.ops] == names
    assert out.op is not None
    assert (out.op.operands[0] is x) == (names[-1] == "multiply")


@pytest.mark.parametrize("kind", [f32, bf16, s32, dtype("u8"), dtype("f16")], ids=str)
def test_a_number_takes_the_type_of_the_other_operand(kind: DType):
    function, (x,) = function_of("2,3", kind=kind)
    with Builder(function):
        out = x + 3
    assert out.type is x.type
    first = next(function.ops)
    assert first.attrs.literal("value") == Literal.of(kind, 3.0 if kind.is_float else 3)


def test_a_number_beside_a_scalar_is_not_broadcast():
    function, (x,) = function_of("")
    with Builder(function):
        out = x * 0.5
    assert text(function, out) == [
        "%0 = constant() value=f32[](0.5) : f32[]",
        "%1 = multiply(%x, %0) : f32[]",
    ]


def test_a_number_spreads_over_symbols():
    function = Function("f")
    x = function.block.add_arg(tensor(f32, (B, 4)), "x")
    with Builder(function):
        out = x + 1.0
    assert "%1 = broadcast_in_dim(%0) shape=[B,4] : f32[B,4]" in text(function, out)


@pytest.mark.parametrize(("kind", "number"), [(s32, 0.5), (s32, 2**31), (dtype("u8"), -1)])
def test_a_number_the_type_cannot_hold_is_refused(kind: DType, number: float):
    function, (x,) = function_of("2", kind=kind)
    with Builder(function), pytest.raises(GraphgenError) as caught:
        _ = x + number
    assert caught.value.code == "GG0104"
    assert caught.value.what == f"{number!r} is not a value of {kind.name}"


def test_operators_outside_a_builder():
    _, (x, y) = function_of("2", "2")
    with pytest.raises(GraphgenError) as caught:
        _ = x + y
    assert str(caught.value) == (
        "error[GG0705]: operators on values work inside `with Builder(...)` only\n"
        "  help: open the builder, or call its methods: b.add(x, y)"
    )


def test_the_innermost_builder_gets_the_operators():
    outer, (x,) = function_of("2")
    inner, (y,) = function_of("2")
    with Builder(outer):
        with Builder(inner):
            _ = y + y
        _ = x + x
    assert [len(function.block) for function in (outer, inner)] == [1, 1]
    with pytest.raises(GraphgenError):
        Builder.current()


def test_a_builder_closes_when_its_body_fails():
    function, _ = function_of("2")
    with pytest.raises(ValueError, match="no"), Builder(function):
        raise ValueError("no")
    with pytest.raises(GraphgenError):
        Builder.current()


def test_every_op_knows_the_line_and_scope_it_was_made_at():
    function, (x,) = function_of("2")
    with Builder(function) as b:
        first, at_first = x + x, line()
        with b.scope("layers.0") as outer, b.scope("attn") as inner:
            second, at_second = b.silu(first), line()
            assert b.scope_name == inner == f"{outer}.attn" == "layers.0.attn"
        third, at_third = b.convert(second, bf16), line()
    locs = [value.op.loc for value in (first, second, third) if value.op]
    assert locs == [
        loc(HERE, at_first),
        loc(HERE, at_second, "layers.0.attn"),
        loc(HERE, at_third),
    ]
    assert b.scope_name == ""


def test_a_scope_ends_when_its_body_fails():
    function, _ = function_of("2")
    b = Builder(function)
    with pytest.raises(ValueError, match="no"), b.scope("a"):
        raise ValueError("no")
    assert b.scope_name == ""


def test_layers_and_decompositions_have_the_line_of_the_model():
    from graphgen.nn import linear

    function = Function("prefill", phase="prefill")
    with Builder(function, Module("m")) as b:
        y = linear(b, "up", b.input("x", f32, (2, 4)), 8, bias=True)
    assert y.op is not None
    assert y.op.loc.file == "graphgen/nn/linear.py"
    assert y.op.loc.scope == "up"


def test_a_given_location_is_kept():
    function, (x,) = function_of("2")
    where = loc("model.py", 7, "top").through("dce")
    made = Builder(function, loc=where).silu(x)
    assert made.op is not None
    assert made.op.loc is where


def test_building_before_an_op():
    function, (x,) = function_of("2")
    with Builder(function):
        out = -x
    assert out.op is not None
    b = Builder(function, before=out.op)
    b.made = []
    b.silu(x)
    b.unary("exponential", x)
    assert [op.name for op in function.ops] == ["silu", "exponential", "negate"]
    assert [op.name for op in b.made] == ["silu", "exponential"]


def test_wrong_operands_are_shown_with_a_caret(golden: Callable[[str, str], None]):
    function, (x, y) = function_of("2,3", "4,5")
    shown: list[str] = []

    def fails(use: Callable[[], object]) -> None:
        with pytest.raises(GraphgenError) as caught:
            use()
        assert caught.value.code == "GG0105"
        shown.append(str(caught.value).replace(f"{HERE}:{caught.value.where.split(':')[1]}", HERE))

    with Builder(function) as b:
        with b.scope("model.layers.3"):
            fails(lambda: x + y)
            fails(lambda: b.dot(x, y))
        unnamed = -x
        fails(lambda: b.select(x, unnamed, unnamed))
        fails(lambda: b.concatenate([x, unnamed, y], 0))
        fails(lambda: b.reduce(x, [2], "add"))
        fails(lambda: b.emit("add", [x]))
    golden("graphgen/builder_errors.txt", "\n\n".join(shown))


def test_the_error_names_the_line_of_the_call():
    function, (x, y) = function_of("2", "3")
    at = line() + 1
    with Builder(function) as b, b.scope("attn"), pytest.raises(GraphgenError) as caught:
        _ = x + y
    assert caught.value.where == f"{HERE}:{at + 1} attn"
    at = line() + 1
    with Builder(function) as b, pytest.raises(GraphgenError) as caught:
        b.op("reduce", x, kind="add")
    assert (caught.value.code, caught.value.where) == ("GG0104", f"{HERE}:{at + 1}")


def test_nothing_is_appended_by_a_failing_call():
    function, (x, y) = function_of("2", "3")
    with Builder(function), pytest.raises(GraphgenError):
        _ = x + y
    assert len(function.block) == 0
    assert x.users == {}


def test_declarations_enter_the_interface_under_their_scope():
    module = Module("m")
    function = module.add(Function("prefill", phase="prefill"))
    with Builder(function, module) as b:
        x = b.input("x", f32, (B, 4))
        with b.scope("layers.0"):
            w = b.weight("weight", f32, (4, 4))
            k = b.state("cache", f32, (B, 4))
        b.set_state(k, b.dot(x, w))
        b.output("y", x)
    assert {name: row.role for name, row in module.interface.items()} == {
        "x": Role.INPUT,
        "layers.0.weight": Role.WEIGHT,
        "layers.0.cache": Role.STATE,
        "y": Role.OUTPUT,
    }
    assert [name for name, _ in function.outputs] == ["layers.0.cache", "y"]
    verify(module)


def test_a_program_binds_the_symbols_it_knows():
    module = Module("m")
    function = module.add(Function("decode", phase="decode"))
    function.dims["S"] = 1
    with Builder(function, module) as b:
        x = b.input("x", s32, (B, S))
        b.output("y", x, tensor(s32, (B, S)))
    assert x.type is tensor(s32, (B, 1))
    assert module.interface["x"].logical is tensor(s32, (B, S))
    verify(module)


def test_the_same_declaration_twice_is_one_argument():
    module = Module("m")
    first = module.add(Function("prefill", phase="prefill"))
    with Builder(first, module) as b:
        assert b.weight("w", f32, (4,)) is b.weight("w", f32, (4,))
    second = module.add(Function("decode", phase="decode"))
    with Builder(second, module) as b:
        b.weight("w", f32, (4,))
    assert [len(function.args) for function in (first, second)] == [1, 1]
    assert list(module.interface) == ["w"]


@pytest.mark.parametrize("again", ["type", "role"])
def test_another_declaration_of_the_same_name_is_refused(again: str):
    module = Module("m")
    with Builder(Function("f", phase="prefill"), module) as b:
        b.weight("w", f32, (4,))
        with pytest.raises(GraphgenError) as caught:
            _ = b.weight("w", bf16, (4,)) if again == "type" else b.state("w", f32, (4,))
    assert caught.value.code == "GG0107"
    here = "weight bf16[4]" if again == "type" else "state f32[4]"
    declared = f"{HERE}:{line() - 5}"
    assert caught.value.what == f"w is {here} here and weight f32[4] at {declared}"
    assert caught.value.where.startswith(f"{HERE}:")


def test_words_leave_out_what_changes_nothing():
    function, (x,) = function_of("2,3")
    b = Builder(function)
    assert b.convert(x, f32) is x
    assert b.reshape(x, (2, 3)) is x
    assert len(function.block) == 0


def test_words_make_the_ops_they_name():
    function, (x, y) = function_of("2,3", "4,3")
    with Builder(function) as b:
        zero = b.literal(0, s32)
        out = [
            b.dot(x, y),
            b.dot(x, y, bf16),
            b.slice_dim(x, 1, 1, 3),
            b.iota(s32, (2, 3), 1),
            b.compare(x, x, "LE"),
            b.dynamic_slice(x, [zero, zero], (1, 3)),
            b.full(True, tensor(pred, (2,))),
        ]
    assert [value.type.text for value in out] == [
        "f32[2,4]", "bf16[2,4]", "f32[2,2]", "s32[2,3]", "pred[2,3]", "f32[1,3]", "pred[2]",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "my input", "a/b", "7", "$x", "a:b", "a\nb"])
def test_a_name_that_text_cannot_hold_is_refused(name: str):
    module = Module("m")
    with Builder(Function("f", phase="prefill"), module) as b:
        x = b.input("x", f32, (4,))
        for declare in (lambda: b.input(name, f32, (4,)), lambda: b.output(name, x)):
            with pytest.raises(GraphgenError) as caught:
                declare()
            assert (caught.value.code, caught.value.what) == ("GG0705", f"'{name}' is not a name")
    assert list(module.interface) == ["x"]
