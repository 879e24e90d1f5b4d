"""The quantization of a checkpoint, and checks that all readers of a configuration share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.passes.quantize.stored.scheme import StoredForm, StoredScheme

Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class StoredQuantization:
    """The quantization of one checkpoint.

    Attributes:
        scheme: names and meaning of its tensors.
        form: its numbers.
        activations: how the scheme computes with activations; empty for as they are.
    """

    scheme: StoredScheme
    form: StoredForm
    activations: str = ""


def refused(what: str, help: str = "") -> GraphgenError:
    """GG0502: a quantized checkpoint that is not read."""
    help = help or "dequantize the checkpoint, or take one of another scheme"
    return GraphgenError("GG0502", f"quantization_config: {what} is not read", help=help)


def object_of(value: object, name: str) -> Settings:
    """``value`` if it is a JSON object (GG0502)."""
    if not isinstance(value, dict):
        raise refused(f"{name} {value!r}, which is not a JSON object,")
    return cast("Settings", value)


def integer_of(settings: Settings, key: str, default: int) -> int:
    """An integer of the settings (GG0502 for another type)."""
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(f"{key} {value!r}")
    return value


def group_of(settings: Settings, default: int) -> tuple[int, int]:
    """Blocks of a row; -1 for the whole row."""
    size = integer_of(settings, "group_size", default)
    if size < 1 and size != -1:
        raise refused(f"group_size {size}")
    return 1, max(size, 0)
