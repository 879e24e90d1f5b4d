"""Trace the axes of a value backwards through transposes, reshapes and broadcasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from graphgen.build import Builder
from graphgen.ir import Dim, Value
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.raising.matchers import placed
from graphgen.passes.raising.row_order import Axis, Followed, under_order
from graphgen.pattern import Bindings, Pattern, match_rule
from graphgen.pattern.see_through import At

Way = TypeVar("Way")
Made = TypeVar("Made")


class UnlikeError(Exception):
    """The condition that a program does not meet, and the value at fault."""

    def __init__(self, reason: str, at: Value, depth: int) -> None:
        super().__init__(reason)
        self.reason, self.at, self.depth = reason, at, depth

    @property
    def refusal(self) -> NoMatch:
        """It as the result of a rule."""
        return no_match(self.reason, self.at, depth=self.depth)


def first_that_fits(
    ways: Iterable[Way], make: Callable[[Way], Made], otherwise: UnlikeError
) -> Made:
    """Make something of the first way that is not unlike (:class:`UnlikeError`: the deepest)."""
    left = iter(ways)
    while True:
        try:
            return make(next(left))
        except StopIteration:
            raise otherwise from None
        except UnlikeError as error:
            otherwise = max(otherwise, error, key=lambda each: each.depth)


def followed(value: Value) -> Followed:
    """A value with an axis of its own for each dimension."""
    return Followed(value, tuple(() if size == 1 else (Axis(size),) for size in value.shape))


def beneath(found: Followed) -> Followed:
    """The value under conversions, transposes, reshapes and broadcasts that keep axes whole."""
    while (deeper := _operand(found)) is not None:
        found = deeper
    return found


def _operand(found: Followed) -> Followed | None:
    """The value under one conversion, transpose, reshape or broadcast that keeps axes whole."""
    op = found.value.op
    if op is None:
        return None
    if len(op.operands) != 1:
        return under_order(found)
    (source,) = op.operands
    if op.name == "convert":
        kept = _keeps_numbers(source, found.value)
        return Followed(source, found.dims) if kept else None
    if op.name == "transpose":
        permutation = op.attrs.integers("permutation")
        back = dict(zip(permutation, found.dims, strict=True))
        return Followed(source, tuple(back[dim] for dim in range(len(permutation))))
    if op.name == "broadcast_in_dim":
        places = zip(op.attrs.integers("dimensions"), source.shape, strict=True)
        return Followed(source, tuple(() if size == 1 else found.dims[dim] for dim, size in places))
    if op.name == "reshape":
        dims = _regrouped(found.axes, source.shape)
        return None if dims is None else Followed(source, dims)
    return None


def matched(
    found: Followed, pattern: Pattern
) -> Iterator[tuple[Mapping[str, Followed], Mapping[str, float]]]:
    """The variables, with their axes, and the numbers of the ways in which a pattern fits."""
    for values, bound in ways_of(found, pattern):
        yield values, bound.numbers


def ways_of(
    found: Followed, pattern: Pattern, along: Axis | None = None
) -> Iterator[tuple[Mapping[str, Followed], Bindings]]:
    """The ways in which a pattern fits, with the axes of its variables.

    Its reductions are over the axis ``along``, if that is given.
    """
    found = beneath(found)
    op, over = found.value.op, [dim for dim, axes in enumerate(found.dims) if axes == (along,)]
    for bound in match_rule(op, pattern)[0] if op is not None else ():
        left = [at for inner, at in bound.ops if inner.name == "reduce" and along is not None]
        if any(at is None or not over or over[0] in at for at in left):
            continue
        values = {
            name: _variable(value, found, places)
            for name, value in bound.values.items()
            if (places := bound.places.get(name)) is not None
        }
        yield values, bound


def _variable(value: Value, found: Followed, places: At) -> Followed:
    sizes = zip(value.shape, places, strict=True)
    dims = [() if place is None or size == 1 else found.dims[place] for size, place in sizes]
    return Followed(value, tuple(dims))


def reduced(found: Followed, kind: str, over: Axis | None = None) -> tuple[Followed, Axis] | None:
    """The operand of a reduction along one dimension, and its axis: ``over``, or a new one."""
    op = found.value.producer("reduce")
    dims = op.attrs.integers("dimensions") if op is not None else ()
    if op is None or op.attrs.text("kind") != kind or len(dims) != 1:
        return None
    (source,), (dim,) = op.operands, dims
    over = over or Axis(source.shape[dim])
    own = () if over.size == 1 else (over,)
    return Followed(source, (*found.dims[:dim], own, *found.dims[dim:])), over


def counts(found: Followed, axes: tuple[Axis, ...]) -> bool:
    """Test whether a value is the place along a dimension of these axes: an ``iota``."""
    under = beneath(found)
    run = under.value.producer("iota")
    return run is not None and under.dims[run.attrs.integer("dimension")] == axes


def _keeps_numbers(source: Value, value: Value) -> bool:
    """Test whether a conversion rounds at most: of floats, or of integers to wider ones."""
    if source.dtype.is_float and value.dtype.is_float:
        return True
    whole = source.dtype.is_integer and value.dtype.is_integer
    return whole and value.dtype.bits >= source.dtype.bits


def _regrouped(axes: Sequence[Axis], shape: Sequence[Dim]) -> tuple[tuple[Axis, ...], ...] | None:
    """The axes in the dimensions of another shape; ``None`` where one would be cut."""
    left = list(axes)
    dims: list[tuple[Axis, ...]] = []
    for size in shape:
        held: list[Axis] = []
        product: Dim = 1
        while product != size:
            if not left:
                return None
            held.append(left.pop(0))
            product = product * held[-1].size
        dims.append(tuple(held))
    return None if left else tuple(dims)


def arranged(b: Builder, found: Followed, axes: Sequence[Axis]) -> Value:
    """The value with one dimension for each of these axes; it is repeated along those it lacks.

    Raises:
        UnlikeError: it has other axes.
    """
    if not {*found.axes} <= {*axes}:
        raise UnlikeError("rows are in another order here", found.value, 1)
    single = all(len(dim) < 2 for dim in found.dims)
    at = [dim[0] if dim else None for dim in found.dims] if single else found.axes
    value = found.value if single else b.reshape(found.value, [axis.size for axis in found.axes])
    return placed(b, value, at, axes, [axis.size for axis in axes])


@dataclass(frozen=True, slots=True)
class Product:
    """A ``dot_general``: its operands, and the axes that it sums over."""

    lhs: Followed
    rhs: Followed
    summed: tuple[Axis, ...]

    def either(self) -> Iterator[tuple[Followed, Followed]]:
        """The operands in both orders."""
        yield self.lhs, self.rhs
        yield self.rhs, self.lhs


def product_of(found: Followed) -> Product | None:
    """The operands of a product with their axes; ``None`` for another op."""
    op = found.value.producer("dot_general")
    if op is None:
        return None
    lhs, rhs = op.operands
    contracted = [op.attrs.integers(f"{side}_contracting_dims") for side in ("lhs", "rhs")]
    batch = [op.attrs.integers(f"{side}_batch_dims") for side in ("lhs", "rhs")]
    summed = [() if lhs.shape[dim] == 1 else (Axis(lhs.shape[dim]),) for dim in contracted[0]]
    sides: list[Followed] = []
    free = list(found.dims[len(batch[0]) :])
    for value, own, shared in zip((lhs, rhs), contracted, batch, strict=True):
        dims = dict(zip(own, summed, strict=True))
        dims |= dict(zip(shared, found.dims, strict=False))
        for dim in range(value.type.rank):
            if dim not in dims:
                dims[dim] = free.pop(0)
        sides.append(Followed(value, tuple(dims[dim] for dim in range(value.type.rank))))
    return Product(sides[0], sides[1], tuple(axis for dim in summed for axis in dim))


def factors_of(found: Followed) -> Iterator[tuple[Followed, Followed]]:
    """The factors of an elementwise product in both orders; nothing for another op.

    A ``dot_general`` that sums nothing, as JAX writes ``einsum("tei,te->tei")``, is one too.
    """
    op = found.value.producer("multiply")
    if op is not None:
        a, b = (Followed(operand, found.dims) for operand in op.operands)
        yield a, b
        yield b, a
    product = product_of(found)
    if product is not None and not product.summed:
        yield from product.either()
