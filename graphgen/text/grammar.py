"""Format and parse attribute values, literals and types of IR text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import lru_cache

from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Dim, DType, Literal, TensorType, dtype, parse_dim, tensor
from graphgen.ir.dtype import DTYPES, encode, part_of
from graphgen.json_value import parse_json
from graphgen.limits import DIMS, RANKS
from graphgen.numbers import MOST_SIZE, signed_number, whole_number
from graphgen.ops import Attr

NAME = r"[\w.\-][\w.$\-]*"
# An element type, of which quantized ones have more than letters, and a type.
_ELEMENT = r"(?:\w+|quant<[^\s\[\]{},]+>)"
TYPE = rf"{_ELEMENT}\[[^\[\]]*\]"
# Beyond this many elements a literal is printed as hexadecimal bytes.
MOST_ELEMENTS = 64


def format_number(value: bool | int | float, kind: DType) -> str:
    """The shortest decimal that reads back as the same bits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    wanted = encode(kind, value)
    # 9 digits name every f32; most constants need fewer.
    tries = (f"{value:.{digits}g}" for digits in (6, 7, 8, 9))
    short = next((t for t in tries if encode(kind, float(t)) == wanted), repr(value))
    return short if any(c in short for c in ".ein") else f"{short}.0"


def format_literal(literal: Literal) -> str:
    """``f32[](0.5)``, ``f32[2](1.0,0.1)``, or hexadecimal bytes for NaN and long literals."""
    head = f"{literal.dtype.name}[{','.join(map(str, literal.shape))}]"
    if literal.dtype.is_complex:
        return f"{head}({_format_complex(literal)})"
    values = literal.values()
    exact = not any(isinstance(v, float) and math.isnan(v) for v in values)
    if exact and len(values) <= MOST_ELEMENTS:
        return f"{head}({','.join(format_number(v, literal.dtype) for v in values)})"
    return f"{head}(0x{literal.data.hex()})"


def _format_complex(literal: Literal) -> str:
    """``(1.0,0.5),(2.0,0.0)``, or hexadecimal bytes."""
    values, part = literal.complex_values(), part_of(literal.dtype)
    if len(values) > MOST_ELEMENTS or any(value != value for value in values):
        return f"0x{literal.data.hex()}"
    pairs = [[format_number(x, part) for x in (value.real, value.imag)] for value in values]
    return ",".join([f"({real},{imaginary})" for real, imaginary in pairs])


def parse_literal(text: str) -> Literal:
    """Parse the text of :func:`format_literal` (GG0201)."""
    match = re.fullmatch(r"(\w+)\[([0-9,]*)\]\((.*)\)", text)
    if not match:
        raise GraphgenError("GG0201", f"'{text}' is not a literal", help="write e.g. f32[](0.5)")
    kind = dtype(match[1])
    shape = tuple(whole_number(size) for size in match[2].split(",") if size)
    body = match[3]
    if body.startswith("0x"):
        data = _from_hex(body[2:])
    else:
        plain = _parts(text, body) if kind.is_complex else body
        items = plain.split(",") if plain else []
        part = part_of(kind)
        data = b"".join(Literal.of(part, _number(item, part)).data for item in items)
    if len(data) != math.prod(shape) * kind.bytes:
        raise GraphgenError("GG0201", f"literal {match[1]}{list(shape)} has {len(data)} bytes")
    return Literal(kind, shape, data)


def _parts(text: str, body: str) -> str:
    """The parts of complex numbers in order, without parentheses."""
    if not re.fullmatch(r"(\([^(),]+,[^(),]+\),?)*", body):
        raise GraphgenError("GG0201", f"'{text}' is not a literal", help="write c64[]((0.5,1.0))")
    return body.replace("(", "").replace(")", "")


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise GraphgenError("GG0201", "bad hexadecimal digits in a literal") from error


def _number(text: str, kind: DType) -> bool | int | float:
    if kind.name == "pred" and text in ("true", "false"):
        return text == "true"
    try:
        return _float(text) if kind.is_float else signed_number(text, 2 * MOST_SIZE + 1)
    except ValueError as error:
        raise GraphgenError("GG0201", f"'{text}' is not a {kind.name}") from error


def format_string(value: str) -> str:
    """A string as JSON with blanks escaped, since a blank ends an attribute."""
    return json.dumps(value).replace(" ", "\\u0020")


