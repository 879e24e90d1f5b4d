"""Shape simplification: shorten chains of reshapes, broadcasts, slices and conversions.

No rule computes: each maps elements to their origin in fewer steps. Sizes may be symbolic; a rule
that needs more than equality of two sizes declines.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Dim, DType, Module, Op, Value
from graphgen.ir.dtype import f8e8m0fnu, f16, highest, pred
from graphgen.ir.small_float import FORMATS
from graphgen.passes.canonical.canonicalize import (
    concatenate_of_one,
    identity,
    reshape_of_reshape,
    transpose_of_transpose,
)
from graphgen.passes.canonical.slice_algebra import Bound, bounds, cut, join_runs, runs_of_slices
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule


@rule("broadcast_in_dim")
def broadcast_of_broadcast(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``broadcast(broadcast(x))`` is one broadcast."""
    inner = op.operands[0].producer("broadcast_in_dim")
    if inner is None:
        return no_match("the operand is not a broadcast", op.operands[0])
    outer = op.attrs.integers("dimensions")
    dimensions = [outer[i] for i in inner.attrs.integers("dimensions")]
    return [b.broadcast_in_dim(inner.operands[0], op.result.shape, dimensions)]


@rule("broadcast_in_dim")
def broadcast_of_reshape(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A reshape that only adds or drops dimensions of size 1 is left out below a broadcast."""
    inner = op.operands[0].producer("reshape")
    if inner is None:
        return no_match("the operand is not a reshape", op.operands[0])
    (source,) = inner.operands
    targets = op.attrs.integers("dimensions")
    middle = zip(inner.result.shape, targets, strict=True)
    wide = [(size, target) for size, target in middle if size != 1]
    if [size for size in source.shape if size != 1] != [size for size, _ in wide]:
        return no_match("the reshape moves more than dimensions of size 1", source, depth=2)
    kept = [target for _, target in wide]
    dimensions = _with_units(source.shape, kept, len(op.result.shape))
    if dimensions is None:
        return no_match(
            "the result has no place for the dropped dimensions of size 1", source, depth=3
        )
    return [b.broadcast_in_dim(source, op.result.shape, dimensions)]


def _with_units(shape: Sequence[Dim], kept: Sequence[int], rank: int) -> list[int] | None:
    """Increasing result dimensions for ``shape``, whose sizes above 1 go to ``kept`` in order."""
    out: list[int] = []
    wide = iter(kept)
    for size in shape:
        last = out[-1] if out else -1
        free = (i for i in range(last + 1, rank) if i not in kept)
        target = next(wide) if size != 1 else next(free, None)
        if target is None or target <= last:
            return None
        out.append(target)
    return out


@rule("reshape", "transpose")
def moved_splat(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """One number in every element is that in any order and shape."""
    inner = op.operands[0].producer("broadcast_in_dim")
    if inner is None:
        return no_match("the operand is not a broadcast", op.operands[0])
    (source,) = inner.operands
    if source.shape:
        return no_match("the broadcast operand is not a scalar", source, depth=2)
    if not op.result.shape:
        return [source]
    return [b.broadcast_in_dim(source, op.result.shape, ())]


@rule("transpose")
def transpose_of_units(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A transpose that moves only dimensions of size 1 is a reshape."""
    (operand,) = op.operands
    moved = [i for i in op.attrs.integers("permutation") if operand.shape[i] != 1]
    if moved != sorted(moved):
        return no_match("dimensions larger than 1 change places", operand)
    return [b.reshape(operand, op.result.shape)]


@rule("slice")
def slice_of_slice(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``slice(slice(x))`` is one slice."""
    inner = op.operands[0].producer("slice")
    if inner is None:
        return no_match("the operand is not a slice", op.operands[0])
    pairs = zip(bounds(inner), bounds(op), strict=True)
    merged = [_compose(first, second) for first, second in pairs]
    known = [bound for bound in merged if bound is not None]
    if len(known) < len(merged):
        return no_match("a stride over a size that is not known yet", op.operands[0], depth=2)
    return [cut(b, inner.operands[0], known)]


def _compose(first: Bound, second: Bound) -> Bound | None:
    """The slice ``second`` of the slice ``first``; ``None`` where sizes are not known."""
    (start, _, step), (begin, end, stride) = first, second
    if step == stride == 1:
        return start + begin, start + end, 1
    if not (isinstance(start, int) and isinstance(begin, int) and isinstance(end, int)):
        return None
    count = -(-(end - begin) // stride)
    if not count:
        return start, start, 1
    at = start + begin * step
    return at, at + (count - 1) * step * stride + 1, step * stride


@rule("slice")
def slice_of_broadcast(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``slice(broadcast(x))`` is ``broadcast(slice(x))``: fewer elements are made."""
    inner = op.operands[0].producer("broadcast_in_dim")
    if inner is None:
        return no_match("the operand is not a broadcast", op.operands[0])
    (source,) = inner.operands
    cuts, dimensions = bounds(op), inner.attrs.integers("dimensions")
    mine = [
        (0, 1, 1) if size == 1 else cuts[target]
        for size, target in zip(source.shape, dimensions, strict=True)
    ]
    return [b.broadcast_in_dim(cut(b, source, mine), op.result.shape, dimensions)]


def slice_of_concatenate() -> Rule:
    """The rule for slices of what was joined; it looks every concatenation through only once."""
    ends: dict[Op, list[Dim]] = {}

    @rule("slice")
    def slice_of_concatenate(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """A slice within one operand of a concatenation is a slice of that operand."""
        inner = op.operands[0].producer("concatenate")
        if inner is None:
            return no_match("the operand is not a concatenation", op.operands[0])
        if inner not in ends:
            ends[inner] = _ends(inner)
        axis = inner.attrs.integer("dimension")
        cuts = bounds(op)
        start, limit, stride = cuts[axis]
        place = _operand_at(ends[inner], start, limit)
        if place is None:
            return no_match("the slice does not lie in one operand", op.operands[0], depth=2)
        index, before = place
        cuts[axis] = (start - before, limit - before, stride)
        return [cut(b, inner.operands[index], cuts)]

    return slice_of_concatenate


def _ends(op: Op) -> list[Dim]:
    """End of each operand of a concatenation along its dimension."""
    axis, end = op.attrs.integer("dimension"), 0
    out: list[Dim] = []
    for operand in op.operands:
        end = end + operand.shape[axis]
        out.append(end)
    return out


def _operand_at(ends: Sequence[Dim], start: Dim, limit: Dim) -> tuple[int, Dim] | None:
    """Index and start of the operand that holds ``start:limit``; ``None`` if none is known to."""
    static = [end for end in ends if isinstance(end, int)] if isinstance(ends[-1], int) else []
    if len(static) == len(ends) and isinstance(start, int):
        index = min(bisect_right(static, start), len(ends) - 1)
        return _checked_place(ends, index, start, limit)
    places = (_checked_place(ends, index, start, limit) for index in range(len(ends)))
    return next((place for place in places if place is not None), None)


def _checked_place(
    ends: Sequence[Dim], index: int, start: Dim, limit: Dim
) -> tuple[int, Dim] | None:
    before: Dim = ends[index - 1] if index else 0
    # Symbols cancel in a difference, or the order is not known.
    left, right = start - before, ends[index] - limit
    fits = isinstance(left, int) and isinstance(right, int) and left >= 0 and right >= 0
    return (index, before) if fits else None


@rule("concatenate")
def concatenate_of_slices(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Neighboring slices of one value, joined again, are one slice."""
    axis = op.attrs.integer("dimension")
    runs = runs_of_slices(op.operands, axis)
    if len(runs) == len(op.operands):
        return no_match("no two operands are neighboring slices of one value")
    return [join_runs(b, runs, axis)]


@rule("convert")
def convert_of_convert(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A conversion that keeps every value is left out below another conversion."""
    inner = op.operands[0].producer("convert")
    if inner is None:
        return no_match("the operand is not converted", op.operands[0])
    (source,) = inner.operands
    middle, last = inner.result.dtype, op.result.dtype
    if not keeps(source.dtype, middle):
        return no_match(f"{middle} does not hold every value of {source.dtype}", source, depth=2)
    # Out of range, a float and an integer become different integers.
    if middle.is_float and not (
        source.dtype.is_float or last.is_float or keeps(source.dtype, last)
    ):
        return no_match(f"{last} does not hold every value of {source.dtype}", source, depth=3)
    return [b.convert(source, last)]


# Bits of the significand; all but those of f16 have the exponents of every smaller type.
_SIGNIFICANT = {
    **{name: form.mantissa + 1 for name, form in FORMATS.items()},
    "f16": 11,
    "bf16": 8,
    "f32": 24,
    "f64": 53,
}


def keeps(narrow: DType, wide: DType) -> bool:
    """True if every value of ``narrow`` is a value of ``wide``."""
    if narrow is wide or (narrow is pred and wide is not f8e8m0fnu):
        return True
    if not (narrow.is_number and wide.is_number) or wide is f8e8m0fnu:
        return False
    if narrow.is_float:
        # Of two formats of eight bits and fewer one may lack what the other has.
        inside = wide.is_float and wide.bits > max(narrow.bits, 8)
        return inside and not (narrow is f8e8m0fnu and wide is f16)
    signed = narrow.name.startswith("s")
    magnitude = narrow.bits - signed
    if wide.is_float:
        most = (1 << magnitude) - (not signed)
        return magnitude <= _SIGNIFICANT[wide.name] and most <= highest(wide)
    wide_signed = wide.name.startswith("s")
    return wide_signed >= signed and wide.bits - wide_signed >= magnitude


def shape_rules() -> tuple[Rule, ...]:
    """The rules of :class:`SimplifyShape`, with what they remember of one run."""
    return (
        identity,
        reshape_of_reshape,
        moved_splat,
        transpose_of_transpose,
        transpose_of_units,
        broadcast_of_broadcast,
        broadcast_of_reshape,
        slice_of_slice,
        slice_of_concatenate(),
        slice_of_broadcast,
        concatenate_of_one,
        concatenate_of_slices,
        convert_of_convert,
    )


@register
@dataclass(frozen=True)
class SimplifyShape(Pass):
    """Merge chains of ops that only move, repeat, cut or convert elements.

    Dead ops stay for ``dce``.

    Given:
        module @m level=logical {
        }

        func @f {
          arg %x : bf16[2,6]
          %a = convert(%x) dtype=f32 : f32[2,6]
          %b = convert(%a) dtype=bf16 : bf16[2,6]
          %c = slice(%b) start_indices=[0,1] limit_indices=[2,3] : bf16[2,2]
          %d = slice(%b) start_indices=[0,3] limit_indices=[2,6] : bf16[2,3]
          %y = concatenate(%c, %d) dimension=1 : bf16[2,5]
          return y = %y
        }

    Result (followed by ``dce``):
        module @m level=logical {
        }

        func @f {
          arg %x : bf16[2,6]
          %y = slice(%x) start_indices=[0,1] limit_indices=[2,6] : bf16[2,5]
          return y = %y
        }
    """

    name: ClassVar[str] = "simplify-shape"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply the rules to every function until none fires."""
        for function in module.functions.values():
            rewriter.apply_rules(function, shape_rules())
