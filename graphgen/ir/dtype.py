"""Element types: the XLA primitive types, interned, with no dependency on NumPy.

Names are HLO's (``f32``, ``bf16``, ``s32``, ``pred``). An unknown name is an error,
never a default.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from enum import Enum
from typing import Final, cast

from graphgen.errors import GraphgenError
from graphgen.ir.small_float import FORMATS, Special, largest, read_small, small_code, smallest

START = "quant<"
_MLIR = "!quant.uniform<"
_TO_NAME = str.maketrans({",": ";", "{": "(", "}": ")"})
_TO_MLIR = str.maketrans({";": ",", "(": "{", ")": "}"})
_STORAGE = re.compile(
    r"quant<(?P<sign>u|ui|i|si)(?P<bits>[0-9]{1,2})(?:<(?P<low>-?[0-9]{1,19}):(?P<high>-?[0-9]{1,19})>)?"
    r":(?:bf|f)[0-9]\w*(?::(?P<dimension>[0-9]{1,9}|\([0-9:;]+\)))?;(?P<scales>[-0-9.:;eE+()]+)>"
)


def quantized_name(mlir: str) -> str:
    """The name of a type in MLIR's spelling, which may have blanks.

    Raises:
        GraphgenError: GG0101 for any other text.
    """
    text = "".join(mlir.split())
    if not text.startswith(_MLIR):
        raise GraphgenError("GG0101", f"'{mlir}' is not a quantized type", help=_HELP)
    name = START + text.removeprefix(_MLIR).translate(_TO_NAME)
    storage_bits(name)
    return name


def mlir_spelling(name: str) -> str:
    """The spelling in MLIR of the type that is called ``name``: ``!quant.uniform<i8:f32, 0.1>``."""
    head, _, scales = name.removeprefix(START).partition(";")
    return f"{_MLIR}{head.translate(_TO_MLIR)}, {scales.translate(_TO_MLIR)}"


def storage_bits(name: str) -> int:
    """The bits of one stored element.

    Raises:
        GraphgenError: GG0101 for a name of another form, and for bounds that the storage type does
            not hold.
    """
    found = _STORAGE.fullmatch(name)
    if found is None:
        raise GraphgenError("GG0101", f"'{name}' is not a quantized type", help=_HELP)
    bits = int(found["bits"])
    signed = "u" not in found["sign"]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if found["low"] and not low <= int(found["low"]) < int(found["high"]) <= high:
        what = f"'{name}': the storage type holds {low} to {high}"
        raise GraphgenError("GG0101", what)
    if bool(found["dimension"]) != found["scales"].startswith("("):
        what = f"'{name}': several scales need the dimension they are along, one scale has none"
        raise GraphgenError("GG0101", what)
    return bits


def scale_counts(name: str) -> tuple[int, int] | None:
    """The dimension and the number of the scales along it; ``None`` with one scale for all."""
    found = _STORAGE.fullmatch(name)
    if found is None or not (found["dimension"] or "").isdigit():
        return None
    return int(found["dimension"]), found["scales"].count(";") + 1


_HELP = "write quant<i8:f32;0.1:5>, or quant<i8<-127:127>:f32:1;(0.1:5;0.2)> for a scale a channel"


class Kind(Enum):
    """The arithmetic of an element type."""

    FLOAT = "float"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    PRED = "pred"
    COMPLEX = "complex"
    TOKEN = "token"
    QUANTIZED = "quantized"


class DType:
    """One element type; compare with ``is``.

    Attributes:
        name: the HLO spelling.
        bits: width of one element in bits (``pred`` is stored in 8).
        kind: float, signed, unsigned, pred, complex, token or quantized.
    """

    __slots__ = ("bits", "kind", "name")

    def __init__(self, name: str, bits: int, kind: Kind) -> None:
        self.name: Final = name
        self.bits: Final = bits
        self.kind: Final = kind

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return dtype, (self.name,)

    @property
    def bytes(self) -> int:
        """Storage of one element in bytes; one of fewer bits takes a byte of its own, as in XLA."""
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
    def is_complex(self) -> bool:
        """True for complex numbers."""
        return self.kind is Kind.COMPLEX

    @property
    def is_token(self) -> bool:
        """True for tokens, which hold nothing: they order the ops that have effects."""
        return self.kind is Kind.TOKEN

    @property
    def is_quantized(self) -> bool:
        """True for integers that stand for numbers by a scale; no op here computes with them."""
        return self.kind is Kind.QUANTIZED

    @property
    def is_number(self) -> bool:
        """True for what has an order and arithmetic: integers and floats."""
        return self.is_float or self.is_integer


token = DType("token", 0, Kind.TOKEN)
pred = DType("pred", 8, Kind.PRED)
s2 = DType("s2", 2, Kind.SIGNED)
s4 = DType("s4", 4, Kind.SIGNED)
s8 = DType("s8", 8, Kind.SIGNED)
s16 = DType("s16", 16, Kind.SIGNED)
s32 = DType("s32", 32, Kind.SIGNED)
s64 = DType("s64", 64, Kind.SIGNED)
u2 = DType("u2", 2, Kind.UNSIGNED)
u4 = DType("u4", 4, Kind.UNSIGNED)
u8 = DType("u8", 8, Kind.UNSIGNED)
u16 = DType("u16", 16, Kind.UNSIGNED)
u32 = DType("u32", 32, Kind.UNSIGNED)
u64 = DType("u64", 64, Kind.UNSIGNED)
f4e2m1fn = DType("f4e2m1fn", 4, Kind.FLOAT)
f6e2m3fn = DType("f6e2m3fn", 6, Kind.FLOAT)
f6e3m2fn = DType("f6e3m2fn", 6, Kind.FLOAT)
f8e3m4 = DType("f8e3m4", 8, Kind.FLOAT)
f8e4m3 = DType("f8e4m3", 8, Kind.FLOAT)
f8e4m3fn = DType("f8e4m3fn", 8, Kind.FLOAT)
f8e4m3fnuz = DType("f8e4m3fnuz", 8, Kind.FLOAT)
f8e4m3b11fnuz = DType("f8e4m3b11fnuz", 8, Kind.FLOAT)
f8e5m2 = DType("f8e5m2", 8, Kind.FLOAT)
f8e5m2fnuz = DType("f8e5m2fnuz", 8, Kind.FLOAT)
f8e8m0fnu = DType("f8e8m0fnu", 8, Kind.FLOAT)
f16 = DType("f16", 16, Kind.FLOAT)
bf16 = DType("bf16", 16, Kind.FLOAT)
f32 = DType("f32", 32, Kind.FLOAT)
f64 = DType("f64", 64, Kind.FLOAT)
c64 = DType("c64", 64, Kind.COMPLEX)
c128 = DType("c128", 128, Kind.COMPLEX)

_ALL = (
    *(pred, c64, c128, s2, s4, s8, s16, s32, s64, u2, u4, u8, u16, u32, u64),
    *(f4e2m1fn, f6e2m3fn, f6e3m2fn, f8e3m4, f8e4m3b11fnuz, f8e4m3fnuz, f8e5m2fnuz, f8e8m0fnu),
    *(f8e4m3, f8e4m3fn, f8e5m2, f16, bf16, f32, f64),
)
# The element types of arrays.
DTYPES: dict[str, DType] = {kind.name: kind for kind in _ALL}
_quantized: dict[str, DType] = {}
# The floats that a complex number is made of.
_PARTS = {c64: f32, c128: f64}


def part_of(kind: DType) -> DType:
    """The element type of the real and the imaginary part; a real type is its own."""
    return _PARTS.get(kind, kind)


def complex_of(kind: DType) -> DType:
    """The complex type of two floats.

    Raises:
        GraphgenError: GG0105 for an element type that no complex number is made of.
    """
    for whole, part in _PARTS.items():
        if part is kind:
            return whole
    raise GraphgenError("GG0105", f"no complex number is made of {kind.name}")


def dtype(name: str | DType) -> DType:
    """Look an element type up by its HLO name.

    Raises:
        GraphgenError: GG0101 for a name that is neither in :data:`DTYPES`, nor ``token``, nor
            ``quant<...>`` (:mod:`graphgen.ir.dtype`).
    """
    if isinstance(name, DType):
        return name
    found = token if name == token.name else DTYPES.get(name)
    if found is None:
        if isinstance(cast(object, name), str) and name.startswith(START):
            return _quantized_dtype(name)
        shown = getattr(name, "__name__", name)
        near = _elsewhere(str(shown))
        help = f"did you mean {near}?" if near else f"known: {', '.join(DTYPES)}"
        raise GraphgenError("GG0101", f"unknown dtype '{shown}'", help=help)
    return found


def _quantized_dtype(name: str) -> DType:
    found = _quantized.get(name)
    if found is None:
        found = _quantized[name] = DType(name, storage_bits(name), Kind.QUANTIZED)
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


def encode(kind: DType, value: bool | int | float | complex) -> bytes:
    """The little-endian bytes of one element; floats round to nearest even.

    Raises:
        GraphgenError: GG0104 for a value the type cannot hold.
    """
    real = not isinstance(value, complex)
    if (kind is pred and value not in (0, 1)) or not (real or kind.is_complex):
        raise GraphgenError("GG0104", f"{value!r} is not a value of {kind.name}")
    try:
        if kind.is_complex:
            whole, part = complex(value), _PARTS[kind]
            return encode(part, whole.real) + encode(part, whole.imag)
        assert not isinstance(value, complex)
        if kind is bf16:
            return _round_to_bf16(float(value))
        if kind.name in FORMATS:
            return bytes([small_code(kind.name, float(value))])
        if kind.bits < 8:
            return _few_bits(kind, value)
        return struct.pack(_STRUCT[kind.name], value)
    except (struct.error, OverflowError, KeyError) as error:
        raise GraphgenError("GG0104", f"{value!r} is not a value of {kind.name}") from error


def decode(kind: DType, data: bytes) -> list[bool | int | float]:
    """The elements stored in ``data``, as Python values (GG0104 for a complex type)."""
    if kind is bf16:
        wide = (b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
        return [struct.unpack("<f", item)[0] for item in wide]
    if kind.name in FORMATS:
        return [*read_small(kind.name, data)]
    if kind.bits < 8:
        sign = 1 << (kind.bits - 1) if kind.kind is Kind.SIGNED else 0
        return [((code & (1 << kind.bits) - 1) ^ sign) - sign for code in data]
    if kind.name not in _STRUCT:
        raise GraphgenError("GG0104", f"elements of {kind.name} are not real numbers")
    return [item[0] for item in struct.iter_unpack(_STRUCT[kind.name], data)]


def decode_complex(kind: DType, data: bytes) -> list[complex]:
    """The elements of a complex type stored in ``data``."""
    parts = [float(part) for part in decode(_PARTS[kind], data)]
    return [complex(*pair) for pair in zip(parts[0::2], parts[1::2], strict=True)]


def _few_bits(kind: DType, value: bool | int | float) -> bytes:
    signed = kind.kind is Kind.SIGNED
    end = 1 << (kind.bits - 1 if signed else kind.bits)
    if not isinstance(value, int) or not (-end if signed else 0) <= value < end:
        raise OverflowError(value)
    return bytes([value & (1 << kind.bits) - 1])


def lowest(kind: DType) -> float | int:
    """The most negative finite value; what a masked score is set to.

    Finite, because a row that is masked everywhere must not become NaN.
    """
    if kind.name in FORMATS:
        return smallest(kind.name)
    if kind.is_float:
        return _LOWEST_FLOAT[kind.name]
    return -(1 << (kind.bits - 1)) if kind.kind is Kind.SIGNED else 0


def highest(kind: DType) -> float | int:
    """The largest finite value."""
    if kind.name in FORMATS:
        return largest(kind.name)
    if kind.is_float:
        return -_LOWEST_FLOAT[kind.name]
    return (1 << (kind.bits - (kind.kind is Kind.SIGNED))) - 1 if kind.is_integer else 1


# Binary digits that a float has of a number.
_DIGITS = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}


def float_digits(kind: DType) -> int:
    """Number of binary digits of a float type, the leading 1 included."""
    form = FORMATS.get(kind.name)
    return _DIGITS[kind.name] if form is None else form.mantissa + 1


def rounding_unit(kind: DType) -> float:
    """The largest relative error of rounding to a float type: half a step at 1."""
    return 2.0 ** -float_digits(kind)


def holds(kind: DType, other: DType) -> bool:
    """True where every value of ``other`` is one of ``kind``, as far as it is known."""
    if kind is other:
        return True
    if other is pred:
        return kind.is_number
    if kind.is_float and other.is_integer:
        signed = other.kind is Kind.SIGNED
        return other.bits - signed <= _DIGITS.get(kind.name, 0)
    if kind.is_float and other.is_float:
        return kind.bits >= 32 and kind.bits > other.bits
    if kind.is_integer and other.is_integer:
        wider = kind.bits > other.bits and kind.kind is Kind.SIGNED
        return wider or (kind.kind is other.kind and kind.bits > other.bits)
    return False


def common_type(one: DType, other: DType) -> DType | None:
    """The one of two types that holds the values of both; f32 for two narrow floats.

    Returns:
        ``None`` where neither does.
    """
    for kind, held in ((one, other), (other, one)):
        if holds(kind, held):
            return kind
    narrow = all(kind.is_float and kind.bits < 32 for kind in (one, other))
    return f32 if narrow else None


def has_infinity(kind: DType) -> bool:
    """True for floats with codes of both infinities."""
    form = FORMATS.get(kind.name)
    return kind.is_float and (form is None or form.special is Special.IEEE)


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
