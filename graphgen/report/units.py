"""Bytes and counts as people read them, and lists of names that differ in numbers folded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from graphgen.ir import Dim


def size(count: Dim) -> str:
    """Bytes: ``1.05 GB``; a polynomial as it is."""
    if not isinstance(count, int):
        return f"{count} bytes"
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} B"


def number(count: Dim) -> str:
    """A count: ``22.37 G``; a polynomial as it is."""
    if not isinstance(count, int):
        return str(count)
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return str(count)


def milliseconds(seconds: float) -> str:
    """A time: ``1392.20 ms``, of short times microseconds or nanoseconds."""
    for unit, name in ((1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit / 100:
            return f"{seconds / unit:.2f} {name}"
    return f"{seconds * 1e9:.2f} ns"


def duration(seconds: float) -> str:
    """A time in the largest unit of which it has at least one: ``1.39 s``, ``27.30 us``."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:.2f} {name}"
    return f"{seconds * 1e9:.2f} ns"


def short(text: str, width: int = 40) -> str:
    """The text, or its beginning and three dots."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def spans(numbers: Sequence[int]) -> str:
    """Rising numbers by steps: ``1,3..63`` is 1, 3, 5, ... 63."""
    if len(numbers) < 3:
        return ",".join(map(str, numbers))
    step = numbers[1] - numbers[0]
    steady = all(b - a == step for a, b in pairwise(numbers))
    if not steady:
        return f"{numbers[0]},{numbers[1]}..{numbers[-1]} ({len(numbers)})"
    first = str(numbers[0]) if step == 1 else f"{numbers[0]},{numbers[1]}"
    return f"{first}..{numbers[-1]}"


def pattern(name: str) -> str:
    """The name without its numbers; names of one pattern can be folded."""
    return re.sub(r"\d+", "#", name)


def folded(names: Sequence[str]) -> str:
    """Names of one :func:`pattern` as one: ``layers.{0..31}.k_cache``."""
    if len(names) == 1:
        return names[0]
    columns = list(zip(*[map(int, re.findall(r"\d+", name)) for name in names], strict=True))
    shown = iter(
        str(column[0]) if len(set(column)) == 1 else "{" + spans(sorted(set(column))) + "}"
        for column in columns
    )
    return re.sub(r"\d+", lambda _: next(shown), names[0])


def groups(names: Sequence[str]) -> list[list[str]]:
    """The names that can be folded together, in order of first appearance."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(pattern(name), []).append(name)
    return list(found.values())
