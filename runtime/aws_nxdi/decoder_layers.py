"""The layers of a decoder in PyTorch, called as NxD Inference calls them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, cast


def run_layers(layers: Iterable[Any], x: Any, position_ids: Any) -> Any:
    """Hidden states after all layers.

    A layer gets what its ``forward`` names of NxD Inference's arguments, and gives hidden states,
    or a tuple: hidden states, keys and values, cosine, sine. Masks and caches are ``None``: those
    of NeuronAttentionBase follow from positions.
    """
    cos: Any = None
    sin: Any = None
    for layer in layers:
        given: dict[str, Any] = {
            "attention_mask": None,
            "position_ids": position_ids,
            "past_key_value": None,
            "active_mask": None,
            "adapter_ids": None,
            "cos_cache": cos,
            "sin_cache": sin,
        }
        made: Any = layer(x, **_taken(layer.forward, given))
        several = isinstance(made, tuple | list)
        x = cast(Any, made)[0] if several else made
        if several and len(cast("list[Any]", made)) > 3:
            _, _, cos, sin, *_ = cast("list[Any]", made)
    return x


def _taken(forward: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a function takes."""
    parameters = inspect.signature(forward).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return given
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in given.items() if name in names}
