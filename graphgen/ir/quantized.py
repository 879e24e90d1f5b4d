"""Names of quantized element types: MLIR's ``!quant.uniform``, in letters that IR text can hold.

``!quant.uniform<i8<-127:127>:f32:1, {0.1:5, 0.2}>`` is ``quant<i8<-127:127>:f32:1;(0.1:5;0.2)>``:
storage type and its bounds, the type of the numbers, the dimension of several scales, and the
scales with their zero points. https://openxla.org/stablehlo/spec#types
"""

from __future__ import annotations

import re

from graphgen.errors import GraphgenError

START = "quant<"
_MLIR = "!quant.uniform<"
_TO_NAME = str.maketrans({",": ";", "{": "(", "}": ")"})
_TO_MLIR = str.maketrans({";": ",", "(": "{", ")": "}"})
_STORAGE = re.compile(
    r"quant<(?P<sign>u|ui|i|si)(?P<bits>\d+)(?:<(?P<low>-?\d+):(?P<high>-?\d+)>)?"
    r":(?:bf|f)\d\w*(?::(?P<dimension>\d+|\([\d:;]+\)))?;(?P<scales>[-\d.:;eE+()]+)>"
)


def quantized_name(mlir: str) -> str:
    """The name of a type in MLIR's spelling, which may have blanks.

    Raises:
        GraphgenError: GG0101 for any other text.
    """
    text = "".join(mlir.split())
    if not text.startswith(_MLIR):
        raise GraphgenError("GG0101", f"'{mlir}' is not a quantized type", help=_HELP)
    name = START + text.removeprefix(_MLIR).translate(_TO_NAME)
    storage_bits(name)
    return name


def mlir_spelling(name: str) -> str:
    """The spelling in MLIR of the type that is called ``name``: ``!quant.uniform<i8:f32, 0.1>``."""
    head, _, scales = name.removeprefix(START).partition(";")
    return f"{_MLIR}{head.translate(_TO_MLIR)}, {scales.translate(_TO_MLIR)}"


def storage_bits(name: str) -> int:
    """The bits of one stored element.

    Raises:
        GraphgenError: GG0101 for a name of another form, and for bounds that the storage type does
            not hold.
    """
    found = _STORAGE.fullmatch(name)
    if found is None:
        raise GraphgenError("GG0101", f"'{name}' is not a quantized type", help=_HELP)
    bits = int(found["bits"])
    signed = "u" not in found["sign"]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if found["low"] and not low <= int(found["low"]) < int(found["high"]) <= high:
        what = f"'{name}': the storage type holds {low} to {high}"
        raise GraphgenError("GG0101", what)
    if bool(found["dimension"]) != found["scales"].startswith("("):
        what = f"'{name}': several scales need the dimension they are along, one scale has none"
        raise GraphgenError("GG0101", what)
    return bits


def scale_counts(name: str) -> tuple[int, int] | None:
    """The dimension and the number of the scales along it; ``None`` with one scale for all."""
    found = _STORAGE.fullmatch(name)
    if found is None or not (found["dimension"] or "").isdigit():
        return None
    return int(found["dimension"]), found["scales"].count(";") + 1


_HELP = "write quant<i8:f32;0.1:5>, or quant<i8<-127:127>:f32:1;(0.1:5;0.2)> for a scale a channel"
