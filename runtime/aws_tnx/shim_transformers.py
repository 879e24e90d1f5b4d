"""Attributes of transformers' configurations under the names they had for transformers-neuronx.

transformers 5 keeps GPT-NeoX's rotary share and base in ``rope_parameters``; the library reads
``rotary_pct`` and ``rotary_emb_base``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

# Older name -> key of rope_parameters.
_NEOX: Final = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}


def give_older_names() -> None:
    """Let configurations answer to the older names, where transformers has dropped them."""
    kind = _neox()
    for name, key in _NEOX.items():
        if kind is not None and not hasattr(kind(), name):
            setattr(kind, name, _Parameter(key))


def take_older_names() -> None:
    """Take the names away again."""
    kind = _neox()
    for name in _NEOX:
        if isinstance(getattr(kind, name, None), _Parameter):
            delattr(kind, name)


def _neox() -> Any:
    """transformers' class, or ``None`` without transformers."""
    if find_spec("transformers") is None:
        return None
    from transformers import GPTNeoXConfig

    return GPTNeoXConfig


class _Parameter:
    """An attribute that is an entry of ``rope_parameters``, which may be set, too."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __get__(self, config: Any, kind: type | None = None) -> Any:
        return self if config is None else config.rope_parameters[self.key]

    def __set__(self, config: Any, value: object) -> None:
        config.rope_parameters[self.key] = value
