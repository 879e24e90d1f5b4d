"""Damage inputs: bytes, numbers and parts, by random numbers of a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Final

# Numbers at which sizes, counts and depths are wrong.
_NUMBERS: Final = (
    *(b"-1", b"0", b"1e999", b"-0.0", b"NaN", b"Infinity", b"99999999999", b"18446744073709551616"),
    *(b"9" * 400, b"9" * 5000, "²".encode(), "٣".encode(), b"true", b"null", b'"x"', b"[]", b"{}"),
)
_BYTES: Final = (b"\x00", b"\xff", b"\n", b'"', b"\\", b"\x1b[2J", "\u202e".encode(), b"../", b"/")
_NUMBER: Final = re.compile(rb"-?\d+(?:\.\d+)?")
_OPENS: Final = (b"[", b"(", b"{", b"<", b'{"a":')

Mutator = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def flip(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change some bits."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 8) if made else 0):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made)


def cut(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Leave the end out, or a part in the middle."""
    start, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return data[:start] if rng.random() < 0.5 else data[:start] + data[end:]


def repeat(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Write a part several times."""
    start, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return data[:end] + data[start : min(end, start + 4096)] * rng.randint(1, 50) + data[end:]


def number(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Put another number in the place of one, in text or in eight bytes."""
    found = list(_NUMBER.finditer(data))
    if not found or rng.random() < 0.2:
        place = rng.randint(0, max(len(data) - 8, 0))
        value = rng.choice((0, 1, 1 << 31, 1 << 32, 1 << 62, (1 << 64) - 1))
        return data[:place] + value.to_bytes(8, "little") + data[place + 8 :]
    one = rng.choice(found)
    return data[: one.start()] + rng.choice(_NUMBERS) + data[one.end() :]


def insert(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Insert bytes with a meaning, or a deep nest."""
    place = rng.randint(0, len(data))
    deep = rng.choice(_OPENS) * rng.choice((10, 1000, 100_000))
    return data[:place] + (deep if rng.random() < 0.2 else rng.choice(_BYTES)) + data[place:]


def join(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Put a part of another input in the place of a part."""
    other = rng.choice(others)
    start, end = sorted((rng.randint(0, len(other)), rng.randint(0, len(other))))
    place = rng.randint(0, len(data))
    return data[:place] + other[start:end] + data[place + end - start :]


MUTATORS: Final[Sequence[Mutator]] = (flip, cut, repeat, number, number, insert, join)
_LONGEST: Final = 4 << 20


def mutated(seeds: Sequence[bytes], name: str, place: int) -> bytes:
    """The damaged input of a number; the right inputs are the first ones.

    Args:
        seeds: right inputs.
        name: of the target.
        place: the number.
    """
    if place < len(seeds):
        return seeds[place]
    rng = random.Random(f"{name} {place}")
    data = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(MUTATORS)(rng, data, seeds)[:_LONGEST]
    return data
