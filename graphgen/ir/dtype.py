"""Element types: the XLA primitive types, interned, with no dependency on NumPy.

Names are HLO's (``f32``, ``bf16``, ``s32``, ``pred``). An unknown name is an error,
never a default.
"""

from __future__ import annotations

import struct
from enum import Enum
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir.small_float import largest, read_small, small_code


class Kind(Enum):
    """The arithmetic of an element type."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    PRED = "pred"
    COMPLEX = "complex"


class DType:
    """One element type; compare with ``is``.

    Attributes:
        name: the HLO spelling.
        bits: width of one element in bits (``pred`` is stored in 8).
        kind: float, signed, unsigned, pred or complex.
    """

    __slots__ = ("bits", "kind", "name")

    def __init__(self, name: str, bits: int, kind: Kind) -> None:
        self.name: Final = name
        self.bits: Final = bits
        self.kind: Final = kind

    def __repr__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """Storage of one element in bytes; a 4-bit integer takes a byte of its own, as in XLA."""
        return -(-self.bits // 8)

    @property
    def is_float(self) -> bool:
        """True for floating-point types."""
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, false for ``pred``."""
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_number(self) -> bool:
        """True for what arithmetic is defined on here: integers and floats."""
        return self.is_float or self.is_integer


pred = DType("pred", 8, Kind.PRED)
s4 = DType("s4", 4, Kind.SIGNED)
s8 = DType("s8", 8, Kind.SIGNED)
s16 = DType("s16", 16, Kind.SIGNED)
s32 = DType("s32", 32, Kind.SIGNED)
s64 = DType("s64", 64, Kind.SIGNED)
u4 = DType("u4", 4, Kind.UNSIGNED)
u8 = DType("u8", 8, Kind.UNSIGNED)
u16 = DType("u16", 16, Kind.UNSIGNED)
u32 = DType("u32", 32, Kind.UNSIGNED)
u64 = DType("u64", 64, Kind.UNSIGNED)
f8e4m3 = DType("f8e4m3", 8, Kind.FLOAT)
f8e4m3fn = DType("f8e4m3fn", 8, Kind.FLOAT)
f8e5m2 = DType("f8e5m2", 8, Kind.FLOAT)
f16 = DType("f16", 16, Kind.FLOAT)
bf16 = DType("bf16", 16, Kind.FLOAT)
f32 = DType("f32", 32, Kind.FLOAT)
f64 = DType("f64", 64, Kind.FLOAT)

# Carried and moved, never computed with.
c64 = DType("c64", 64, Kind.COMPLEX)

_ALL = (
    *(pred, c64, s4, s8, s16, s32, s64, u4, u8, u16, u32, u64),
    *(f8e4m3, f8e4m3fn, f8e5m2, f16, bf16, f32, f64),
)
DTYPES: dict[str, DType] = {kind.name: kind for kind in _ALL}
_SMALL = (f8e4m3, f8e4m3fn, f8e5m2)


def dtype(name: str | DType) -> DType:
    """Look an element type up by its HLO name.

    Raises:
        GraphgenError: GG0101 for a name that is not in :data:`DTYPES`.
    """
    if isinstance(name, DType):
        return name
    found = DTYPES.get(name)
    if found is None:
        shown = getattr(name, "__name__", name)
        near = _elsewhere(str(shown))
        help = f"did you mean {near}?" if near else f"known: {', '.join(DTYPES)}"
        raise GraphgenError("GG0101", f"unknown dtype '{shown}'", help=help)
    return found


def _elsewhere(name: str) -> str:
    """The type that NumPy or torch call ``name``, in any case; empty if there is none."""
    name = name.lower().rpartition(".")[2]
    words = {"bool": "pred", "half": "f16", "float": "f32", "double": "f64", "bfloat16": "bf16"}
    found = words.get(name, name)
    for long, short in (("float", "f"), ("uint", "u"), ("int", "s"), ("fp", "f"), ("i", "s")):
        if name.startswith(long) and name.removeprefix(long).isdigit():
            found = name.replace(long, short)
            break
    return found if found in DTYPES else ""


_STRUCT = {
    "pred": "<?",
    "s8": "<b",
    "s16": "<h",
    "s32": "<i",
    "s64": "<q",
    "u8": "<B",
    "u16": "<H",
    "u32": "<I",
    "u64": "<Q",
    "f16": "<e",
    "f32": "<f",
    "f64": "<d",
}


def encode(kind: DType, value: bool | int | float) -> bytes:
    """The little-endian bytes of one element; floats round to nearest even.

    Raises:
        GraphgenError: GG0104 for a value the type cannot hold.
    """
    if kind is pred and value not in (0, 1):
        raise GraphgenError("GG0104", f"{value!r} is not a value of pred")
    try:
        if kind is bf16:
            return _round_to_bf16(float(value))
        if kind in _SMALL:
            return bytes([small_code(kind.name, float(value))])
        if kind.bits == 4:
            return _nibble(kind, value)
        return struct.pack(_STRUCT[kind.name], value)
    except (struct.error, OverflowError, KeyError) as error:
        raise GraphgenError("GG0104", f"{value!r} is not a value of {kind.name}") from error


def decode(kind: DType, data: bytes) -> list[bool | int | float]:
    """The elements stored in ``data``, as Python values (GG0104 for a complex type)."""
    if kind is bf16:
        wide = (b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
        return [struct.unpack("<f", item)[0] for item in wide]
    if kind in _SMALL:
        return [*read_small(kind.name, data)]
    if kind.bits == 4:
        sign = 8 if kind.kind is Kind.SIGNED else 0
        return [((code & 15) ^ sign) - sign for code in data]
    if kind.name not in _STRUCT:
        raise GraphgenError("GG0104", f"elements of {kind.name} are not numbers")
    return [item[0] for item in struct.iter_unpack(_STRUCT[kind.name], data)]


def _nibble(kind: DType, value: bool | int | float) -> bytes:
    low, high = (-8, 7) if kind.kind is Kind.SIGNED else (0, 15)
    if not isinstance(value, int) or not low <= value <= high:
        raise OverflowError(value)
    return bytes([value & 15])


def lowest(kind: DType) -> float | int:
    """The most negative finite value; what a masked score is set to.

    Finite, because a row that is masked everywhere must not become NaN.
    """
    if kind in _SMALL:
        return -largest(kind.name)
    if kind.is_float:
        return _LOWEST_FLOAT[kind.name]
    return -(1 << (kind.bits - 1)) if kind.kind is Kind.SIGNED else 0


_LOWEST_FLOAT = {
    "f16": -65504.0,
    "bf16": -3.3895313892515355e38,
    "f32": -3.4028234663852886e38,
    "f64": -1.7976931348623157e308,
}


def _round_to_bf16(value: float) -> bytes:
    if value != value:
        return b"\xc0\x7f"
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return struct.pack("<I", bits + 0x7FFF + ((bits >> 16) & 1))[2:]
