"""Elementwise windows on lines: all combinations of edges of their operands in one evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from graphgen.build import Builder
from graphgen.eval import MEANING, NATIVE, WITH_INTEGERS, Arithmetic, Array, evaluate_ranks
from graphgen.eval.element_kinds import element
from graphgen.ir import RANK, Function, Literal, Op, Value, tensor
from graphgen.ops import Trait, has_trait
from graphgen.passes.equiv.deviation import MEANING_BUDGET
from graphgen.passes.validate.integer_meaning import integer_budget
from graphgen.passes.validate.overflow_marks import OverflowMarks
from graphgen.passes.validate.window_check import Differing, as_bits

# Most elements of a line of operands of 8 bits: all pairs of two; and of another line.
_LINE, _PAIRS = 1 << 16, 1 << 12
# Ops that move elements, and a result element of which is one of the operand.
_MOVES = ("broadcast_in_dim", "reshape", "transpose", "slice", "reverse")
# Elements beside combinations of edges that are drawn from the whole range of their type.
DRAWN = 2048


def lined(window: Function, size: int) -> Function | None:
    """The window on lines of ``size`` elements in the place of its values.

    Element i of a result is what the window computes where all elements of an operand are the
    operand's element i.

    Returns:
        ``None`` where an op is not elementwise, nor moves elements.
    """
    made = Function("line")
    values: dict[Value, Value] = {}
    for arg in window.args:
        if (arg.name or "").partition(".")[2] == RANK:
            return None
        values[arg] = made.block.add_arg(tensor(arg.dtype, (size,)), arg.name or "")
    with Builder(made) as b:
        for op in window.block:
            if op.name == "constant":
                value = op.attrs.get("value")
                if not isinstance(value, Literal) or not _is_splat(value):
                    return None
                width = len(value.data) // max(1, math.prod(value.shape))
                one = Literal(value.dtype, (), bytes(value.data)[:width])
                scalar = b.emit("constant", (), {"value": one}).result
                values[op.result] = b.broadcast_in_dim(scalar, [size], [])
            elif op.name in _MOVES:
                values[op.result] = values[op.operands[0]]
            elif _is_elementwise(op):
                operands = [values[v] for v in op.operands]
                values[op.result] = b.emit(op.name, operands, dict(op.attrs)).result
            else:
                return None
    made.outputs = [(name, values[value]) for name, value in window.outputs]
    return made


def _is_elementwise(op: Op) -> bool:
    if op.name == "bitcast_convert":
        return op.operands[0].dtype.bits == op.result.dtype.bits
    return has_trait(op, Trait.ELEMENTWISE) and len(op.results) == 1


def _is_splat(value: Literal) -> bool:
    count = math.prod(value.shape)
    if count == 0:
        return False
    data = bytes(value.data)
    width = len(data) // count
    return width > 0 and width * count == len(data) and data == data[:width] * count


def line_of(window: Function, edges: Mapping[str, Array], seed: int) -> dict[str, Array]:
    """An array for each argument: all combinations of edges, or as many random ones as fit."""
    names = [arg.name or "" for arg in window.args]
    lists = [edges[name] for name in names]
    small = all(arg.dtype.bits <= 8 for arg in window.args)
    if math.prod(len(one) for one in lists) <= (_LINE if small else _PAIRS):
        places = np.indices([len(one) for one in lists]).reshape(len(names), -1)
        return {name: one[at] for name, one, at in zip(names, lists, places, strict=True)}
    rng = np.random.default_rng([seed, 11])
    count = _PAIRS
    out: dict[str, Array] = {}
    for name, one in zip(names, lists, strict=True):
        # Each edge of each operand, against any of the others.
        drawn = rng.integers(0, len(one), count)
        drawn[rng.permutation(count)[: len(one)]] = np.arange(len(one))[:count]
        out[name] = one[drawn]
    return out


def drawn_line(
    edges: Mapping[str, Array], numbers: Mapping[str, Array], seed: int
) -> dict[str, Array]:
    """An array for each argument: drawn numbers beside edges and drawn ones of the others.

    Args:
        edges: of each argument.
        numbers: of the same arguments; an argument may have none. All numbers of a single argument
            are in the array.
        seed: of which meet.
    """
    if len(numbers) == 1:
        ((name, drawn),) = numbers.items()
        given = drawn if len(drawn) else edges[name]
        return {name: np.resize(given, max(DRAWN, len(given))).astype(edges[name].dtype)}
    rng = np.random.default_rng([seed, 41])
    out: dict[str, Array] = {}
    for name, one in edges.items():
        drawn, edge = numbers[name], one[rng.integers(0, len(one), DRAWN)]
        if len(drawn):
            some = drawn[rng.integers(0, len(drawn), DRAWN)]
            edge = np.where(rng.random(DRAWN) < 0.75, some, edge).astype(one.dtype)
        out[name] = edge
    return out


@dataclass(frozen=True, slots=True)
class LineFailure:
    """An element of a line on which both sides of a window differ.

    Attributes:
        given: arguments of the window, each with equal elements.
        difference: what differs.
    """

    given: Mapping[str, Array]
    difference: Differing


def line_failure(
    window: Function, given: Mapping[str, Array], budget: float, *, finite: bool = False
) -> LineFailure | None:
    """The first difference of both sides of an elementwise window, element by element.

    In float64 by the size of the operands; in the types of the program bit for bit, or by whether
    elements are finite where the pass may round.

    Args:
        window: ``before.N`` and ``after.N`` of its arguments.
        given: for each argument a line of elements.
        budget: of rounding.
        finite: whether elements are left out where numbers go beyond the range of their type.
    """
    if finite:
        given = _within_range(window, given)
    size = len(next(iter(given.values()), ()))
    line = lined(window, size) if size else None
    found = _first_on_line(line, given, budget) if line is not None else None
    if found is None:
        return None
    at, there = found
    splat = {
        arg.name or "": np.full(arg.type.dims, given[arg.name or ""][at]) for arg in window.args
    }
    rank = dict(window.outputs)[f"before.{there.pair}"].type.rank
    return LineFailure(splat, replace(there, index=(0,) * rank))


def _within_range(window: Function, given: Mapping[str, Array]) -> dict[str, Array]:
    """The places of a line for which both sides are finite, and all that they are computed of."""
    size = len(next(iter(given.values()), ()))
    line, kept = lined(window, size) if size else None, np.ones(size, bool)
    if line is not None:
        with np.errstate(all="ignore"):
            found = evaluate_ranks(line, [given], NATIVE, observer=OverflowMarks())[0]
        for result in map(np.asarray, found.values()):
            if result.dtype.kind not in "biu":
                kept &= np.isfinite(result.astype(np.complex128))
    return {name: array[kept] for name, array in given.items()}


def _first_on_line(
    line: Function, given: Mapping[str, Array], budget: float
) -> tuple[int, Differing] | None:
    def run(how: Arithmetic) -> dict[str, Array]:
        with np.errstate(all="ignore"):
            return as_bits(line, evaluate_ranks(line, [given], how)[0])

    def in_float64(how: Arithmetic, limit: float) -> tuple[int, Differing] | None:
        return _first(run(how), lambda a, b: _worst(a, b, limit, given), rounding=False)

    native = _first(run(NATIVE), _other_class if budget else _other_bits, rounding=True)
    found = in_float64(MEANING, MEANING_BUDGET)
    if found is None:
        return native
    limit = integer_budget(line.block)
    if limit is None or native is not None or budget:
        return found
    return None if in_float64(WITH_INTEGERS, limit) is None else found


def _first(
    results: Mapping[str, Array],
    differs: Callable[[Array, Array], int | None],
    *,
    rounding: bool,
) -> tuple[int, Differing] | None:
    """The element of the first pair of results that differs, and its place on the line."""
    for pair in range(len(results) // 2):
        a, b = (np.asarray(results[f"{side}.{pair}"]) for side in ("before", "after"))
        a, b = np.broadcast_arrays(a, b)
        at = differs(a, b)
        if at is not None:
            return at, _element(pair, a, b, at, rounding=rounding)
    return None


def _worst(a: Array, b: Array, budget: float, given: Mapping[str, Array]) -> int | None:
    """The element whose difference is largest beside its own size and that of its operands."""
    if a.dtype.kind in "biu":
        return _other_bits(a, b)
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(a), np.abs(b))
        for array in given.values():
            if array.dtype.kind not in "biu":
                size = np.abs(array).astype(scale.dtype if scale.dtype.kind == "f" else np.float64)
                scale = np.maximum(scale, np.where(np.isfinite(size), size, 0))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.where(same, 0.0, np.abs(a - b) / scale)
        gap = np.where(np.isnan(gap), np.inf, gap)
    at = int(np.argmax(gap))
    return at if gap[at] > budget else None


def _other_bits(a: Array, b: Array) -> int | None:
    """The first element of other bits; NaN equals NaN whatever its sign and payload."""
    if a.dtype != b.dtype:
        return 0
    if a.dtype.kind in "biu":
        differ = a != b
    elif a.dtype.kind == "c":
        differ = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    else:
        wide = (a.astype(np.float64), b.astype(np.float64))
        equal = (wide[0] == wide[1]) & (np.signbit(wide[0]) == np.signbit(wide[1]))
        differ = ~(equal | (np.isnan(wide[0]) & np.isnan(wide[1])))
    return int(np.argmax(differ)) if differ.any() else None


def _other_class(a: Array, b: Array) -> int | None:
    """The first element that is finite on one side only."""
    if a.dtype.kind in "biu":
        return None
    wide = (np.abs(a).astype(np.float64), np.abs(b).astype(np.float64))
    differ = np.isfinite(wide[0]) != np.isfinite(wide[1])
    return int(np.argmax(differ)) if differ.any() else None


def _element(pair: int, a: Array, b: Array, at: int, *, rounding: bool) -> Differing:
    before, after = element(a[at]), element(b[at])
    with np.errstate(all="ignore"):
        gap = abs(before - after) / abs(before) if before else np.inf
    return Differing(pair, (at,), before, after, float(gap), rounding)
