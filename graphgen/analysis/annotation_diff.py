"""Differences of annotations: shardings, layouts, partitions and other texts of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from graphgen.ir import Attrs, Function, Module, Op, Value

# Annotations that change nothing in how a program runs.
_IDLE = ("channel_id", "original_value", "statistics", "field_82", "field_88", "opcode", "kind")
_IGNORED = (
    *_IDLE,
    # It has names of values: compared as the ops that they are.
    "control_predecessors",
)
# Fields that a comparison ignores, for its reports.
IGNORED = (
    "names, source lines, the order of ops, dead ops, equal ops that are shared, channel ids, "
    "kinds of fusions, original values, statistics"
)
_PREFIX = "hlo."
# The values whose ops run before an op that does not read them: ``%a,%b``.
CONTROL: Final = "hlo.control_predecessors"
# Of what files say beside their programs: HLO's fields and MLIR's attributes.
_NOTED = (_PREFIX, "mlir.")

_STRING = r'"(?:[^"\\]|\\.)*"'


def _dictionary(depth: int) -> str:
    """A regular expression of a dictionary's text, with others in it to a depth."""
    inner = f"|{_dictionary(depth - 1)}" if depth else ""
    return rf"\{{(?:[^{{}}\"]|{_STRING}{inner})*\}}"


# A fact of a composite among the frontend attributes of its call.
_COMPOSITE = re.compile(rf"composite\.(\w+)=({_STRING}|{_dictionary(4)})")

_kept: dict[Attrs, tuple[tuple[str, object], ...]] = {}


def compared(annotations: Attrs) -> tuple[tuple[str, object], ...]:
    """The annotations that take part in a comparison."""
    found = _kept.get(annotations)
    if found is None:
        found = _kept[annotations] = tuple(
            [
                (key, text)
                for key, text in annotations.items()
                if key.rpartition(".")[2] not in _IGNORED
            ]
        )
    return found


def lost_keys(old: Attrs, new: Iterable[Attrs]) -> list[str]:
    """The annotations of an op that none of those in its place has, by their names."""
    others = list(new)
    return [
        key
        for key, text in old.items()
        if key.rpartition(".")[2] not in _IDLE
        and not any(annotations.get(key) == text for annotations in others)
    ]


def noted_differences(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    """The differences of two sets of annotations, in words."""
    one, other = dict(first), dict(second)
    return [
        f"{key.removeprefix(_PREFIX)} {_shown(one, key)} / {_shown(other, key)}"
        for key in dict.fromkeys((*one, *other))
        if one.get(key) != other.get(key)
    ]


def _shown(annotations: Mapping[str, object], key: str) -> str:
    text = str(annotations.get(key, "none"))
    return text if len(text) <= 120 else f"{text[:117]}..."


def op_differences(first: Op | Value | Function, second: Op | Value | Function) -> list[str]:
    """The differences of the annotations of two ops, arguments or functions, in words."""
    return noted_differences(dict(compared(first.annotations)), dict(compared(second.annotations)))


def control_edges(function: Function) -> list[tuple[Op, Op]]:
    """The control dependencies of a function: an op, and one that runs after it."""
    later = [op for op in function.block if CONTROL in op.annotations]
    if not later:
        return []
    makers: dict[str, Op] = {}
    for op in function.block:
        for value in op.results:
            makers.setdefault(value.name or "", op)
    return [(makers[name], op) for op in later for name in predecessors(op) if name in makers]


def predecessors(op: Op) -> list[str]:
    """The names of the values whose ops run before an op that does not read them."""
    names = str(op.annotations.get(CONTROL, "")).split(",")
    return [name.removeprefix("%") for name in names if name]


def call_differences(
    modules: tuple[Module, Module], first: Function, second: Function
) -> list[str]:
    """The differences of composites and of annotated functions that two programs call, in words.

    A composite is compared as the ops of its decomposition; its name, version and attributes are
    those of the call. Calls are paired in program order.
    """
    from difflib import SequenceMatcher

    mine, theirs = _calls(modules[0], first), _calls(modules[1], second)
    keys = [[(name, *sorted(notes.items())) for name, notes in side] for side in (mine, theirs)]
    found: list[str] = []
    for tag, a, b, c, d in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for (name, one), (_, other) in zip(mine[a:b], theirs[c:d], strict=False):
            found += [f"call of {name}: {text}" for text in noted_differences(one, other)]
        count = min(b - a, d - c)
        found += [f"call of {name} is in the first only" for name, _ in mine[a + count : b]]
        found += [f"call of {name} is in the second only" for name, _ in theirs[c + count : d]]
    return found


def _calls(module: Module, function: Function) -> list[tuple[str, dict[str, str]]]:
    """Name and facts of each composite that a function calls, also by way of others."""
    found: list[tuple[str, dict[str, str]]] = []
    for op in function.block:
        if op.name != "call":
            continue
        if op.annotations.get("hlo.is_composite") == "true":
            text = str(op.annotations.get("hlo.frontend_attributes", ""))
            notes = {key: fact.strip('"') for key, fact in _COMPOSITE.findall(text)}
            found.append((notes.get("name", "?"), notes or {"frontend_attributes": text}))
        callee = module.function(op.attrs.text("to_apply"))
        notes = _signature_notes(callee)
        if notes:
            found.append((f"@{callee.name}", notes))
        found += _calls(module, callee)
    return found


def _signature_notes(function: Function) -> dict[str, str]:
    """Shardings and MLIR's attributes of the arguments and results of a called function."""
    pairs = [
        *[
            (f"argument {i}: {k}", t)
            for i, v in enumerate(function.args)
            for k, t in v.annotations.items()
        ],
        *function.annotations.items(),
    ]
    return {key: str(text) for key, text in pairs if "sharding" in key or "mlir." in key}


def module_differences(first: Module, second: Module) -> list[str]:
    """The differences of two modules that no program of theirs has, in words."""
    notes = [
        {key: text for key, text in module.meta.items() if key.startswith(_NOTED)}
        for module in (first, second)
    ]
    return [f"module: {text}" for text in noted_differences(*notes)]
