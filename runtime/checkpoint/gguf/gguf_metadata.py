"""Look values up in the metadata of a GGUF file, with an error for what is missing or odd."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf.gguf_header import GgufValue
from graphgen.runtime.checkpoint.mapped_file import unreadable


class Metadata:
    """Typed access to the metadata of one GGUF file.

    Args:
        path: the file, for error messages.
        values: its key-value pairs.
    """

    __slots__ = ("_values", "path")

    def __init__(self, path: Path, values: Mapping[str, GgufValue]) -> None:
        self.path = path
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> GgufValue | None:
        """The value of ``key`` as it is stored, or None."""
        return self._values.get(key)

    @property
    def architecture(self) -> str:
        """What kind of model it is; GG0601 if the file does not say."""
        return self.string("general.architecture")

    def own(self, key: str) -> str:
        """The key of a setting of the model's architecture, as ``llama.context_length``."""
        return f"{self.architecture}.{key}"

    def keys_under(self, prefix: str) -> list[str]:
        """The keys that start with ``prefix``, without it."""
        return [key.removeprefix(prefix) for key in self._values if key.startswith(prefix)]

    def string(self, key: str) -> str:
        """The string under ``key``; GG0601 if it is missing or no string."""
        value = self._require(key)
        if not isinstance(value, str):
            raise self._wrong_type(key, value, "a string")
        return value

    def strings(self, key: str) -> list[str]:
        """The list of strings under ``key``; GG0601 if it is missing or something else."""
        value = self._require(key)
        if not isinstance(value, list):
            raise self._wrong_type(key, value, "an array of strings")
        return value

    def positive_int(self, key: str) -> int:
        """The integer under ``key``; GG0601 if it is missing or no integer, GG0503 below 1."""
        value = self._integer(key)
        if value < 1:
            raise self.bad_value(key, f"is {value}; it must be at least 1")
        return value

    def optional_int(self, key: str) -> int | None:
        """The integer under ``key``, or None if it is not there; GG0601 if it is no integer."""
        return self._integer(key) if key in self else None

    def optional_bool(self, key: str) -> bool | None:
        """The truth value under ``key``, or None if it is not there; GG0601 if it is none."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._wrong_type(key, value, "a boolean")
        return value

    def positive_float(self, key: str) -> float:
        """The number under ``key``; GG0601 if missing or no number, GG0503 if not above 0.

        A stored f32 becomes the shortest decimal that rounds to it, so that 1e-5 is 1e-05 and not
        9.999999747378752e-06: that is what the configuration it was converted from said.
        """
        value = self._require(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong_type(key, value, "a number")
        if not (math.isfinite(value) and value > 0):
            raise self.bad_value(key, f"is {value}; it must be a finite number above 0")
        narrow = np.float32(value) if abs(value) < np.finfo(np.float32).max else None
        return float(str(narrow)) if narrow is not None and float(narrow) == value else float(value)

    def bad_value(self, key: str, what: str) -> GraphgenError:
        """A GG0503 error about the value of ``key``."""
        return GraphgenError("GG0503", f"GGUF metadata '{key}' {what}", where=str(self.path))

    def unsupported(self, key: str, why: str) -> GraphgenError:
        """A GG0502 error about the value of ``key``."""
        shown = _show(self._values[key])
        return GraphgenError(
            "GG0502", f"GGUF metadata '{key}' is {shown}: {why}", where=str(self.path)
        )

    def _require(self, key: str) -> GgufValue:
        if key not in self._values:
            raise unreadable(self.path, f"GGUF metadata '{key}' is missing")
        return self._values[key]

    def _integer(self, key: str) -> int:
        value = self._require(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong_type(key, value, "an integer")
        return value

    def _wrong_type(self, key: str, value: GgufValue, wanted: str) -> GraphgenError:
        return unreadable(self.path, f"GGUF metadata '{key}' is {_show(value)}, not {wanted}")


def _show(value: GgufValue) -> str:
    if isinstance(value, bool | int | float | str):
        return repr(value)
    return f"an array of {len(value)} values"
