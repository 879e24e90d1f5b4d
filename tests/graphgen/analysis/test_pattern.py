"""Patterns over ops: each part of the language by what it finds and what it does not."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Function
from graphgen.pattern import Known, compare, find, parse_pattern
from graphgen.text import parse

TEXT = """\
module @m level=target {
}

func @f {
  arg %x : f32[2,4]
  arg %w : f32[4,4]
  %k = constant() value=f32[](2.0) : f32[]
  %d = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[2,4]  # a.py:7 layers.0.mlp
  %r = reshape(%d) shape=[8] : f32[8]
  %s = multiply(%d, %d) : f32[2,4]
  %t = transpose(%s) permutation=[1,0] : f32[4,2]
  %v, %i = custom_call(%t) target="AwsNeuronTopK" config="1" results=[f32[4,1],u32[4,1]] : f32[4,1], u32[4,1]
  %o = hlo.opaque(%r) opcode="erf-inv" results=[f32[8]] : f32[8]
  %c = concatenate(%r, %o, %r) dimension=0 : f32[24]
  return c = %c
  return i = %i
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def function() -> Function:
    return parse(TEXT).function("f")


def found(function: Function, pattern: str) -> list[str]:
    """The names of the results of each match."""
    (x, w) = function.args
    known = Known(
        {x: "inputs", w: "weights"},
        {op: "layers.0" for op in function.block if op.name == "dot_general"},
    )
    matches = find(function, parse_pattern(pattern), known)
    return [
        " ".join(
            [
                *[op.results[0].name or "?" for op in m.ops],
                *([f"return:{m.output}"] if m.output else []),
            ]
        )
        for m in matches
    ]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("dot_general", ["d"]),
        ("dot", ["d"]),
        ("reshape|transpose", ["r", "t"]),
        ("re*", ["r"]),
        ("erf-inv", ["o"]),
        ("erf_inv", ["o"]),
        ("hlo.opaque", ["o"]),
        ("custom-call", ["v"]),
        ("dot_general(_, param)", ["d"]),
        ("dot_general(input, weight)", ["d"]),
        ("dot_general(weight, _)", []),
        ("dot_general(cache, _)", []),
        ("dot_general(_)", []),
        ("dot_general(_, ...)", ["d"]),
        ("constant()", ["k"]),
        ("multiply($a, $a)", ["s"]),
        ("concatenate($a, $b, $a)", ["c"]),
        ("concatenate($a, $a, ...)", []),
        ("concatenate(_, erf-inv(reshape), ...)", ["c"]),
        ("multiply(dot(%x, %w), _)", ["s"]),
        ("multiply(dot(%w, _), _)", []),
        ("_(const)", []),
        ("dot -> reshape", ["d r"]),
        ("dot -> _", ["d r", "d s"]),
        ("dot -> multiply -> transpose", ["d s t"]),
        ("dot($a, _) -> multiply(_, dot($a, _))", ["d s"]),
        ("_ -> return", ["v return:i", "c return:c"]),
        ("reshape -> return", []),
        ("_{uses=0}", ["k", "v", "c"]),
        ("_{uses>2}", ["d", "r"]),
        ("_{bytes>=96}", ["c"]),
        ("_{rank=1 bytes<50}", ["r", "o"]),
        ("custom_call{target=AwsNeuron*}", ["v"]),
        ("custom_call{target!=AwsNeuron*}", []),
        ("transpose{permutation=[1,0]}", ["t"]),
        ("dot{layer=layers.0, file=*.py line=7}", ["d"]),
        ("dot{scope=*.mlp dtype=f32}", ["d"]),
        ("_{permutation=*}", ["t"]),
        ("_ : f32[8]", ["r", "o"]),
        ("_ : *[4,*]", ["t", "v"]),
        ("dot(_ : f32[2,*], %w{bytes=64} : f32[4,4])", ["d"]),
        ("dot(_ : f32[3,*], _)", []),
    ],
)
def test_what_a_pattern_finds(function: Function, pattern: str, names: list[str]):
    assert found(function, pattern) == names


@pytest.mark.parametrize(
    ("pattern", "what", "at"),
    [
        ("", "expected the name of an op, found 'the end'", 0),
        ("dot(", "expected the name of an op, found 'the end'", 4),
        ("dot(_ _)", "expected , or )", 6),
        ("dot reshape", "expected -> or the end, found 'reshape'", 4),
        ("dot -> ", "expected the name of an op, found 'the end'", 7),
        ("return -> dot", "nothing reads what is returned", 7),
        ("dot(return)", "return stands alone, at the end of a chain", 4),
        ("dot{k}", "'k' is not a list of key=value", 3),
        ("dot ; x", "this is not part of a pattern", 4),
        ("%x", "expected the name of an op, found '%x'", 0),
    ],
)
def test_a_mistake_is_shown_at_its_place(pattern: str, what: str, at: int):
    with pytest.raises(GraphgenError) as caught:
        parse_pattern(pattern)
    assert (caught.value.code, caught.value.what) == ("GG0705", f"pattern: {what}")
    assert caught.value.note == f"{pattern}\n{' ' * at}^"


def test_comparisons():
    assert compare(2_000_000, ">", "1.5MB")
    assert not compare(2_000_000, "<=", "1.5MB")
    assert compare("1e-05", "=", "0.00001")
    assert compare("add", "!=", "max*")
    assert not compare("add", "<", "5")