def _parse_string(text: str) -> str:
    try:
        found: object = parse_json(text)
    except ValueError as error:
        raise GraphgenError("GG0201", f"'{text}' is not a JSON string") from error
    if not isinstance(found, str):
        raise GraphgenError("GG0201", f"'{text}' is not a JSON string")
    return found


def _parse_types(text: str) -> tuple[TensorType, ...]:
    if not re.fullmatch(rf"\[({TYPE},?)*\]", text):
        raise GraphgenError("GG0201", f"'{text}' is not a list of types, e.g. [f32[2],s32[]]")
    return tuple(parse_type(item) for item in re.findall(TYPE, text))


def format_attr(value: AttrValue) -> str:
    """One attribute value as text, to be parsed by the attribute's kind."""
    if isinstance(value, Literal):
        return format_literal(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        items = [i.text if isinstance(i, TensorType) else format_attr(i) for i in value]
        return f"[{','.join(items)}]"
    return str(value)


def _parse_dims(text: str) -> tuple[Dim, ...]:
    if not (text.startswith("[") and text.endswith("]")):
        raise GraphgenError("GG0201", f"'{text}' is not a list", help="write e.g. [0,1]")
    return tuple(parse_dim(item) for item in text[1:-1].split(",") if item)


def _parse_integers(text: str) -> tuple[Dim, ...]:
    values = _parse_dims(text)
    if not all(isinstance(value, int) for value in values):
        raise GraphgenError("GG0201", f"'{text}' is not a list of integers")
    return values


def _parse_integer(text: str) -> int:
    try:
        return signed_number(text, 2 * MOST_SIZE + 1)
    except ValueError as error:
        raise GraphgenError("GG0201", f"'{text[:60]}' is not an integer: {error}") from error


def _float(text: str) -> float:
    # Python reads 1_0 and digits of other alphabets too.
    if not text.isascii() or "_" in text:
        raise ValueError(f"'{text[:60]}' is not a number")
    return float(text)


def _parse_float(text: str) -> float:
    try:
        return _float(text)
    except ValueError as error:
        raise GraphgenError("GG0201", f"'{text[:60]}' is not a number") from error


def _parse_boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise GraphgenError("GG0201", f"'{text}' is neither true nor false")
    return text == "true"


def _parse_groups(text: str) -> tuple[tuple[int, ...], ...]:
    if not re.fullmatch(r"\[(\[[0-9,]*\],?)*\]", text):
        raise GraphgenError("GG0201", f"'{text}' is not a list of groups, e.g. [[0,1]]")
    groups = re.findall(r"\[([0-9,]*)\]", text[1:-1])
    return tuple(
        tuple(whole_number(rank, RANKS.most) for rank in group.split(",") if rank)
        for group in groups
    )


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple([name for name in text[1:-1].split(",") if name])
    legal = text.startswith("[") and text.endswith("]")
    if not legal or not all(re.fullmatch(NAME, name) for name in names):
        raise GraphgenError("GG0201", f"'{text}' is not a list of names", help="write e.g. [f,g]")
    return names


_PARSERS: dict[str, Callable[[str], AttrValue]] = {
    "integer": _parse_integer,
    "integers": _parse_integers,
    "number": _parse_float,
    "text": str,
    "dim": parse_dim,
    "dims": _parse_dims,
    "element": dtype,
    "literal": parse_literal,
    "groups": _parse_groups,
    "boolean": _parse_boolean,
    "string": _parse_string,
    "types": _parse_types,
    "names": _parse_names,
}


def parse_attr(attr: Attr, text: str) -> AttrValue:
    """Read one attribute value of the given kind (GG0101, GG0102, GG0201)."""
    return _PARSERS[attr.type.tag](text)


@lru_cache(maxsize=4096)
def parse_type(text: str) -> TensorType:
    """Read ``bf16[B,S,576]`` (GG0101, GG0102, GG0201)."""
    match = re.fullmatch(rf"({_ELEMENT})\[([^\[\]]*)\]", text)
    if not match:
        known = ", ".join(list(DTYPES)[-4:])
        raise GraphgenError("GG0201", f"'{text}' is not a type", help=f"e.g. f32[B,4]; {known}")
    sizes = [item for item in match[2].split(",") if item]
    if len(sizes) > DIMS.most:
        raise GraphgenError("GG0201", f"a type of {len(sizes)} dims; {DIMS} are read")
    return tensor(dtype(match[1]), [parse_dim(item) for item in sizes])
