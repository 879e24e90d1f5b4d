"""Merge sort by a comparator, against NumPy's stable sort."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from graphgen.eval import MEANING, NATIVE, evaluate
from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.map_reduce import sorted_by
from graphgen.eval.observer import Columns
from graphgen.eval.registry import RULES
from graphgen.ir import Attrs
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text


def less(mine: Columns, theirs: Columns) -> Sequence[Array]:
    return [a < b for a, b in zip(mine[0], theirs[0], strict=True)]


@pytest.mark.parametrize("size", [*range(10), 16, 17, 31])
def test_every_length_is_sorted_and_equal_elements_keep_their_order(size: int):
    random = np.random.default_rng(size)
    keys = [random.integers(0, 4, (3, size)).astype(np.int32) for _ in range(2)]
    places = [np.broadcast_to(np.arange(size, dtype=np.int32), (3, size)) for _ in range(2)]
    found = sorted_by([keys, places], 1, less)
    for rank in range(2):
        order = np.argsort(keys[rank], 1, kind="stable")
        np.testing.assert_array_equal(found[0][rank], np.take_along_axis(keys[rank], order, 1))
        np.testing.assert_array_equal(found[1][rank], order)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_lines_lie_along_any_dimension(axis: int):
    keys = np.random.default_rng(0).permutation(60).reshape(3, 4, 5)
    ((found,),) = sorted_by([[keys]], axis, less)
    np.testing.assert_array_equal(found, np.sort(keys, axis))


BY_BITS = """\
HloModule sorted

%before (p: f32[], q: f32[]) -> pred[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  %a = s32[] bitcast-convert(%p)
  %b = s32[] bitcast-convert(%q)
  MADE
}

ENTRY %main (x: f32[3,17]) -> f32[3,17] {
  %x = f32[3,17]{1,0} parameter(0)
  ROOT %y = f32[3,17]{1,0} sort(%x), dimensions={1}, is_stable=true, to_apply=%before
}
"""
# Integers that are computed with, and integers that are floats again.
MADE = {
    "bits": "ROOT %c = pred[] compare(%a, %b), direction=LT",
    "carried": """%c = f32[] bitcast-convert(%a)
  %d = f32[] bitcast-convert(%b)
  ROOT %e = pred[] compare(%c, %d), direction=LT""",
}


@pytest.mark.parametrize("arithmetic", [NATIVE, MEANING])
@pytest.mark.parametrize("made", MADE)
def test_a_comparator_of_bits_sees_all_elements_at_once(
    made: str, arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch
):
    module = read_hlo(parse_hlo_text(BY_BITS.replace("MADE", MADE[made])))
    numbers = np.random.default_rng(0).random((3, 17)).astype(np.float32)
    shapes: list[tuple[int, ...]] = []
    rule = RULES["bitcast_convert"]

    def watched(how: Arithmetic, attrs: Attrs, given: Sequence[Array]) -> Array:
        shapes.append(given[0].shape)
        return rule(how, attrs, given)

    monkeypatch.setitem(RULES, "bitcast_convert", watched)
    (program,) = module.programs()
    (found,) = evaluate(program, {"x": numbers}, arithmetic, module=module).values()
    np.testing.assert_array_equal(found, np.sort(numbers, 1))
    assert shapes
    assert () not in shapes
