"""Bounds of integers; 64-bit ids whose bounds are known are sorted where a target cannot sort."""

from __future__ import annotations

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.eval import Array, evaluate
from graphgen.passes.legalize.neuron_sort import integer_bounds
from graphgen.text import parse
from tests.oracles.small_modules import after, function

# Ids of the 2 best of 6 experts, their places, and a constant.
GIVEN = (
    "arg %x : f32[3,6]",
    "arg %n : s64[3,2]",
    "%v, %k = top_k(%x) k=2 : f32[3,2], s32[3,2]",
    "%i = convert(%k) dtype=s64 : s64[3,2]",
    "%p = iota() dtype=s64 shape=[3,2] dimension=0 : s64[3,2]",
    "%c = constant() value=s64[](-4) : s64[]",
    "%d = broadcast_in_dim(%c) shape=[3,2] : s64[3,2]",
    "%three = constant() value=s64[](3) : s64[]",
    "%m = broadcast_in_dim(%three) shape=[3,2] : s64[3,2]",
)
CASES: dict[str, tuple[str, tuple[int, int] | None]] = {
    "ids": ("reshape(%i) shape=[3,2] : s64[3,2]", (0, 5)),
    "places": ("reshape(%p) shape=[3,2] : s64[3,2]", (0, 2)),
    "an argument": ("reshape(%n) shape=[3,2] : s64[3,2]", None),
    "sum": ("add(%i, %d) : s64[3,2]", (-4, 1)),
    "difference": ("subtract(%i, %d) : s64[3,2]", (4, 9)),
    "product": ("multiply(%i, %d) : s64[3,2]", (-20, 0)),
    "with an argument": ("add(%i, %n) : s64[3,2]", None),
    "minimum": ("minimum(%i, %p) : s64[3,2]", (0, 2)),
    "maximum": ("maximum(%i, %p) : s64[3,2]", (0, 5)),
    "clamp": ("clamp(%c, %n, %three) : s64[3,2]", (-4, 3)),
    "remainder": ("remainder(%i, %m) : s64[3,2]", (0, 2)),
    "remainder of a negative number": ("remainder(%d, %m) : s64[3,2]", (-2, 0)),
    "side by side": ("concatenate(%i, %d) dimension=1 : s64[3,4]", (-4, 5)),
    "eight bits": ("convert(%i) dtype=s8 : s8[3,2]", (0, 5)),
    "the largest": ("reduce(%i) dimensions=[1] kind=maximum : s64[3]", (0, 5)),
    "sorted": ("sort(%i) dimension=1 : s64[3,2]", (0, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds_of_what_is_computed(name: str):
    last, expected = CASES[name]
    module = parse(function(*GIVEN, f"%y = {last}", "return y = %y"))
    ((_, value),) = module.function("f").outputs
    assert integer_bounds(value) == expected
    if expected is not None:
        random = np.random.default_rng(1)
        scores = random.standard_normal((3, 6)).astype(np.float32)
        given: dict[str, Array] = {"x": scores, "n": random.integers(-9, 9, (3, 2))}
        made = evaluate(module.function("f"), given)["y"]
        assert expected[0] <= made.min()
        assert made.max() <= expected[1]


def test_numbers_that_wrap_around_have_no_bounds():
    text = function(
        "%i = iota() dtype=u8 shape=[200] dimension=0 : u8[200]",
        "%y = add(%i, %i) : u8[200]",
        "return y = %y",
    )
    ((_, value),) = parse(text).function("f").outputs
    assert integer_bounds(value) is None


def test_a_chain_of_sums_takes_no_longer_than_its_ops():
    ops = [f"%a{n + 1} = multiply(%a{n}, %a{n}) : s32[2]" for n in range(60)]
    first = "%a0 = iota() dtype=s32 shape=[2] dimension=0 : s32[2]"
    ((_, value),) = parse(function(first, *ops, "return y = %a60")).function("f").outputs
    assert integer_bounds(value) is None


def _sorted(ids: str, descending: str = "") -> str:
    return function(
        *GIVEN,
        f"%f = reshape({ids}) shape=[6] : s64[6]",
        "%q = iota() dtype=s64 shape=[6] dimension=0 : s64[6]",
        f"%y, %z = sort(%f, %q) dimension=0{descending} : s64[6], s64[6]",
        "return y = %y",
        "return z = %z",
    )


@pytest.mark.parametrize("descending", ["", " descending=true"])
def test_ids_of_64_bits_are_sorted_by_one_kernel(descending: str):
    """Mixtral's experts in transformers 5."""
    before = _sorted("%i", descending)
    text = after(before, "legalize{target=trn2}")
    assert "sort(" not in text
    # One of them chooses the experts.
    assert text.count("AwsNeuronTopK") == 2
    random = np.random.default_rng(2)
    scores = random.standard_normal((3, 6)).astype(np.float32)
    given: dict[str, Array] = {"x": scores, "n": np.zeros((3, 2), np.int64)}
    ours, theirs = (evaluate(parse(m).function("f"), given) for m in (before, text))
    for name in ("y", "z"):
        assert theirs[name].dtype == np.int64
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_64_bits_of_an_argument_are_left():
    assert "sort(" in after(_sorted("%n"), "legalize{target=trn2}")
