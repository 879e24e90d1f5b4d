"""Protobufs of the stand-in: fields of a message, and a module that asks for layouts of weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Fields of XLA's messages.
NAME, COMPUTATIONS, PROGRAM_SHAPE, COMPUTATION_ID, ENTRY_ID, ROOT_ID = 1, 3, 4, 5, 6, 6
OPCODE, SHAPE, PARAMETER, DIMENSIONS, ID, OPERANDS, CALLED, TARGET = 2, 3, 9, 14, 35, 36, 38, 28
ATTRIBUTES, MODULE_ATTRIBUTES = 68, 19
ELEMENT, SIZES, LAYOUT, MINOR_TO_MAJOR = 2, 3, 5, 1
FREE = b"transposable_weight_idx"


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message: numbers and bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        elif key & 7 == 2:
            size, at = varint(data, at)
            if at + size > len(data):
                raise ValueError("the protobuf is cut short")
            yield key >> 3, data[at : at + size]
            at += size
        else:
            at += {1: 8, 5: 4}[key & 7]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of the wire format, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def number(key: int, value: int) -> bytes:
    """A field with a number."""
    return encode(key << 3) + encode(value)


def block(key: int, value: bytes) -> bytes:
    """A field with bytes."""
    return encode(key << 3 | 2) + encode(len(value)) + value


def encode(value: int) -> bytes:
    """A number of the wire format."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def packed(data: bytes) -> list[int]:
    """The numbers of a packed field."""
    found, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(value)
    return found


def shape(element: int, sizes: list[int]) -> bytes:
    """A ShapeProto whose last dimension varies fastest."""
    order = b"".join(encode(i) for i in reversed(range(len(sizes))))
    rows = b"".join(map(encode, sizes))
    return number(ELEMENT, element) + block(SIZES, rows) + block(LAYOUT, block(1, order))


class Stub:
    """A module that is written instruction by instruction."""

    def __init__(self) -> None:
        self.last = 0
        self.computations: list[bytes] = []

    def instruction(self, opcode: str, form: bytes, *more: bytes) -> tuple[int, bytes]:
        """The id of a new instruction, and its bytes."""
        self.last += 1
        name = f"{opcode}.{self.last}".encode()
        body = block(NAME, name) + block(OPCODE, opcode.encode()) + block(SHAPE, form)
        return self.last, body + number(ID, self.last) + b"".join(more)

    def computation(self, instructions: list[bytes], root: int) -> int:
        """The id of a new computation."""
        self.last += 1
        body = block(NAME, f"c.{self.last}".encode())
        body += b"".join(block(2, item) for item in instructions)
        body += number(COMPUTATION_ID, self.last) + number(ROOT_ID, root)
        self.computations.append(body)
        return self.last

    def change(self, element: int, sizes: list[int], split: list[int], order: list[int]) -> int:
        """A computation that reshapes its parameter and transposes it."""
        first, parameter = self.instruction("parameter", shape(element, sizes))
        form = shape(element, split)
        second, reshaped = self.instruction("reshape", form, number(OPERANDS, first))
        form = shape(element, [split[i] for i in order])
        dims = block(DIMENSIONS, b"".join(map(encode, order)))
        third, made = self.instruction("transpose", form, number(OPERANDS, second), dims)
        return self.computation([parameter, reshaped, made], third)


def wrapped_neff(data: bytes, kind: str) -> bytes:
    """The module with a call for each weight whose layout is changed; empty if none is free.

    Of the free weights every fourth one is right as it is; the others are transposed, or split and
    transposed where their first size is even. ``kind`` is ``mixed``, or ``odd`` for an op that the
    published form does not have.
    """
    module = [*fields(data)]
    free = [i for key, item in module if key == MODULE_ATTRIBUTES for i in _free(item)]
    entry = [item for key, item in module if key == COMPUTATIONS][-1]
    parameters = [row for key, item in fields(entry) if key == 2 for row in [dict(fields(item))]]
    parameters = [row for row in parameters if row[OPCODE] == b"parameter"]
    stub, body, ids = Stub(), [], []
    for row in parameters:
        index = row.get(PARAMETER, 0)
        place, made = stub.instruction("parameter", row[SHAPE], number(PARAMETER, index))
        body.append(made)
        if index in free and free.index(index) % 4 < 3:
            kept: dict[int, Any] = {}
            for key, value in fields(row[SHAPE]):
                kept.setdefault(key, []).append(value)
            sizes = [n for v in kept[SIZES] for n in (packed(v) if isinstance(v, bytes) else [v])]
            split, order = _layout(sizes, free.index(index))
            called = stub.change(kept[ELEMENT][0], sizes, split, order)
            attribute = block(1, block(1, FREE) + block(2, str(index).encode()))
            more = (number(OPERANDS, place), number(CALLED, called), block(ATTRIBUTES, attribute))
            form = shape(kept[ELEMENT][0], [split[i] for i in order])
            place, made = stub.instruction("call", form, *more)
            body.append(made)
        ids.append(place)
    operands = b"".join(number(OPERANDS, i) for i in ids)
    target = block(TARGET, b"AwsNeuronNeff")
    root, made = stub.instruction("custom-call", shape(11, [1]), operands, target)
    entry_id = stub.computation([*body, made], root)
    if kind == "odd":
        stub.computations = [item.replace(b"reshape", b"reverse") for item in stub.computations]
    whole = block(NAME, b"wrapped") + block(2, b"wrapped")
    whole += b"".join(block(COMPUTATIONS, item) for item in stub.computations)
    return whole + number(ENTRY_ID, entry_id) if free else b""


def _free(attributes: bytes) -> list[int]:
    for _, item in fields(attributes):
        entry = dict(fields(item))
        if entry[1] == FREE:
            return [int(word) for word in entry[2].split(b",")]
    return []


def _layout(sizes: list[int], place: int) -> tuple[list[int], list[int]]:
    """The shape and the permutation of a change."""
    if place % 2 and not sizes[0] % 2:
        split = [2, sizes[0] // 2, *sizes[1:]]
        return split, [1, *range(2, len(split)), 0]
    return sizes, [*range(len(sizes))][::-1]
