"""Layers that differ: ``layer_types`` of a ``config.json``, and lists of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.models.config_reader import ConfigReader

SLIDING, CHUNKED, FULL = "sliding_attention", "chunked_attention", "full_attention"


def read_layer_types(
    reader: ConfigReader, slides: Sequence[bool], near: str = SLIDING
) -> tuple[str, ...]:
    """``layer_types``; if it is missing, ``near`` where ``slides`` says so (GG0503)."""
    reader.used.add("layer_types")
    value = reader.config.get("layer_types")
    if value is None:
        return tuple(near if sliding else FULL for sliding in slides)
    types = tuple(cast("list[object]", value)) if isinstance(value, list) else ()
    if len(types) != len(slides) or any(item not in (near, FULL) for item in types):
        raise GraphgenError(
            "GG0503",
            f"config: layer_types = {value!r} is not one of '{near}' and '{FULL}' for each of "
            f"{len(slides)} layers",
        )
    return tuple(map(str, types))


def read_numbers(reader: ConfigReader, key: str, count: int = 0) -> list[int] | None:
    """A list of whole numbers, of ``count`` if that is not 0; ``None`` when absent (GG0503).

    With a count an empty list counts as absent.
    """
    reader.used.add(key)
    value = reader.config.get(key)
    if value is None or (count and value == []):
        return None
    numbers = cast("list[object]", value) if isinstance(value, list) else [None]
    read = [int(number) for number in numbers if isinstance(number, int)]
    if len(read) != len(numbers) or (count and len(read) != count):
        of = f"{count} numbers" if count else "layers"
        raise GraphgenError("GG0503", f"config: {key} = {value!r} is not a list of {of}")
    return read


def read_rotated(reader: ConfigReader, layers: int) -> tuple[bool, ...]:
    """True for each layer with rotary positions: all but every fourth by default (GG0503)."""
    every = reader.integer("no_rope_layer_interval", 4)
    given = read_numbers(reader, "no_rope_layers", layers)
    return tuple(map(bool, given or [(layer + 1) % every for layer in range(layers)]))


def kinds(types: Sequence[str]) -> tuple[str, ...]:
    """The types of a wide model's layers: one of each, and two layers where all are alike."""
    found = tuple(dict.fromkeys(types))
    return found if len(found) > 1 else tuple(types[:2])


def ends(types: Sequence[str]) -> tuple[str, ...]:
    """The types of a mini model's two layers: the first type, and the other if there is one."""
    other = next((item for item in reversed(types) if item != types[0]), types[-1])
    return (types[0], other) if len(types) > 1 else tuple(types)
