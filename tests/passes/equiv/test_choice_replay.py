"""Flips of choices: within the margin they are replayed, outside they show in what follows."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.composites.top_k import top_k
from graphgen.eval import MEANING
from graphgen.exec.session import ProgramCall, Workload
from graphgen.ir import Function, Module, Value, attrs_of
from graphgen.ir.dtype import f32, s32
from graphgen.ops import OPS, verify
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.equiv.recorded_run import RecordedRun, record

ROWS, SIZE = 2, 6
TABLE = np.random.default_rng(0).standard_normal((SIZE, 3)).astype(np.float32)
BOUND = 1e-9


def chooser(form: str, *, noisy: bool = False, k: int = 2) -> Module:
    """Rows of a table by the best scores, as a router of experts has them."""
    module = Module("m")
    with Builder(module.add(Function("f", phase="decode")), module) as b:
        scores = b.input("x", f32, (ROWS, SIZE))
        noise = b.input("noise", f32, (ROWS, SIZE))
        table = b.weight("table", f32, (SIZE, 3))
        with b.scope("router"):
            values, ids = FORMS[form](b, b.add(scores, noise) if noisy else scores, k)
        b.output("rows", b.embedding(table, ids))
        b.output("values", values)
    verify(module)
    return module


def best(b: Builder, x: Value, k: int) -> tuple[Value, Value]:
    values, ids = b.top_k(x, k)
    return values, ids


def ordered(b: Builder, x: Value, k: int) -> tuple[Value, Value]:
    values, ids = b.sort([x, b.iota(s32, x.shape, 1)], 1, descending=True)
    return b.slice_dim(values, 1, 0, k), b.slice_dim(ids, 1, 0, k)


def halves(b: Builder, x: Value, k: int) -> tuple[Value, Value]:
    """The best of two halves, then of those: elements have ids of their own."""
    found = [b.top_k(b.slice_dim(x, 1, at, at + SIZE // 2), k) for at in (0, SIZE // 2)]
    places = [b.binary("add", ids, b.full(at, ids.type)) for (_, ids), at in zip(found, (0, 3))]  # noqa: B905
    scores = b.concatenate([values for values, _ in found], 1)
    values, ids = b.sort([scores, b.concatenate(places, 1)], 1, descending=True)
    return b.slice_dim(values, 1, 0, k), b.slice_dim(ids, 1, 0, k)


def second(b: Builder, x: Value, k: int) -> tuple[Value, Value]:
    """Wrong: without the best."""
    values, ids = b.top_k(x, k + 1)
    return b.slice_dim(values, 1, 1, k + 1), b.slice_dim(ids, 1, 1, k + 1)


def kernel(b: Builder, x: Value, k: int) -> tuple[Value, Value]:
    from graphgen.passes.legalize.neuron_sort import in_order

    return in_order(b, x, k, descending=True)


def largest(b: Builder, x: Value, k: int) -> tuple[Value, Value]:
    """The first index whose element equals the maximum."""
    values, ids = top_k(b, [x], attrs_of({"k": k}))
    return values, ids


FORMS = {
    "top_k": best,
    "sort": ordered,
    "halves": halves,
    "second": second,
    "kernel": kernel,
    "largest": largest,
}


def ran(
    module: Module,
    x: list[float],
    noise: list[float],
    other: RecordedRun | None = None,
    bound: float = BOUND,
) -> RecordedRun:
    inputs = {
        "x": np.tile(np.array(x), (ROWS, 1)).astype(np.float64),
        "noise": np.tile(np.array(noise), (ROWS, 1)).astype(np.float64),
    }
    workload = Workload({"table": TABLE}, (ProgramCall("decode", {}, inputs),))
    return record(module, workload, MEANING, reference=other, bound=bound)


NEAR = [1.0, 0.2, 1.0 + 1e-12, 0.1, 0.3, 0.0]
FLIP = [1e-11, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("form", ["top_k", "sort", "halves", "kernel"])
def test_a_flip_within_the_margin_is_replayed(form: str):
    reference = ran(chooser("top_k"), NEAR, FLIP)
    alone = ran(chooser(form, noisy=True), NEAR, FLIP)
    assert compare(reference.outcomes, alone.outcomes).relative > 0.1
    found = ran(chooser(form, noisy=True), NEAR, FLIP, reference)
    assert found.counts.replayed == ROWS
    assert found.counts.wrong == 0
    assert compare(reference.outcomes, found.outcomes).relative < 1e-10


@pytest.mark.parametrize("form", ["top_k", "sort", "halves", "kernel"])
def test_a_flip_outside_of_the_margin_stands(form: str):
    noise = [0.1, 0, 0, 0, 0, 0]
    reference = ran(chooser("top_k"), NEAR, noise)
    found = ran(chooser(form, noisy=True), NEAR, noise, reference)
    assert found.counts.replayed == 0
    assert found.counts.wrong == ROWS
    assert compare(reference.outcomes, found.outcomes).relative > 0.1


@pytest.mark.parametrize("noise", [1e-11, 0.1])
def test_the_place_of_the_largest_is_a_choice(noise: float):
    """Without ``top_k`` it is the first index that equals the maximum."""
    reference = ran(chooser("top_k", k=1), NEAR, [noise, 0, 0, 0, 0, 0])
    found = ran(chooser("largest", noisy=True, k=1), NEAR, [noise, 0, 0, 0, 0, 0], reference)
    within = noise < BOUND
    assert (found.counts.replayed, found.counts.wrong) == ((ROWS, 0) if within else (0, ROWS))
    assert (compare(reference.outcomes, found.outcomes).relative < 1e-10) is within
    # And it is a reference for the next program.
    again = ran(chooser("top_k", noisy=True, k=1), NEAR, [noise, 0, 0, 0, 0, 0], found)
    assert (again.counts.wrong, again.counts.alone) == (0, 0)


def test_a_run_that_replayed_is_compared_by_its_own_choice():
    first = ran(chooser("top_k"), NEAR, FLIP)
    replayed = ran(chooser("top_k", noisy=True), NEAR, FLIP, first)
    # The same program once more, as after a pass that may not round at all.
    again = ran(chooser("top_k", noisy=True), NEAR, FLIP, replayed, bound=0.0)
    assert again.counts.wrong == 0
    assert compare(replayed.outcomes, again.outcomes).relative == 0
    # Another program that chooses what was replayed, by scores that are not those of the run.
    other = ran(chooser("top_k"), NEAR, FLIP, replayed, bound=0.0)
    assert other.counts.wrong == ROWS


def test_the_second_best_is_no_flip():
    reference = ran(chooser("top_k"), NEAR, FLIP)
    found = ran(chooser("second"), NEAR, FLIP, reference)
    assert compare(reference.outcomes, found.outcomes).relative > 0.1


def test_an_element_at_the_edge_of_the_set_is_replayed():
    scores = [5.0, 1.0, 1.0 + 1e-12, 0, 0, 0]
    reference = ran(chooser("top_k"), scores, [0, 1e-11, 0, 0, 0, 0])
    found = ran(chooser("top_k", noisy=True), scores, [0, 1e-11, 0, 0, 0, 0], reference)
    assert found.counts.replayed == ROWS
    assert compare(reference.outcomes, found.outcomes).relative < 1e-10


def reordered(*, noisy: bool) -> Module:
    """The rows by the best scores, chosen with the last row first; noise makes other scores."""
    module = Module("m")
    with Builder(module.add(Function("f", phase="decode")), module) as b:
        scores = b.input("x", f32, (3, SIZE))
        noise = b.input("noise", f32, (3, SIZE))
        table = b.weight("table", f32, (SIZE, 3))
        if noisy:
            scores = b.op("reverse", b.add(scores, noise), dimensions=(0,))
        with b.scope("router"):
            _, ids = b.top_k(scores, 2)
        rows = b.embedding(table, ids)
        b.output("rows", b.op("reverse", rows, dimensions=(0,)) if noisy else rows)
    verify(module)
    return module


def test_a_flip_is_replayed_where_tokens_are_in_another_order():
    x = np.array([NEAR, [0.5, 0.1, 0.4, 0.9, 0.0, 0.2], [0.3, 0.7, 0.1, 0.6, 0.0, 0.9]])
    call = ProgramCall("decode", {}, {"x": x, "noise": np.tile(FLIP, (3, 1))})
    workload = Workload({"table": TABLE}, (call,))
    reference = record(reordered(noisy=False), workload, MEANING)
    alone = record(reordered(noisy=True), workload, MEANING)
    assert compare(reference.outcomes, alone.outcomes).relative > 0.1
    found = record(reordered(noisy=True), workload, MEANING, reference=reference, bound=BOUND)
    assert (found.counts.replayed, found.counts.wrong) == (1, 0)
    assert compare(reference.outcomes, found.outcomes).relative < 1e-10


def test_equal_scores_in_both_leave_no_choice():
    """The ids of the elements come in another order, so that the last of equal ones is taken."""
    tied = [1.0, 0, 1.0, 0, 0, 0]

    def backwards(b: Builder, x: Value, k: int) -> tuple[Value, Value]:
        turned = [b.op("reverse", v, dimensions=(1,)) for v in (x, b.iota(s32, x.shape, 1))]
        values, ids = b.sort(turned, 1, descending=True)
        return b.slice_dim(values, 1, 0, k), b.slice_dim(ids, 1, 0, k)

    FORMS["backwards"] = backwards
    try:
        module = chooser("backwards")
    finally:
        del FORMS["backwards"]
    reference = ran(chooser("top_k"), tied, FLIP)
    found = ran(module, tied, FLIP, reference)
    assert found.counts.wrong == ROWS
    assert compare(reference.outcomes, found.outcomes).relative > 0.1
    # Scores that are equal in one of the two only may come in any order.
    near = ran(chooser("top_k"), NEAR, FLIP)
    assert ran(module, NEAR, FLIP, near).counts.wrong == 0


def test_a_choice_of_nothing_known_is_counted():
    reference = ran(chooser("top_k"), NEAR, FLIP)
    found = ran(chooser("halves"), NEAR, FLIP, reference)
    assert found.counts.alone == 2 * ROWS
    assert found.counts.compared == ROWS


def test_ops_that_choose_are_in_the_table():
    assert {name for name, op in OPS.items() if op.chooses} == {"sort", "top_k", "custom_call"}
