"""Loops and choices: what they compute, on one rank and on several, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.analysis import called, has_effects, is_opaque
from graphgen.errors import GraphgenError
from graphgen.eval import control, evaluate_ranks
from graphgen.ops import verify
from graphgen.text import parse, print_module

TEXT = (Path(__file__).parents[2] / "data" / "control.gg").read_text()
X = [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("start", [-1, 0, 1, 2, 5, 7])
def test_a_loop_and_a_choice_compute_what_python_does(start: int):
    module = parse(TEXT)
    verify(module)
    given = module.evaluate({"i": start, "x": X})
    n, y = start, np.array(X, np.float32)
    while n < 5:
        n, y = n + 1, y + y
    # A number without a branch is the last one.
    z = -np.array(X, np.float32) if start == 0 else np.array(X, np.float32) * y
    np.testing.assert_array_equal(given["n"], n)
    np.testing.assert_array_equal(given["y"], y)
    np.testing.assert_array_equal(given["z"], z)


def test_true_is_the_first_branch():
    text = TEXT.replace("input %i : s32[]", "input %i : s32[]\n  input %p : pred[]")
    text = text.replace(
        "phase=main {\n  arg %i : s32[]", "phase=main {\n  arg %i : s32[]\n  arg %p : pred[]"
    ).replace("conditional(%i", "conditional(%p")
    module = parse(text)
    for flag in (True, False):
        z = module.evaluate({"i": 5, "p": flag, "x": X})["z"]
        expected = -np.array(X) if flag else np.array(X) * np.array(X)
        np.testing.assert_array_equal(z, expected.astype(np.float32))


def test_each_rank_goes_its_own_way():
    module = parse(TEXT)
    inputs = [{"i": np.int32(i), "x": np.array(X, np.float32)} for i in (0, 4, 9)]
    together = evaluate_ranks(module.function("f"), inputs, module=module)
    for given, found in zip(inputs, together, strict=True):
        (alone,) = evaluate_ranks(module.function("f"), [given], module=module)
        for name, array in alone.items():
            np.testing.assert_array_equal(found[name], array)


def test_ranks_that_part_cannot_talk():
    text = TEXT.replace("level=logical", "level=sharded mesh=replica:2").replace(
        "  %y = add(%x, %x) : f32[4]",
        "  %y = all_reduce(%x) kind=add replica_groups=[[0,1]] : f32[4]",
    )
    module = parse(text)
    verify(module)
    x = np.array(X, np.float32)
    both = [{"i": np.int32(3), "x": x}, {"i": np.int32(3), "x": 2 * x}]
    found = evaluate_ranks(module.function("f"), both, module=module)
    np.testing.assert_array_equal(found[0]["y"], 6 * x)
    apart = [{"i": np.int32(3), "x": x}, {"i": np.int32(4), "x": x}]
    with pytest.raises(GraphgenError) as caught:
        evaluate_ranks(module.function("f"), apart, module=module)
    assert caught.value.code == "GG0403"
    assert caught.value.what == "all_reduce is reached by 1 of 2 ranks: the others wait"


def test_a_loop_without_an_end_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(control, "MOST_TRIPS", 20)
    module = parse(TEXT.replace("direction=LT", "direction=NE"))
    with pytest.raises(GraphgenError) as caught:
        module.evaluate({"i": 7, "x": X})
    assert caught.value.code == "GG0404"
    assert caught.value.what == "while: @below still holds after 20 turns"
    # A loop that says how many it makes may make them.
    known = TEXT.replace("value=s32[](5)", "value=s32[](25)")
    known = known.replace("body=step :", "body=step trip_count=25 :")
    assert parse(known).evaluate({"i": 0, "x": X})["n"] == 25


def test_the_functions_of_a_module_are_needed():
    with pytest.raises(GraphgenError) as caught:
        parse(TEXT).function("f").evaluate({"i": 0, "x": X})
    assert caught.value.code == "GG0403"
    assert caught.value.what == "while runs @below, a function of a module that is not at hand"


def test_symbols_are_bound_by_what_is_given():
    module = parse(TEXT.replace("f32[4]", "f32[B]"))
    assert print_module(module) == TEXT.replace("f32[4]", "f32[B]")
    given = module.evaluate({"i": 3, "x": [1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(given["y"], np.array([4.0, 8.0, 12.0], np.float32))


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("condition=below", "condition=nowhere", "GG0202", "while: no function @nowhere stands"),
        ("body=step", "body=f", "GG0202", "while: no function @f stands before this one"),
        ("condition=below", "condition=step", "GG0203", "while: the results of @step are s32"),
        ("body=step", "body=below", "GG0203", "while: the results of @below are pred[]"),
        ("body=step", "body=less", "GG0203", "while: the operands of @less are f32[4]"),
        ("branches=[less,more]", "branches=[more,less]", "GG0203", "conditional: the operands of"),
        ("[less,more]", "[less,step]", "GG0203", "conditional: the operands of @step are s32[]"),
        ("func @less {", "func @less phase=main {", "GG0204", "conditional: @less is an entry"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(old: str, new: str, code: str, message: str):
    module = parse(TEXT.replace(old, new))
    with pytest.raises(GraphgenError) as caught:
        verify(module)
    assert caught.value.code == code
    assert caught.value.what.startswith(message)


def test_what_a_program_runs_is_known():
    module = parse(TEXT)
    names = [item.name for item in called(module, module.function("f"))]
    assert names == ["below", "step", "less", "more"]
    assert called(module, module.function("step")) == []
    call = 'custom_call(%x) target="other" results=[f32[4]]'
    foreign = parse(TEXT.replace("%y = negate(%x)", f"%y = {call}"))
    loop, choice = foreign.function("f").block
    assert (is_opaque(foreign, loop), is_opaque(foreign, choice)) == (False, True)
    says_so = call.replace(" results", ' more="880401" results')
    effect = parse(TEXT.replace("%y = negate(%x)", f"%y = {says_so}"))
    loop, choice = effect.function("f").block
    assert (has_effects(effect, loop), has_effects(effect, choice)) == (False, True)


LARGEST = """\
module @m level=logical {
}

