"""Search of a module's programs for a pattern of ops."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from graphgen.analysis.calls import inner_functions
from graphgen.analysis.layers import layers_of
from graphgen.analysis.overview import overview
from graphgen.ir import Function, Module
from graphgen.ir.loc import UNKNOWN
from graphgen.json_value import Json
from graphgen.ops import OPS
from graphgen.ops.external import shown_name
from graphgen.pattern import KINDS, Known, Match, OpPattern, find
from graphgen.report.program_text import where_of
from graphgen.report.units import pattern as numberless


@dataclass(frozen=True, slots=True)
class Hit:
    """One match of a pattern.

    Attributes:
        function: of the match, without calls.
        match: the ops.
        layer: of the first op; empty for none.
        program: the name of the program.
        place: the ops that run the function, if it is not the program: ``%w.body/%r.branch1``.
    """

    function: Function
    match: Match
    layer: str
    program: str
    place: str = ""

    @property
    def key(self) -> object:
        """Equal for hits that differ in numbers only, such as those of identical layers."""
        kinds = tuple(
            (op.name, op.attrs, op.results[0].type, numberless(op.loc.scope))
            for op in self.match.ops
        )
        layer, output = numberless(self.layer), numberless(self.match.output)
        return self.program, self.function.name, numberless(self.place), kinds, layer, output

    @property
    def lines(self) -> list[str]:
        """``FILE:LINE`` of the ops, without repetition."""
        return list(
            dict.fromkeys(where_of(op.loc) for op in self.match.ops if op.loc is not UNKNOWN)
        )

    def to_json(self) -> dict[str, Json]:
        """The hit with all its ops."""
        return {
            "program": self.program,
            "inside": self.place or None,
            "layer": self.layer or None,
            "output": self.match.output or None,
            "ops": [
                {
                    "op": shown_name(op),
                    "results": [value.name for value in op.results],
                    "operands": [value.name for value in op.operands],
                    "type": op.results[0].type.text,
                    "where": where_of(op.loc) if op.loc is not UNKNOWN else None,
                    "scope": op.loc.scope or None,
                }
                for op in self.match.ops
            ],
        }


def grep(module: Module, functions: Sequence[Function], wanted: tuple[OpPattern, ...]) -> list[Hit]:
    """All matches of a pattern in these functions, with calls inlined, and in what they run.

    The arguments of a loop's body and of a branch are of the kinds of what they are handed.
    """
    given = {function.name for function in functions}
    return [
        hit
        for function in functions
        for hit in _hits(module, function, wanted)
        if not hit.place or hit.function.name not in given
    ]


def _hits(module: Module, function: Function, wanted: tuple[OpPattern, ...]) -> Iterator[Hit]:
    seen = overview(module, function, 0)
    kinds = {value: part.kind for part in seen.parts for value in part.values}
    for match in find(seen.function, wanted, Known(kinds, seen.layer_of)):
        yield Hit(seen.function, match, seen.layer_of.get(match.ops[0], ""), function.name)
    for inner in inner_functions(module, seen.function):
        body = inner.function
        for argument, value in zip(body.args, inner.operands, strict=True):
            # One body may run on different operands.
            kinds.pop(argument, None)
            if value is not None and value in kinds:
                kinds[argument] = kinds[value]
        layers = {op: name for name, ops in layers_of(body).items() for op in ops}
        for match in find(body, wanted, Known(kinds, layers)):
            yield Hit(body, match, layers.get(match.ops[0], ""), function.name, inner.place)


def unknown_names(module: Module, wanted: str) -> Iterator[tuple[str, list[str]]]:
    """Names in a pattern that no op has, each with up to two similar names."""
    known = {shown_name(op).replace("-", "_") for f in module.functions.values() for op in f.block}
    known |= {*OPS, "dot", "broadcast", *KINDS, "const", "return"}
    text = re.sub(r"\{[^}]*\}|:\s*\S+|[%$][^\s,(){}|]+", " ", wanted)
    for name in re.findall(r"[A-Za-z][\w*?.]*(?:-(?!>)[\w*?.]+)*", text):
        if not set(name) & set("*?") and name.replace("-", "_") not in known | {"hlo.opaque"}:
            yield name, get_close_matches(name, sorted(known), n=2)
