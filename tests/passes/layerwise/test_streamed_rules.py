"""Ops on streamed weights give what the rules give for whole arrays; random weights are stable."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import MEANING, NATIVE, Arithmetic, Array, evaluate, rank_index
from graphgen.ir import Entry, Function, Module, Role, Value, dtype, tensor
from graphgen.passes.layerwise.streamed_array import MemoryMeter, StreamedArray
from graphgen.passes.layerwise.streamed_run import run_streamed
from graphgen.passes.layerwise.weight_sources import RandomWeights

BF16, S32 = dtype("bf16"), dtype("s32")
ROWS, COLUMNS, TILE = 50, 12, 36


def program(kind: str) -> Function:
    """A function of a weight %w [50,12] and of %x or %ids."""
    module = Module("m")
    function = module.add(Function("f", phase="main"))
    with Builder(function, module) as b:
        w = b.weight("w", BF16, (ROWS, COLUMNS))
        b.output("y", BODIES[kind](b, w))
    return function


def product(b: Builder, w: Value) -> Value:
    """A product over the weight's columns."""
    return b.dot_general(b.input("x", BF16, (2, 3, COLUMNS)), w, contracting=((2,), (1,)))


def over_rows(b: Builder, w: Value) -> Value:
    """A product over the weight's rows."""
    return b.dot_general(b.input("x", BF16, (4, ROWS)), w, contracting=((1,), (0,)))


def of_transposed(b: Builder, w: Value) -> Value:
    """The weight on the left, transposed."""
    return b.dot_general(
        b.transpose(w, (1, 0)), b.input("x", BF16, (ROWS, 3)), contracting=((1,), (0,))
    )


def of_pieces(b: Builder, w: Value) -> Value:
    """Slices along both dimensions, joined, padded and reshaped."""
    low = b.slice(w, (3, 0), (40, 6))
    high = b.slice(w, (5, 6), (42, 12))
    joined = b.concatenate([low, high, low], 0)
    zero = b.literal(0.0, BF16)
    padded = b.pad(joined, zero, (0, 1), (3, 0))
    split = b.reshape(padded, (6, 19, 7))
    return b.dot_general(b.input("x", BF16, (2, 7)), split, contracting=((1,), (2,)))


def scaled(b: Builder, w: Value) -> Value:
    """Elementwise ops with an array that is repeated over the columns."""
    largest = b.reduce(b.unary("abs", w), (1,), "maximum")
    return b.dot_general(
        b.input("x", BF16, (2, COLUMNS)),
        w * b.broadcast_in_dim(largest, (ROWS, COLUMNS), (0,)),
        contracting=((1,), (1,)),
    )


BODIES = {f.__name__: f for f in (product, over_rows, of_transposed, of_pieces, scaled)}


def streamed(whole: Array) -> StreamedArray:
    """The array in tiles of three rows."""
    return StreamedArray(whole.shape, 0, lambda start, stop: whole[start:stop], TILE)


@pytest.mark.parametrize("kind", list(BODIES))
@pytest.mark.parametrize("how", [MEANING, NATIVE], ids=["meaning", "native"])
def test_tiles_give_what_the_whole_gives(kind: str, how: Arithmetic) -> None:
    function = program(kind)
    rng = np.random.default_rng(0)
    given = {
        (v.name or ""): rng.standard_normal(v.type.dims).astype(NATIVE.dtype(v.dtype))
        for v in function.args
    }
    meter = MemoryMeter()
    tiles = {**given, "w": streamed(given["w"])}
    (found,) = run_streamed(function, [tiles], how, meter)
    whole = evaluate(function, given, how)["y"]
    result = found["y"]
    assert isinstance(result, np.ndarray)
    assert result.dtype == whole.dtype
    limit = 1e-12 if how is MEANING else 1e-2
    np.testing.assert_allclose(
        result.astype(np.float64), whole.astype(np.float64), rtol=limit, atol=limit
    )


def test_rows_are_looked_up_one_by_one() -> None:
    module = Module("m")
    function = module.add(Function("f", phase="main"))
    with Builder(function, module) as b:
        w, ids = b.weight("w", BF16, (ROWS, COLUMNS)), b.input("ids", S32, (2, 3))
        b.output("y", b.embedding(w, ids))
    table = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype(NATIVE.dtype(BF16))
    ids_given = np.array([[0, 49, 7], [99, -3, 7]], np.int32)
    meter = MemoryMeter()
    given = {"w": streamed(table), "ids": ids_given}
    (found,) = run_streamed(function, [given], NATIVE, meter)
    whole = evaluate(function, {"w": table, "ids": ids_given})["y"]
    assert np.array_equal(np.asarray(found["y"]), whole)
    assert meter.largest < table.nbytes


def weight(name: str, *shape: int) -> Entry:
    """A row of a bf16 weight."""
    return Entry(Role.WEIGHT, name, tensor(BF16, shape), tensor(BF16, shape))


def test_random_weights_depend_on_name_and_seed_alone() -> None:
    row = weight("layer.weight", ROWS, COLUMNS)
    first, again = RandomWeights(1, tile=TILE, kept=0), RandomWeights(1, tile=TILE)
    kept = first(row)
    assert isinstance(kept, StreamedArray)
    whole = kept.whole()
    other = again(row)
    assert isinstance(other, StreamedArray)
    # Any range, in any order.
    assert np.array_equal(other.make(17, 31), whole[17:31])
    assert np.array_equal(other.make(0, 2), whole[:2])
    seeded = RandomWeights(2, tile=TILE)(row)
    assert isinstance(seeded, StreamedArray)
    assert not np.array_equal(seeded.whole(), whole)
    assert abs(float(whole.astype(np.float64).std()) * COLUMNS**0.5 - 1) < 0.1


def test_scales_of_norms_are_around_one() -> None:
    scale = RandomWeights(0)(weight("model.norm.weight", 4096))
    assert isinstance(scale, np.ndarray)
    assert abs(float(scale.astype(np.float64).mean()) - 1) < 0.02


def test_the_rank_is_given_to_weight_programs() -> None:
    module = Module("m")
    function = module.add(Function("weights.rank"))
    with Builder(function, module) as b:
        w = b.weight("w", BF16, (ROWS, COLUMNS))
        rank = b.reshape(b.input("rank", S32, (1,)), ())
        start = rank * b.literal(25, S32)
        zero = b.literal(0, S32)
        b.output("part", b.dynamic_slice(w, [start, zero], (25, COLUMNS)))
    table = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype(NATIVE.dtype(BF16))
    given = {"w": streamed(table), "rank": rank_index(1)}
    (found,) = run_streamed(function, [given], NATIVE, MemoryMeter())
    part = found["part"]
    assert isinstance(part, StreamedArray)
    assert np.array_equal(part.whole(), table[25:])
