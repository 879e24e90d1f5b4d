"""Shardings: the mesh axes that split each dimension of a value, and the unreduced axes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from graphgen.errors import GraphgenError

# The text marker of unreduced axes, by kind of reduction.
_MARKS = {"add": "+", "maximum": ">", "minimum": "<"}
_KINDS = {mark: kind for kind, mark in _MARKS.items()}
_AXIS = re.compile(r"[^\s{},*+<>-]+")
# The axes that split one dimension, the outermost cut first.
Axes = tuple[str, ...]


class Sharding:
    """One layout, interned by :func:`sharding`.

    Attributes:
        dims: per dimension the mesh axes that split it, the outermost cut first; empty for whole.
        partial: mesh axes over which the ranks' values are still to be combined.
        kind: how: ``add``, ``maximum`` or ``minimum``.
        text: as printed, e.g. ``{-,tp}``, ``{dp*tp,-}``, or ``{-,-+tp}`` for a sum not yet taken.
        axes: every axis that splits a dimension.
    """

    __slots__ = ("axes", "dims", "kind", "partial", "text")

    def __init__(self, dims: tuple[Axes, ...], partial: Axes, kind: str) -> None:
        self.dims = dims
        self.partial = partial
        self.kind = kind
        self.axes: Axes = tuple([axis for axes in dims for axis in axes])
        owed = "".join(f"{_MARKS[kind]}{axis}" for axis in partial)
        self.text = "{" + ",".join("*".join(axes) or "-" for axes in dims) + owed + "}"

    def __repr__(self) -> str:
        return self.text

    def __reduce__(
        self,
    ) -> tuple[Callable[..., Sharding], tuple[tuple[Axes, ...], Axes, str]]:
        return sharding, (self.dims, self.partial, self.kind)

    @property
    def replicated(self) -> bool:
        """True when every rank holds the whole, final value."""
        return not self.partial and not any(self.dims)


_interned: dict[tuple[tuple[Axes, ...], Axes, str], Sharding] = {}


def sharding(
    dims: Iterable[str | Axes | None], partial: Iterable[str] = (), kind: str = "add"
) -> Sharding:
    """The interned :class:`Sharding`.

    Args:
        dims: per dimension an axis, several axes, or ``None`` (or no axes) for whole.
        partial: axes over which the value is unreduced.
        kind: which combination.

    Raises:
        GraphgenError: GG0104 when an axis is used twice.
    """
    cuts = tuple((item,) if isinstance(item, str) else item or () for item in dims)
    owed = tuple(sorted(partial))
    key = (cuts, owed, kind if owed else "add")
    found = _interned.get(key)
    if found is None:
        axes = [axis for cut in cuts for axis in cut] + list(owed)
        if len(set(axes)) != len(axes):
            raise GraphgenError("GG0104", f"a mesh axis is used twice in {Sharding(*key).text}")
        found = _interned[key] = Sharding(*key)
    return found


@cache
def replicated(rank: int) -> Sharding:
    """Every rank holds the whole value of this rank (number of dimensions)."""
    return sharding(((),) * rank)


def parse_sharding(text: str) -> Sharding:
    """Read ``{-,tp}``, ``{dp*tp,-}`` or ``{-,-+tp}`` back (GG0104 otherwise)."""
    if not (text.startswith("{") and text.endswith("}")):
        raise GraphgenError("GG0104", f"'{text}' is not a sharding", help="write e.g. {-,tp}")
    inner = text[1:-1]
    marks = [mark for mark in _KINDS if mark in inner]
    if len(marks) > 1:
        raise GraphgenError("GG0104", f"'{text}' owes two kinds of combination")
    body, *partial = inner.split(marks[0]) if marks else [inner]
    dims = [_parse_axes(item, text) for item in body.split(",")] if body else []
    return sharding(dims, partial, _KINDS[marks[0]] if marks else "add")


def _parse_axes(item: str, text: str) -> Axes:
    if item == "-":
        return ()
    axes = tuple(item.split("*"))
    if not all(map(_AXIS.fullmatch, axes)):
        raise GraphgenError("GG0104", f"'{text}' is not a sharding", help="write e.g. {-,tp}")
    return axes
