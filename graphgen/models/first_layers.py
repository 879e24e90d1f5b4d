"""The configuration of a model with its first layers only, at its real width."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from graphgen.errors import GraphgenError
from graphgen.models.family import Family

# Lists with an entry for each layer.
_EACH_LAYER = ("layer_types", "no_rope_layers")


def stated_layers(family: Family[Any], config: Mapping[str, object]) -> tuple[str, int | None]:
    """The key of the number of layers in a ``config.json``, and the number if it is there."""
    key = "num_hidden_layers"
    key = key if key in config else family.aliases.get(key, key)
    stated = config.get(key)
    return key, stated if isinstance(stated, int) else None


def first_layers(
    family: Family[Any], config: Mapping[str, object], count: int
) -> Mapping[str, object]:
    """The ``config.json`` of a model cut off after ``count`` layers; all of them keep their types.

    Args:
        family: of the model.
        config: under Hugging Face's names.
        count: layers to keep, at least 1.

    Raises:
        GraphgenError: GG0503 where the model has fewer layers, or does not state how many.
    """
    key, stated = stated_layers(family, config)
    if stated is None:
        raise GraphgenError(
            "GG0503", f"the configuration states no {key}", help="leave out --layers"
        )
    if not 1 <= count <= stated:
        raise GraphgenError(
            "GG0503", f"{count} layers of a model that has {stated}", help=f"--layers 1 to {stated}"
        )
    made: dict[str, object] = {**config, key: count}
    for name in _EACH_LAYER:
        value = config.get(name)
        if isinstance(value, list):
            made[name] = cast("list[object]", value)[:count]
    return made
