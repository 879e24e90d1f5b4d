"""How a value is laid over a mesh: which axis splits which dimension, and which sums are owed."""

from __future__ import annotations

from collections.abc import Iterable

from graphgen.errors import GraphgenError


class Sharding:
    """One layout, interned by :func:`sharding`.

    Attributes:
        dims: per dimension the mesh axis that splits it, or ``None``.
        partial: mesh axes over which the value is a sum not yet taken (an all-reduce is owed).
        text: as printed, e.g. ``{-,tp}`` or ``{-,-+tp}`` for a partial sum.
    """

    __slots__ = ("dims", "partial", "text")

    def __init__(self, dims: tuple[str | None, ...], partial: tuple[str, ...]) -> None:
        self.dims = dims
        self.partial = partial
        owed = "".join(f"+{axis}" for axis in partial)
        self.text = "{" + ",".join(axis or "-" for axis in dims) + owed + "}"

    def __repr__(self) -> str:
        return self.text

    @property
    def replicated(self) -> bool:
        """True when every rank holds the whole, final value."""
        return not self.partial and not any(self.dims)

    @property
    def split(self) -> tuple[int, str] | None:
        """``(dimension, axis)`` of the split dimension, ``None`` where nothing is split."""
        for index, axis in enumerate(self.dims):
            if axis:
                return index, axis
        return None


_interned: dict[tuple[tuple[str | None, ...], tuple[str, ...]], Sharding] = {}


def sharding(dims: Iterable[str | None], partial: Iterable[str] = ()) -> Sharding:
    """The interned :class:`Sharding`; an axis may be used once (GG0104)."""
    key = (tuple(dims), tuple(sorted(partial)))
    found = _interned.get(key)
    if found is None:
        axes = [axis for axis in key[0] if axis] + list(key[1])
        if len(set(axes)) != len(axes):
            raise GraphgenError("GG0104", f"a mesh axis is used twice in {list(key[0])}")
        found = _interned[key] = Sharding(*key)
    return found


def replicated(rank: int) -> Sharding:
    """Every rank holds the whole value of this rank (number of dimensions)."""
    return sharding((None,) * rank)


def parse_sharding(text: str) -> Sharding:
    """Read ``{-,tp}`` or ``{-,-+tp}`` back (GG0104 otherwise)."""
    if not (text.startswith("{") and text.endswith("}")):
        raise GraphgenError("GG0104", f"'{text}' is not a sharding", help="write e.g. {-,tp}")
    body, *partial = text[1:-1].split("+")
    dims = [None if item == "-" else item for item in body.split(",")] if body else []
    return sharding(dims, partial)
