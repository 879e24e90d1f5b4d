"""Integers and other values are drawn to the ends of their domains, uses and types."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.ir import Domain, dtype, symbol, tensor
from graphgen.ir.dtype import DTYPES, highest, lowest
from graphgen.passes.workload.integer_uses import IntegerUse, use_of
from graphgen.passes.workload.legal_values import (
    MOST_CALLS,
    calls_for,
    draw_integers,
    draw_within,
    special_integers,
)
from graphgen.passes.workload.make_workload import make_workload, workload_for
from graphgen.text import parse

S32 = dtype("s32")
INTEGERS = [kind for kind in DTYPES.values() if kind.is_integer]
READERS = """\
module @m level=target {
  input %x : f32[16,N]
  input %i : s32[]
  input %j : s32[3]
  input %n : s32[]
  input %plain : s32[]
  output %y : f32[8,N]
  output %z : f32[3,N]
  output %w : s32[]
}

func @main.condition {
  arg %at : s32[]
  arg %limit : s32[]
  %0 = compare(%at, %limit) direction=LT : pred[]
  return at.next = %0
}

func @main.body {
  arg %at : s32[]
  arg %limit : s32[]
  %0 = constant() value=s32[](1) : s32[]
  %1 = add(%at, %0) : s32[]
  return at.next = %1
  return limit.next = %limit
}

func @main phase=main {
  arg %x : f32[16,N]
  arg %i : s32[]
  arg %j : s32[3]
  arg %n : s32[]
  arg %plain : s32[]
  %zero = constant() value=s32[](0) : s32[]
  %one = constant() value=s32[](1) : s32[]
  %shifted = add(%i, %one) : s32[]
  %y = dynamic_slice(%x, %shifted, %zero) slice_sizes=[8,N] : f32[8,N]
  %z = gather(%x, %j) offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=1 slice_sizes=[1,N] : f32[3,N]
  %0, %1 = while(%zero, %n) condition=main.condition body=main.body : s32[], s32[]
  %w = add(%0, %plain) : s32[]
  return y = %y
  return z = %z
  return w = %w
}
"""


def test_integers_are_followed_to_their_readers():
    module = parse(READERS)
    main = module.function("main")
    found = {name: use_of(module, main, name, {"N": 4}) for name in ("i", "j", "n", "plain")}
    assert found["i"] == IntegerUse((9, 16))
    assert found["j"] == IntegerUse((16,))
    assert found["n"] == IntegerUse(turns=True)
    assert found["plain"] == IntegerUse()


def given(name: str, seed: int = 0) -> list[int]:
    calls = make_workload(parse(READERS), seed).calls
    return [int(x) for call in calls for x in np.ravel(call.inputs[name])]


def test_calls_have_the_ends_of_what_integers_index():
    for name in ("i", "j"):
        assert {-1, 0, 15, 16, 17, -(2**31), 2**31 - 1} <= set(given(name))
    assert {8, 9} <= set(given("i"))
    assert {0, 1, -1, 2**31 - 1, -(2**31)} <= set(given("plain"))


def test_loops_turn_few_times_and_not_at_all():
    assert {0, -1, 1} <= set(given("n"))
    many = [n for n in given("n") if n >= 10]
    assert {*many} == {257}
    assert len(many) <= 2


def test_the_seed_changes_what_is_drawn():
    for name in ("i", "j", "plain"):
        assert given(name) == given(name)
        assert given(name) != given(name, 1)


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_each_integer_type_is_drawn_to_its_ends(kind: object):
    type_ = dtype(str(kind))
    rng = np.random.default_rng(0)
    specials = special_integers(type_)
    size = len(specials)
    array = draw_integers(rng, tensor(type_, (size,)), turn=1)
    assert {int(lowest(type_)), int(highest(type_))} <= {int(x) for x in array}
    assert all(lowest(type_) <= x <= highest(type_) for x in specials)


@pytest.mark.parametrize("domain", [Domain(-1, 6), Domain(0, 2**31 - 1), Domain.of({2, 5, 99})])
@pytest.mark.parametrize("size", [1, 2, 40])
def test_nothing_outside_of_a_domain_and_its_ends_are_drawn(domain: Domain, size: int):
    type_ = tensor(S32, (size,))
    calls = calls_for(len(special_integers(S32, IntegerUse(), domain)), size)
    rng = np.random.default_rng(1)
    use = IntegerUse((4, 1000))
    drawn = [draw_integers(rng, type_, use, domain, turn) for turn in range(calls + 1)]
    values = {int(x) for array in drawn for x in array}
    assert all(domain.holds(x) for x in values)
    assert calls <= MOST_CALLS
    ends = domain.values or (domain.low, domain.high)
    assert set(ends) <= values


@pytest.mark.parametrize("kind", ["f32", "bf16", "f64", "f8e4m3fn"])
def test_floats_are_drawn_inside_of_their_domain(kind: str):
    domain, rng = Domain(0.0, 1 - 2.0**-24), np.random.default_rng(2)
    drawn = [draw_within(rng, tensor(dtype(kind), (50,)), domain, turn) for turn in range(4)]
    wide = np.concatenate(drawn).astype(np.float64)
    assert ((wide >= 0) & (wide < 1)).all()
    assert len(set(wide.tolist())) > 10
    assert 0.0 in wide


def test_a_file_with_domains_is_called_inside_of_them():
    text = READERS.replace("%i : s32[]\n", "%i : s32[] domain=[2,N]\n", 1)
    text = text.replace("f32[16,N]\n", "f32[16,N] domain=[-0.5,0.25]\n", 1)
    calls = workload_for(parse(text), [], dims={"N": 5}).calls
    at = {int(call.inputs["i"]) for call in calls}
    assert {2, 5} <= at <= {2, 3, 4, 5}
    x = np.stack([call.inputs["x"] for call in calls])
    assert (x.min(), x.max()) == (-0.5, 0.25)


def test_complex_numbers_have_both_parts():
    text = """\
module @m level=target {
  input %x : c64[4]
  state %s : c64[4]
  output %y : c64[4]
}

func @main phase=main {
  arg %x : c64[4]
  arg %s : c64[4]
  %y = multiply(%x, %s) : c64[4]
  return y = %y
  return s = %y
}
"""
    made = make_workload(parse(text))
    for array in (made.calls[0].inputs["x"], made.states["s"]):
        # Both parts, the imaginary one alone, the real one alone, and again.
        assert (np.real(array) != 0).tolist() == [True, False, True, True]
        assert (np.imag(array) != 0).tolist() == [True, True, False, True]


def test_unbound_ends_are_those_of_the_type():
    domain = Domain(0, symbol("N"))
    assert special_integers(S32, IntegerUse(), domain)[:2] == (0, 2**31 - 1)
