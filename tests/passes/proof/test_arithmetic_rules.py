"""Integer arithmetic of proofs on known numbers: what is decided is what NumPy computes."""

from __future__ import annotations

import pytest

from graphgen.eval import evaluate
from graphgen.ir.dims import Poly
from graphgen.passes.proof.elements import Elements
from graphgen.passes.proof.terms import Terms
from graphgen.text import parse

# Elements of an operand from -3 to 4 and of one of all such numbers: what is computed of them.
TEXT = """\
module @m level=logical {{
  output %y : {result}
}}

func @f phase=main {{
  %n = iota() dtype={kind} shape=[8] dimension=0 : {kind}[8]
  %three = constant() value={kind}[](3) : {kind}[]
  %threes = broadcast_in_dim(%three) shape=[8] dimensions=[] : {kind}[8]
  %x = subtract(%n, %threes) : {kind}[8]
  %k = constant() value={kind}[]({number}) : {kind}[]
  %c = broadcast_in_dim(%k) shape=[8] dimensions=[] : {kind}[8]
  %y = {op} : {result}
  return y = %y
}}
"""


def element(op: str, number: int, kind: str = "s32", result: str = "s32[8]") -> list[object]:
    """The numbers of the op's result, ``None`` where the term is none."""
    text = TEXT.format(op=op, number=number, kind=kind, result=result)
    function = parse(text).function("f")
    (value,) = (value for name, value in function.outputs if name == "y")
    wanted = evaluate(function, {})["y"].tolist()
    elements = Elements(Terms(), {})
    found = [elements.at(value, (place,)) for place in range(8)]
    decided = [term if isinstance(term, int) else None for term in found]
    for term, right in zip(decided, wanted, strict=True):
        assert term is None or term == right
    return list(decided)


def decided(found: list[object]) -> list[int]:
    return [place - 3 for place, term in enumerate(found) if term is not None]


ALL = list(range(-3, 5))


@pytest.mark.parametrize("number", [-2, 0, 1, 3, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "minimum", "maximum"])
def test_rings_and_extremes_are_decided_and_wrap(op: str, number: int):
    assert decided(element(f"{op}(%x, %c)", number)) == ALL
    assert decided(element(f"{op}(%c, %x)", number)) == ALL


def test_negation_and_clamps():
    assert element("negate(%x)", 0) == [3, 2, 1, 0, -1, -2, -3, -4]
    assert element("clamp(%k, %x, %three)", -1) == [-1, -1, -1, 0, 1, 2, 3, 3]
    assert element("clamp(%c, %x, %threes)", -1) == [-1, -1, -1, 0, 1, 2, 3, 3]


@pytest.mark.parametrize("op", ["divide", "remainder"])
def test_quotients_are_decided_for_positive_divisors(op: str):
    for number in (1, 2, 3, 5):
        assert decided(element(f"{op}(%x, %c)", number)) == ALL
    for number in (-2, -1):
        assert decided(element(f"{op}(%x, %c)", number)) == []


def test_shifts_are_decided_within_the_width():
    for number in (0, 1, 30, 31):
        assert decided(element("shift_left(%x, %c)", number)) == ALL
        assert decided(element("shift_right_arithmetic(%x, %c)", number)) == ALL
        # The bits of a negative number that come in are not known.
        assert decided(element("shift_right_logical(%x, %c)", number)) == [0, 1, 2, 3, 4]
    for number in (-1, 32, 33):
        for op in ("shift_left", "shift_right_arithmetic", "shift_right_logical"):
            assert decided(element(f"{op}(%x, %c)", number)) == []


def test_masks_of_low_bits_are_remainders():
    for number in (0, 1, 3, 7, 255):
        assert decided(element("and(%x, %c)", number)) == ALL
        assert decided(element("and(%c, %x)", number)) == ALL
    for number in (2, 5, 6):
        assert 4 not in decided(element("and(%c, %c)", number))


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
def test_comparisons_and_choices(direction: str):
    for number in (-3, 0, 1, 4):
        found = element(f"compare(%x, %c) direction={direction}", number, result="pred[8]")
        assert decided(found) == ALL


def test_conversions():
    assert element("convert(%x) dtype=s8", 0, result="s8[8]") == [-3, -2, -1, 0, 1, 2, 3, 4]
    assert element("convert(%x) dtype=u8", 0, result="u8[8]") == [253, 254, 255, 0, 1, 2, 3, 4]
    found = element("convert(%x) dtype=pred", 0, result="pred[8]")
    assert found == [True, True, True, False, True, True, True, True]


@pytest.mark.parametrize("direction", ["EQ", "NE", "LE"])
@pytest.mark.parametrize("over", ["1.0", "-1.0", "0.0"])
@pytest.mark.parametrize("number", ["-inf", "inf", "2.0"])
def test_an_inverse_is_not_minus_infinity_in_real_arithmetic(
    number: str, over: str, direction: str
):
    """It is for -0, which this arithmetic has not; programs ask so which zero is the larger one."""
    function = parse(
        "module @m level=logical {\n  input %x : f32[4]\n  output %y : pred[4]\n}\n\n"
        "func @f phase=main {\n  arg %x : f32[4]\n"
        f"  %o = constant() value=f32[]({over}) : f32[]\n"
        "  %one = broadcast_in_dim(%o) shape=[4] dimensions=[] : f32[4]\n"
        "  %inverse = divide(%one, %x) : f32[4]\n"
        f"  %n = constant() value=f32[]({number}) : f32[]\n"
        "  %c = broadcast_in_dim(%n) shape=[4] dimensions=[] : f32[4]\n"
        f"  %y = compare(%inverse, %c) direction={direction} : pred[4]\n  return y = %y\n}}\n"
    ).function("f")
    ((_, value),) = function.outputs
    exact = Elements(Terms(), {function.args[0]: "x"}, deep=True)
    assert not isinstance(exact.at(value, (1,)), bool)
    found = exact.in_real_arithmetic().at(value, (1,))
    if (number, over) == ("-inf", "1.0") and direction != "LE":
        assert found is (direction == "NE")
    else:
        assert not isinstance(found, bool)


def test_a_quotient_of_unknown_sign_rounds_toward_zero():
    """Both ways to round are in the term, chosen by the sign."""
    text = TEXT.format(op="divide(%x, %c)", number=2, kind="s32", result="s32[8]")
    function = parse(text).function("f")
    ((_, value),) = function.outputs
    terms = Terms()
    place = terms.variable("i", 8)
    term = Elements(terms, {}).at(value, (place,))
    assert isinstance(term, Poly)
    (atom,) = (node for node in terms.atoms.values() if node.kind == "if")
    assert {node.kind for node in terms.atoms.values()} == {"if", "div"}
    assert len(atom.args) == 3
