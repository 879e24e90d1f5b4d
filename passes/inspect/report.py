"""Report of a recorded pipeline as plain data: passes, diffs, rewrites, provenance.

Identical layers are reported once: rewrites that differ in the number of a layer only are one entry
with all their places, and diffs show one layer for all that are alike.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.analysis.layers import scope_of
from graphgen.ir import Op, Value
from graphgen.json_value import Json
from graphgen.passes.core.journal import MatchFailure, OpSnapshot, Rewrite
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.inspect.recording import ModuleSnapshot, Recording, Stage, StageNames, text_of
from graphgen.passes.inspect.text_diff import changes
from graphgen.text.printer import loc_text

_NUMBER = re.compile(r"(?<![^.])\d+(?=\.|$)")
# The same in names of values, which have a sign before them.
_NUMBERS = re.compile(r"(?<![^.%])\d+(?=\.|$)")
_LAYER = re.compile(r"(?:[^.]+\.)*?\d+(?=\.|$)")


def numberless(name: str) -> str:
    """A dotted name with ``N`` for the numbers in it."""
    return _NUMBER.sub("N", name)


def own_numbers(name: str, scope: str) -> str:
    """A dotted name with ``N`` for the numbers that it has in common with a scope, in order.

    Those of another layer stay, so that a layer that reads what belongs to another one is not taken
    for equal to one that reads its own. Without numbers in the scope all are ``N``.
    """
    own = _NUMBER.findall(scope)
    if not own:
        return _NUMBERS.sub("N", name)
    left = iter(own)
    return _NUMBERS.sub(lambda found: "N" if next(left, "") == found[0] else found[0], name)


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
    readers: dict[Value, set[str]] = {}
    for item in ops:
        layer = scope_of(item.op)
        if layer:
            layers.setdefault(layer, []).append(item)
            for value in item.operands:
                readers.setdefault(value, set()).add(layer)
    # Of no layer and for several of them, such as a table of angles: each has to read the same.
    shared = {v for v, read in readers.items() if v.op and not scope_of(v.op) and len(read) > 1}
    return {layer: _signature(picture, layer, items, shared) for layer, items in layers.items()}


def _signature(
    picture: ModuleSnapshot, layer: str, items: Sequence[OpSnapshot], shared: Collection[Value]
) -> tuple[object, ...]:
    inside: dict[Value, int] = {}
    outside: dict[Value, int] = {}

    def wired(value: Value) -> object:
        """A value of the layer by its place, an argument by its name, any other by its order."""
        place = inside.get(value)
        if place is not None:
            return place
        if value.op is None:
            return own_numbers(picture.names[value], layer)
        if value in shared:
            return value
        return value.type, outside.setdefault(value, len(outside))

    found: list[object] = []
    for item in items:
        op = item.op
        operands = tuple([wired(value) for value in item.operands])
        scope = own_numbers(op.loc.scope, layer)
        found.append((op.name, op.attrs, item.types, operands, op.loc.file, op.loc.line, scope))
        for value in op.results:
            inside[value] = len(inside)
    return tuple(found)


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


# For an op of the module at the end: program, line in its lowered text, and the line.
Lowered = Mapping[Op, tuple[str, int, str]]
# Limit on the ops listed as the origin of a value.
_MOST_ORIGINS = 12


# Numbers of the rewrites at fault, by the label of their pass.
Guilty = Mapping[str, Collection[int]]
_NONE: Guilty = {}


def report(recording: Recording, lowered: Lowered, guilty: Guilty = _NONE) -> dict[str, Json]:
    """Everything there is to tell about a run.

    Args:
        recording: of a pipeline.
        lowered: where ops of the module at the end are in its lowered form; may be empty.
        guilty: rewrites at fault, which are marked and never folded.
    """
    folding = fold(recording)
    stages: list[Json] = []
    before = _texts(recording.start, folding)
    for stage in recording.stages:
        after = _texts(stage.after, folding)
        diff = _diff(before, after)
        stages.append(_stage(stage, diff, guilty.get(stage.label, ())))
        before = after
    return {
        "module": recording.module.name,
        "start": {
            "level": recording.start.level,
            "ops": sum(map(len, recording.start.ops.values())),
            "cost": _costs(recording.start),
        },
        "stages": stages,
        "layers": _layers(folding),
        **_Provenance(recording, folding, lowered).facts(),
    }


def _layers(folding: Folding) -> list[Json]:
    shown = dict.fromkeys(folding.shown.values())
    return [{"layer": layer, "like": folding.alike(layer)} for layer in shown]


def _texts(picture: ModuleSnapshot, folding: Folding) -> dict[str, list[str]]:
    head = [line for line in picture.head if not _of_hidden(line, folding)]
    texts = {"interface": head}
    for name in picture.ops:
        texts[f"@{name}"] = folded_lines(picture, name, folding)
    return texts


def _of_hidden(line: str, folding: Folding) -> bool:
    """True for a row of the interface in a folded layer."""

    _, percent, rest = line.partition("%")
    return bool(percent) and folding.hides(layer_of_name(rest.split(" ")[0]))


def _diff(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> list[Json]:
    return [
        {"part": hunk.part, "lines": hunk.lines, "again": hunk.again}
        for hunk in changes(before, after)
    ]


def _stage(stage: Stage, diff: list[Json], guilty: Collection[int]) -> dict[str, Json]:
    report = stage.report
    return {
        "label": stage.label,
        "name": report.name,
        "ms": round(report.seconds * 1e3, 3),
        "ops": [report.ops_before, report.ops_after],
        "level": stage.after.level,
        "applications": report.applications,
        "remarks": list(report.remarks),
        "cost": _costs(stage.after),
        "diff": diff,
        "rewrites": _rewrites(stage, guilty),
        "misses": _misses(stage.misses),
    }


def _costs(picture: ModuleSnapshot) -> list[Json]:
    """Numbers, or polynomials as text where sizes are symbols."""
    return [
        {
            "program": name,
            "flops": _number(cost.work.flops),
            "bytes": _number(cost.work.bytes),
            "collectives": cost.collectives,
            "sent": _number(cost.sent),
        }
        for name, cost in picture.costs.items()
    ]


def _number(size: object) -> Json:
    return size if isinstance(size, int) else str(size)


def _rewrites(stage: Stage, guilty: Collection[int]) -> list[Json]:
    """Rewrites in order of the first of each kind, with the places of all of the kind."""
    groups: dict[object, list[Rewrite]] = {}
    names = stage.names()
    for item in stage.applications:
        # One at fault is alone, whatever it looks like.
        kind = item.number if item.number in guilty else _kind(item, names)
        groups.setdefault(kind, []).append(item)
    return [
        {**_rewrite(group, names), "guilty": group[0].number in guilty} for group in groups.values()
    ]


def _kind(item: Rewrite, names: StageNames) -> object:
    """Key of rewrites that are equal up to the number of their layer, wiring included."""
    numbers: dict[Value, int] = {}

    def wired(value: Value) -> object:
        """A value by its order of appearance; an argument by its name, too."""
        number = numbers.setdefault(value, len(numbers))
        return number if value.op is not None else (number, own_numbers(names[value], layer))

    layer = item.loc.scope
    ops: list[object] = []
    for seen in (*item.before, *item.after):
        operands = tuple([wired(value) for value in seen.operands])
        results = tuple([wired(value) for value in seen.op.results])
        ops.append((seen.op.name, seen.op.attrs, seen.types, operands, results))
    pairs = tuple([(wired(old), wired(new), str(how)) for old, new, how in item.replaced])
    place = numberless(item.rule), item.function, numberless(layer), item.source
    return *place, len(item.before), pairs, *ops


def _rewrite(group: Sequence[Rewrite], names: StageNames) -> dict[str, Json]:
    first = group[0]
    relations = dict.fromkeys(str(how) for _, _, how in first.replaced if how is not EQUAL)
    after = [text_of(seen, names) for seen in first.after]
    stays = [f"{names[new]} : {new.type.text}" for _, new, _ in first.replaced]
    return {
        "rule": first.rule,
        "source": first.source,
        "function": first.function,
        "scope": first.loc.scope,
        "loc": f"{first.loc.file}:{first.loc.line}",
        "relations": list(relations),
        "before": [text_of(seen, names) for seen in first.before],
        "after": after or stays,
        "places": [[item.number, item.loc.scope] for item in group],
    }


def _misses(misses: Sequence[MatchFailure]) -> list[Json]:
    """One near miss per rule, place and reason, the deepest first."""
    groups: dict[object, list[MatchFailure]] = {}
    for miss in misses:
        key = (miss.rule, miss.function, numberless(miss.loc.scope), miss.why.reason)
        groups.setdefault(key, []).append(miss)
    ordered = sorted(groups.values(), key=lambda group: -group[0].why.depth)
    ordered.sort(key=lambda group: group[0].rule)
    return [
        {
            "rule": group[0].rule,
            "reason": group[0].why.reason,
            "at": f"%{at.name or (at.op.name if at.op else '?')}" if at is not None else "",
            "function": group[0].function,
            "scope": group[0].loc.scope,
            "loc": f"{group[0].loc.file}:{group[0].loc.line}",
            "root": group[0].root,
            "count": len(group),
        }
        for group in ordered
        for at in [group[0].why.at]
    ]


@dataclass(slots=True)
class _Provenance:
    """Source lines, the ops they wrote, and the ops these became.

    Attributes:
        origins: for each value, the ops of the given module it comes from.
    """

    recording: Recording
    folding: Folding
    lowered: Lowered
    origins: dict[Value, frozenset[Op]] = field(default_factory=dict[Value, frozenset[Op]])

    def facts(self) -> dict[str, Json]:
        """Ops of the given module with their sources, and those at the end with their origins."""
        start, end = self.recording.start, self.recording.end
        numbers: dict[Op, int] = {}
        ops: list[Json] = []
        for function, seen in start.ops.items():
            for item in seen:
                op = item.op
                self.origins.update(dict.fromkeys(op.results, frozenset([op])))
                if not self.folding.hides(scope_of(op)):
                    numbers[op] = len(ops)
                    source = f"{op.loc.file}:{op.loc.line}" if op.loc.line else ""
                    text = text_of(item, start.names)
                    ops.append(
                        {"fn": function, "text": text, "source": source, "scope": op.loc.scope}
                    )
        for stage in self.recording.stages:
            self._stage(stage)
        return {"ops": ops, "lowered": self._ends(end, numbers)}

    def _stage(self, stage: Stage) -> None:
        for old, new in stage.copies:
            self._comes(new, [old])
        for item in stage.applications:
            for old, new, _ in item.replaced:
                self._comes(new, [old])
            whole = [value for seen in item.before for value in seen.op.results]
            for op in item.created:
                for value in op.results:
                    if value not in self.origins:
                        self._comes(value, whole)

    def _comes(self, new: Value, olds: Sequence[Value]) -> None:
        found = self.origins.get(new, frozenset())
        for old in olds:
            if len(found) >= _MOST_ORIGINS:
                break
            found |= self.origins.get(old, frozenset())
        self.origins[new] = found

    def _ends(self, end: ModuleSnapshot, numbers: Mapping[Op, int]) -> list[Json]:
        """The ops at the end, in layers that are shown."""
        found: list[Json] = []
        # Programs first: they are what a reader looks for.
        for function in sorted(end.ops, key=lambda name: name not in end.costs):
            for item in end.ops[function]:
                op = item.op
                if self.folding.hides(scope_of(op)):
                    continue
                home, line, text = self.lowered.get(op, (function, 0, text_of(item, end.names)))
                origins = self.origins.get(op.results[0], frozenset())
                known = sorted([numbers[each] for each in origins if each in numbers])
                via = list(op.loc.via)
                found.append({"fn": home, "line": line, "text": text, "from": known, "via": via})
        return found
