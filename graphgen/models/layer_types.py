"""Full and sliding-window layers: ``layer_types`` of a ``config.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.models.config_reader import ConfigReader

SLIDING, FULL = "sliding_attention", "full_attention"


def read_layer_types(reader: ConfigReader, slides: Sequence[bool]) -> tuple[str, ...]:
    """``layer_types``; if it is missing, the types given by ``slides`` (GG0503)."""
    reader.used.add("layer_types")
    value = reader.config.get("layer_types")
    if value is None:
        return tuple(SLIDING if sliding else FULL for sliding in slides)
    types = tuple(cast("list[object]", value)) if isinstance(value, list) else ()
    if len(types) != len(slides) or any(item not in (SLIDING, FULL) for item in types):
        raise GraphgenError(
            "GG0503",
            f"config: layer_types = {value!r} is not one of '{SLIDING}' and '{FULL}' for each of "
            f"{len(slides)} layers",
        )
    return tuple(map(str, types))


def kinds(types: Sequence[str]) -> tuple[str, ...]:
    """The types of a wide model's layers: one of each."""
    return tuple(dict.fromkeys(types))


def ends(types: Sequence[str]) -> tuple[str, ...]:
    """The types of a mini model's two layers: the first type, and the other if there is one."""
    other = next((item for item in reversed(types) if item != types[0]), types[-1])
    return (types[0], other) if len(types) > 1 else tuple(types)
