"""Element types under the names of ``xla_data_pb2`` and ``metaneff_pb2``."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from graphgen.lowering.hlo_proto.fields import ELEMENT_NAMES, ELEMENT_TYPES

_NAMES: Final = {
    name.upper(): number
    for name, number in {**ELEMENT_TYPES, "primitive_type_invalid": 0}.items()
} | {"OPAQUE_TYPE": ELEMENT_TYPES["opaque"]}  # fmt: skip


class _PrimitiveTypes:
    """XLA's PrimitiveType as protobuf's wrapper of an enumeration: a number by each name."""

    def __getattr__(self, name: str) -> int:
        found = _NAMES.get(name)
        if found is None:
            raise AttributeError(f"PrimitiveType has no '{name}'")
        return found

    def Name(self, number: int) -> str:  # noqa: N802 (protobuf's name of it)
        """The name of a number (ValueError for none)."""
        if number not in ELEMENT_NAMES:
            raise ValueError(f"PrimitiveType has no number {number}")
        return ELEMENT_NAMES[number].upper()

    def Value(self, name: str) -> int:  # noqa: N802 (protobuf's name of it)
        """The number of a name (ValueError for none)."""
        if name not in _NAMES:
            raise ValueError(f"PrimitiveType has no '{name}'")
        return _NAMES[name]

    def keys(self) -> list[str]:
        """All names."""
        return list(_NAMES)


PRIMITIVE_TYPES: Final = _PrimitiveTypes()
NUMBERS: Final = dict(_NAMES)


class MetaTensor:
    """The message of a NEFF's tensor, of which the element types are used."""

    DataType = IntEnum(
        "DataType",
        [
            "UNDEFINED",
            "FLOAT",
            "FLOAT16",
            "BFLOAT16",
            "DOUBLE",
            "INT8",
            "UINT8",
            "INT16",
            "UINT16",
            "INT32",
            "INT64",
        ],
        start=0,
    )
