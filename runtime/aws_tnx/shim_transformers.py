"""Attributes of transformers' configurations under the names they had for transformers-neuronx.

transformers 5 keeps the base and share of rotary embeddings in ``rope_parameters``. The library
reads them from attributes, and takes 10,000 where a Llama configuration has no ``rope_theta``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, Final

# Class of transformers -> older name -> key of rope_parameters.
_OLDER: Final = {
    "GPTNeoXConfig": {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"},
    "LlamaConfig": {"rope_theta": "rope_theta"},
    "MistralConfig": {"rope_theta": "rope_theta"},
    "MixtralConfig": {"rope_theta": "rope_theta"},
}


def give_older_names() -> None:
    """Let configurations answer to the older names, where transformers has dropped them."""
    for kind, name, key in _names():
        if not hasattr(kind(), name):
            setattr(kind, name, _Parameter(key))


def take_older_names() -> None:
    """Take the names away again."""
    for kind, name, _ in _names():
        if isinstance(getattr(kind, name, None), _Parameter):
            delattr(kind, name)


def _names() -> Iterator[tuple[Any, str, str]]:
    """Each class with its older names and their keys; none without transformers."""
    if find_spec("transformers") is None:
        return
    import transformers

    for kind, names in _OLDER.items():
        for name, key in names.items():
            yield getattr(transformers, kind), name, key


class _Parameter:
    """An attribute that is an entry of ``rope_parameters``, which may be set, too."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __get__(self, config: Any, kind: type | None = None) -> Any:
        if config is None:
            return self
        entries: dict[str, Any] = config.__dict__.get("rope_parameters") or {}
        if self.key not in entries:
            raise AttributeError(f"rope_parameters has no {self.key}")
        return entries[self.key]

    def __set__(self, config: Any, value: object) -> None:
        entries: dict[str, Any] = config.__dict__.get("rope_parameters") or {}
        config.rope_parameters = {**entries, self.key: value}
