"""Folding of identical layers: one represents all that went through a pipeline alike.

Two layers are alike when, after every pass and in every function, their ops are the same but for
the number of the layer and the names of values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.analysis.layers import scope_of
from graphgen.ir import Value
from graphgen.passes.core.journal import OpSnapshot
from graphgen.passes.inspect.recording import ModuleSnapshot, Recording, text_of
from graphgen.text.printer import loc_text

_NUMBER = re.compile(r"(?<![^.])\d+(?=\.|$)")
_LAYER = re.compile(r"(?:[^.]+\.)*?\d+(?=\.|$)")


def numberless(name: str) -> str:
    """A dotted name with ``N`` for the numbers in it."""
    return _NUMBER.sub("N", name)


def layer_of_name(name: str) -> str:
    """The layer a name such as that of a weight begins with, empty for none."""
    found = _LAYER.match(name)
    return found.group() if found else ""


@dataclass(frozen=True, slots=True)
class Folding:
    """Layers and the ones that stand for them.

    Attributes:
        shown: for each layer, the one that is shown for it.
    """

    shown: Mapping[str, str]

    def hides(self, layer: str) -> bool:
        """True if another layer is shown for this one."""
        return self.shown.get(layer, layer) != layer

    def alike(self, layer: str) -> list[str]:
        """The layers that one stands for, itself left out."""
        return [other for other, one in self.shown.items() if one == layer and other != layer]


def fold(recording: Recording) -> Folding:
    """Find the layers that are alike from the first pass to the last."""
    kinds: dict[str, list[object]] = {}
    numbers: dict[object, int] = {}
    for number, picture in enumerate([recording.start, *[s.after for s in recording.stages]]):
        for name, ops in picture.ops.items():
            for layer, signature in _signatures(picture, ops).items():
                # Tuples as long as a layer are compared once.
                kind = numbers.setdefault(signature, len(numbers))
                kinds.setdefault(layer, []).append((number, name, kind))
    first: dict[tuple[object, ...], str] = {}
    shown = {layer: first.setdefault(tuple(kind), layer) for layer, kind in kinds.items()}
    return Folding(shown)


def _signatures(
    picture: ModuleSnapshot, ops: Sequence[OpSnapshot]
) -> dict[str, tuple[object, ...]]:
    """Signature of each layer of a function, without its number."""
    layers: dict[str, list[OpSnapshot]] = {}
    for item in ops:
        layer = scope_of(item.op)
        if layer:
            layers.setdefault(layer, []).append(item)
    return {layer: _signature(picture, items) for layer, items in layers.items()}


def _signature(picture: ModuleSnapshot, items: Sequence[OpSnapshot]) -> tuple[object, ...]:
    inside: dict[Value, int] = {}
    found: list[object] = []
    for item in items:
        op = item.op
        operands = tuple([_operand(picture, value, inside) for value in item.operands])
        scope = numberless(op.loc.scope)
        found.append((op.name, op.attrs, item.types, operands, op.loc.file, op.loc.line, scope))
        for value in op.results:
            inside[value] = len(inside)
    return tuple(found)


def _operand(picture: ModuleSnapshot, value: Value, inside: Mapping[Value, int]) -> object:
    """A value of the layer by its place, an argument by its name, any other by its type."""
    place = inside.get(value)
    if place is not None:
        return place
    return numberless(picture.names[value]) if value.op is None else value.type


def folded_lines(picture: ModuleSnapshot, function: str, folding: Folding) -> list[str]:
    """The text of a function without the layers that another one stands for."""
    lines = [f"func @{function} {{"]
    for value in picture.args[function]:
        name = picture.names[value]
        if not folding.hides(layer_of_name(name.removeprefix("%"))):
            lines.append(f"  arg {name} : {value.type.text}")
    told: set[str] = set()
    for item in picture.ops[function]:
        layer = scope_of(item.op)
        if folding.hides(layer):
            continue
        if layer and layer not in told:
            told.add(layer)
            others = folding.alike(layer)
            if others:
                lines.append(f"  # {len(others)} layers like {layer}: {others[0]} ... {others[-1]}")
        # The passes in an op's location are not part of the op.
        where = loc_text(item.op.loc).partition(" via ")[0]
        lines.append(f"  {text_of(item, picture.names)}  # {where}")
    for name, value in picture.outputs[function]:
        if not folding.hides(layer_of_name(name)):
            lines.append(f"  return {name} = {picture.names[value]}")
    return [*lines, "}"]