func @larger {
  arg %x : f32[]
  arg %i : s32[]
  arg %y : f32[]
  arg %j : s32[]
  %t = compare(%x, %y) direction=GT : pred[]
  %u = select(%t, %x, %y) : f32[]
  %k = select(%t, %i, %j) : s32[]
  return u = %u
  return k = %k
}

func @f {
  arg %x : f32[SHAPE]
  arg %i : s32[SHAPE]
  arg %low : f32[]
  arg %none : s32[]
  %y, %p = reduce_by(%x, %i, %low, %none) dimensions=[DIMS] to_apply=larger : f32[KEPT], s32[KEPT]
  return y = %y
  return p = %p
}
"""


@pytest.mark.parametrize(
    ("shape", "dims", "kept"),
    [("0,2", "0", "2"), ("0,2", "1", "0"), ("0,2", "0,1", ""), ("2,0,3", "2", "2,0")],
)
def test_a_reduction_of_no_elements_is_what_it_begins_with(shape: str, dims: str, kept: str):
    module = parse(LARGEST.replace("SHAPE", shape).replace("DIMS", dims).replace("KEPT", kept))
    verify(module)
    sizes = [int(size) for size in shape.split(",")]
    given = {"x": np.zeros(sizes), "i": np.zeros(sizes), "low": -5.0, "none": -1}
    (found,) = evaluate_ranks(
        module.function("f"), [{k: np.asarray(v) for k, v in given.items()}], module=module
    )
    wanted = [int(size) for size in kept.split(",") if size]
    np.testing.assert_array_equal(found["y"], np.full(wanted, -5.0))
    np.testing.assert_array_equal(found["p"], np.full(wanted, -1))


@pytest.mark.parametrize(("dims", "axis"), [("0", 0), ("1", 1), ("0,1", None), ("1,0", None)])
def test_a_reduction_by_a_function_gives_values_and_places(dims: str, axis: int | None):
    kept = {0: "3", 1: "4", None: ""}[axis]
    module = parse(LARGEST.replace("SHAPE", "4,3").replace("DIMS", dims).replace("KEPT", kept))
    x = np.random.default_rng(0).permutation(12).astype(np.float32).reshape(4, 3)
    places = np.arange(12, dtype=np.int32).reshape(4, 3)
    given = {"x": x, "i": places, "low": np.float32(-5), "none": np.int32(-1)}
    (found,) = evaluate_ranks(
        module.function("f"), [{k: np.asarray(v) for k, v in given.items()}], module=module
    )
    np.testing.assert_array_equal(found["y"], x.max(axis))
    np.testing.assert_array_equal(x.reshape(-1)[found["p"]], x.max(axis))


def test_a_collective_names_no_rank_beyond_those_of_the_module():
    text = TEXT.replace(
        "  %y = add(%x, %x) : f32[4]",
        "  %y = all_reduce(%x) kind=add replica_groups=[[0,1]] : f32[4]",
    )
    module = parse(text)
    with pytest.raises(GraphgenError, match="all_reduce names rank 1, and the module has 1"):
        module.evaluate({"i": 3, "x": X})
