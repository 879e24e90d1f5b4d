"""Call of an ATen op: arguments by name and result types; registration of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Domain, DType, Poly, Role, TensorType, Value
from graphgen.ir.dims import Shape
from graphgen.ir.dtype import decode, encode, f32, pred, s64
from graphgen.lowering.aten.complex_value import ComplexValue
from graphgen.lowering.aten.dtypes import HALF, result_type

# An argument: a tensor, a size, a number, a word, a type, or a list of these.
Argument = Value | ComplexValue | Dim | float | str | DType | None | Sequence["Argument"]
Operand = Value | Dim | float
# Ops that keep the values of integers, of which none is lost.
_KEEPING = ("convert", "reshape", "transpose", "broadcast_in_dim")
# torch's default where a list of slices ends.
END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class AtenCall:
    """A call of an ATen op.

    Attributes:
        b: the builder of the IR.
        op: the name of the op, ``add.Tensor``.
        given: the arguments by the names of its schema, defaults filled in.
        types: the types of its results, as torch infers them.
    """

    b: Builder
    op: str
    given: Mapping[str, Argument]
    types: tuple[TensorType, ...]

    @property
    def type(self) -> TensorType:
        """The type of the first result."""
        return self.types[0]

    @property
    def dtype(self) -> DType:
        """The element type of the first result."""
        return self.types[0].dtype

    @property
    def shape(self) -> Shape:
        """The shape of the first result."""
        return self.types[0].shape

    def refuses_outside(self, index: Value, low: Dim, high: Dim) -> None:
        """Note the domain of an index that a caller gives: torch raises for any other value."""
        while index.op is not None and index.op.name in _KEEPING:
            index = index.op.operands[0]
        rows = self.b.module.interface if self.b.module is not None else {}
        row = rows.get(index.name or "") if index.op is None else None
        if row is None or row.role is not Role.INPUT or not row.logical.dtype.is_integer:
            return
        known = row.domain.numbers if row.domain is not None else None
        if isinstance(low, int) and isinstance(high, int) and low <= high:
            if known is not None:
                low, high = max(low, int(known[0])), min(high, int(known[1]))
            if low <= high:
                rows[row.name] = replace(row, domain=Domain(low, high))

    def value(self, name: str) -> Value:
        """The tensor ``name``."""
        found = self.given[name]
        assert isinstance(found, Value), f"{self.op}: {name}"
        return found

    def maybe(self, name: str) -> Value | None:
        """The tensor ``name``, if one is given."""
        found = self.given.get(name)
        return found if isinstance(found, Value) else None

    def values(self, name: str) -> list[Value]:
        """The tensors of the list ``name``."""
        return [item for item in self.items(name) if isinstance(item, Value)]

    def items(self, name: str) -> list[Argument]:
        """The list ``name``; an empty one where it is not given."""
        found = self.given.get(name)
        return list(found) if _is_list(found) else []

    def operand(self, name: str) -> Operand:
        """The tensor or number ``name``."""
        found = self.given[name]
        assert isinstance(found, Value | Poly | int | float), f"{self.op}: {name}"
        return found

    def number(self, name: str, default: float = 0) -> float:
        """The number ``name``."""
        found = self.given.get(name)
        return found if isinstance(found, int | float) else default

    def integer(self, name: str, default: int = 0) -> int:
        """The integer ``name`` (GG0106 for a symbolic size)."""
        found = self.given.get(name)
        if found is None:
            return default
        if isinstance(found, int):
            return found
        raise GraphgenError("GG0106", f"{self.op}: {name} has to be known, and is {found}")

    def flag(self, name: str, default: bool = False) -> bool:
        """The boolean ``name``."""
        found = self.given.get(name)
        return found if isinstance(found, bool) else default

    def size(self, name: str, default: Dim) -> Dim:
        """The size ``name``."""
        found = self.given.get(name)
        return found if isinstance(found, int | Poly) else default

    def word(self, name: str, default: str = "") -> str:
        """The text ``name``."""
        found = self.given.get(name)
        return found if isinstance(found, str) else default

    def dim(self, name: str, rank: int, default: int = 0) -> int:
        """The dimension ``name`` of a tensor of this rank; negative ones count from the end."""
        return wrapped(self.integer(name, default), rank)

    def dims(self, name: str, rank: int) -> list[int]:
        """The dimensions ``name``, in increasing order; all where none are given."""
        given = self.given.get(name)
        if isinstance(given, int):
            return [wrapped(given, rank)]
        listed = [item for item in self.items(name) if isinstance(item, int)]
        return sorted(wrapped(item, rank) for item in listed) if listed else list(range(rank))

    def promoted(self, *names: str) -> DType:
        """The type that these operands are computed in."""
        return result_type([self.operand(name) for name in names])

    def spread(self, value: Value, shape: Sequence[Dim]) -> Value:
        """``value`` repeated to ``shape``, dimensions matched from the last one."""
        if value.shape == tuple(shape):
            return value
        first = len(shape) - len(value.shape)
        return self.b.broadcast_in_dim(value, shape, range(first, len(shape)))

    def full(self, number: Operand, dtype: DType, shape: Sequence[Dim] = ()) -> Value:
        """A tensor that holds one number everywhere."""
        if isinstance(number, Value):
            return self.spread(self.cast(number, dtype), shape)
        if isinstance(number, Poly):
            return self.full(counted(self.b, number), dtype, shape)
        if dtype is pred:
            number = bool(number)
        elif dtype.is_float:
            number = float(number)
        else:
            number = _in_range(int(number), dtype)
        scalar = self.b.literal(number, dtype)
        return self.b.broadcast_in_dim(scalar, shape, ()) if shape else scalar

    def cast(self, value: Value, dtype: DType) -> Value:
        """``value`` as another element type, as torch converts it."""
        if value.dtype is dtype:
            return value
        if dtype is pred:
            return self.b.compare(value, self.b.full(0, value.type), "NE")
        return self.b.convert(value, dtype)

    def same(self, dtype: DType, *names: str, shape: Sequence[Dim] | None = None) -> list[Value]:
        """Operands as tensors of one type and of the result's shape."""
        wanted = self.shape if shape is None else shape
        return [self.full(self.operand(name), dtype, wanted) for name in names]


