"""Conditions of a pattern on ops and values: attributes, sizes, users, names and places."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from graphgen.ir import Op, Value
from graphgen.pattern.nodes import Condition
from graphgen.text.grammar import format_attr

_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}


@dataclass(slots=True)
class Known:
    """Facts beside the graph that a pattern may query.

    Attributes:
        kinds: of arguments: ``inputs``, ``weights`` or ``caches``.
        layers: of ops.
    """

    kinds: Mapping[Value, str] = field(default_factory=dict[Value, str])
    layers: Mapping[Op, str] = field(default_factory=dict[Op, str])


def holds(condition: Condition, value: Value, op: Op | None, known: Known) -> bool:
    """True if a condition holds; a condition on a missing attribute does not."""
    fact = _FACTS.get(condition.key)
    if fact is not None:
        actual = fact(value)
    elif condition.key == "layer":
        actual = known.layers.get(op, "") if op is not None else ""
    elif op is not None and condition.key in op.attrs:
        given = op.attrs[condition.key]
        actual = given if isinstance(given, str) else format_attr(given)
    else:
        return False
    return compare(actual, condition.relation, condition.wanted)


_FACTS: dict[str, Callable[[Value], str | int]] = {
    "bytes": lambda value: value.type.nbytes if value.type.static else 0,
    "uses": lambda value: sum(value.users.values()),
    "rank": lambda value: value.type.rank,
    "name": lambda value: value.name or "",
    "scope": lambda value: value.op.loc.scope if value.op else "",
    "file": lambda value: value.op.loc.file if value.op else "",
    "line": lambda value: value.op.loc.line if value.op else 0,
}


def compare(actual: str | int, relation: str, wanted: str) -> bool:
    """``actual relation wanted``; numbers by size where both are, texts with ``*`` and ``?``."""
    one, other = _number(str(actual)), _number(wanted)
    if relation in ("=", "!="):
        same = one == other if one is not None and other is not None else False
        return (same or matches(wanted, str(actual))) == (relation == "=")
    if one is None or other is None:
        return False
    return {"<": one < other, "<=": one <= other, ">": one > other, ">=": one >= other}[relation]


def _number(text: str) -> float | None:
    found = re.fullmatch(r"(-?[\d.]+(?:e-?\d+)?)(kB|MB|GB)?", text)
    try:
        return float(found[1]) * _UNITS.get(found[2] or "", 1) if found else None
    except ValueError:
        return None


_regexes: dict[str, re.Pattern[str]] = {}


def matches(wanted: str, text: str) -> bool:
    """True if ``text`` matches a glob of ``*`` and ``?``; an empty glob matches everything."""
    if not wanted:
        return True
    found = _regexes.get(wanted)
    if found is None:
        source = re.escape(wanted).replace(r"\*", ".*").replace(r"\?", ".")
        found = _regexes[wanted] = re.compile(source)
    return found.fullmatch(text) is not None
