"""The rules, as data: when each one fires, for which targets, and how far it can be trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import cast

from graphgen.ops.control import SCALAR

_Json = Mapping[str, object]

# HLO's opcodes where our op has another name.
_OPCODES = {
    "dot_general": "dot",
    "broadcast_in_dim": "broadcast",
    "optimization_barrier": "opt-barrier",
    "top_k": "topk",
}


@dataclass(frozen=True, slots=True)
class CompilerRule:
    """A construct that the compiler refuses, warns of or compiles badly, by a public source.

    Attributes:
        id: short name.
        op: HLO opcode it is about; empty for the whole module.
        severity: ``error``, ``warn``, ``perf`` or ``info``.
        targets: empty for all of them.
        when: predicate names with their arguments; all must hold. See ``predicates``.
        code: the compiler's code, ``NCC_...``; empty where none is known.
        fix: what to do.
        trust: ``official``, ``aws-code``, ``observed``, ``measured``, ``third-party`` or
            ``community``.
        source: where it is known from.
    """

    id: str
    op: str
    severity: str
    targets: tuple[str, ...]
    when: Mapping[str, object]
    code: str
    fix: str
    trust: str
    source: str


@cache
def legality() -> _Json:
    """Everything that is stored: rules, statuses of ops and types, custom calls."""
    text = files("graphgen.targets").joinpath("neuron_legality.json").read_text(encoding="utf-8")
    return cast(_Json, json.loads(text))


@cache
def rules_by_op() -> Mapping[str, Sequence[CompilerRule]]:
    """The rules of each opcode."""
    found: dict[str, list[CompilerRule]] = {}
    for row in cast(Sequence[_Json], legality()["rules"]):
        rule = _compiler_rule(row)
        found.setdefault(rule.op, []).append(rule)
    return found


@cache
def module_rules() -> Mapping[str, CompilerRule]:
    """The rules about whole modules, by id."""
    rows = cast(Sequence[_Json], legality()["module_rules"])
    return {rule.id: rule for rule in map(_compiler_rule, rows)}


def _compiler_rule(row: _Json) -> CompilerRule:
    targets = row["targets"]
    return CompilerRule(
        id=str(row["id"]),
        op=str(row["op"]),
        severity=str(row["severity"]),
        targets=() if targets == "*" else tuple(cast(list[str], targets)),
        when=cast(Mapping[str, object], row["when"]),
        code=str(row["code"]),
        fix=str(row["fix"]),
        trust=str(row["trust"]),
        source=str(row["source"]),
    )


def status_of(opcode: str) -> tuple[str, str]:
    """Status and remark of an opcode as a whole; ``unknown`` without a source."""
    row = cast(Mapping[str, _Json], legality()["ops"]).get(opcode)
    return (str(row["status"]), str(row.get("note", ""))) if row else ("unknown", "")


def dtype_status(name: str, target: str) -> tuple[str, str]:
    """Status of an element type, such as ``ok``, ``downcast`` or ``error``, and a remark.

    Where a row names targets, an error is one on those alone.
    """
    row = cast(Mapping[str, _Json], legality()["dtypes"]).get(name)
    if row is None:
        return "unknown", ""
    status, elsewhere = (
        str(row["status"]),
        target not in cast(Sequence[str], row.get("targets", ())),
    )
    if status == "error" and "targets" in row and elsewhere:
        status = "ok"
    return status, str(row.get("note", ""))


@cache
def custom_call_targets() -> frozenset[str]:
    """Custom calls the compiler recognizes."""
    rows = cast(Sequence[_Json], legality()["custom_calls"])
    return frozenset(str(row["target"]) for row in rows)


def opcode_of(name: str, attrs: Mapping[str, object]) -> str:
    """The HLO opcode of one of our ops; an opaque op says its own."""
    if name == "hlo.opaque":
        return str(attrs.get("opcode", ""))
    if name in SCALAR:
        name = name.removesuffix("_by")
    return _OPCODES.get(name, name.replace("_", "-"))