def wrapped(dim: int, rank: int) -> int:
    """Convert a dimension that counts from the end."""
    return dim + max(rank, 1) if dim < 0 else dim


def counted(b: Builder, size: Dim) -> Value:
    """Build a size as an s64 scalar: the sum of that many ones."""
    if isinstance(size, int):
        return b.literal(size, s64)
    ones = b.broadcast_in_dim(b.literal(1, s64), (size,), ())
    return b.reduce(ones, [0], "add")


def wide(dtype: DType) -> DType:
    """Return the type that torch computes in: f32 for narrower floats."""
    return f32 if dtype in HALF else dtype


def computed_in(dtype: DType, *operands: Operand) -> DType:
    """Return f32 for a narrower ``dtype`` that cannot hold the numbers among the operands."""
    numbers = [operand for operand in operands if isinstance(operand, int | float)]
    return wide(dtype) if any(not _holds(dtype, float(n)) for n in numbers) else dtype


def _holds(dtype: DType, number: float) -> bool:
    if dtype not in HALF or number != number:
        return True
    try:
        return decode(dtype, encode(dtype, number)) == [number]
    except GraphgenError:
        return False


def _in_range(number: int, dtype: DType) -> int:
    """Wrap a number around into an integer type, as torch does."""
    low = -(1 << (dtype.bits - 1)) if dtype.kind.value == "signed" else 0
    return (number - low) % (1 << dtype.bits) + low


def _is_list(found: Argument) -> TypeGuard[Sequence[Argument]]:
    return isinstance(found, list | tuple)


AtenResult = Value | Sequence[Value]
Rule = Callable[[AtenCall], AtenResult]
ATEN: dict[str, Rule] = {}


def aten(*names: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of the ops ``names``, each ``op.overload``."""

    def enter(rule: Rule) -> Rule:
        for name in names:
            assert name not in ATEN, f"two rules for {name}"
            ATEN[name] = rule
        return rule

    return enter
