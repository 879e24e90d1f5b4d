"""Adds the verdicts of a run to the evidence that a user keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from graphgen.atomic_write import read_regular, write_whole
from graphgen.json_value import Json, parse_json
from graphgen.limits import JSON_BYTES
from graphgen.lowering.check.evidence import FORMAT, KIND, read_evidence
from graphgen.read_file import is_there
from graphgen.runtime.device_kit.figures import Figure
from graphgen.runtime.device_kit.verdicts import (
    CONFIRMS,
    CONTRADICTS,
    NO_RUN,
    NOT_LEGAL,
    WRONG,
    CaseVerdict,
)
from graphgen.runtime.kit_runner.kit_types import ACCEPTED, Results

_Row = dict[str, Json]


def evidence_of(
    found: Sequence[CaseVerdict], results: Results, measured: Sequence[Figure]
) -> dict[str, list[_Row]]:
    """The rows of a run: rules that its cases are about, uses that went wrong, times and rates."""
    target, compiler = results["target"], results["facts"]["compiler"]
    confirmed: dict[str, set[str]] = {}
    contradicted: dict[str, set[str]] = {}
    for item in found:
        side = {CONFIRMS: confirmed, CONTRADICTS: contradicted}.get(item.kind)
        for rule in item.rules if side is not None else ():
            cast("dict[str, set[str]]", side).setdefault(rule["rule"], set()).add(item.case["name"])
    rules: list[_Row] = [
        {
            "target": target,
            "rule": rule,
            "compiler": compiler,
            "confirmed": [*sorted(confirmed.get(rule, ()))],
            "contradicted": [*sorted(contradicted.get(rule, ()))],
        }
        for rule in sorted(confirmed.keys() | contradicted.keys())
    ]
    rates: list[_Row] = [
        {
            "target": target,
            "lnc": results["lnc"],
            "figure": item.name,
            "published": item.published,
            "measured": item.measured,
            "compiler": compiler,
        }
        for item in measured
    ]
    uses = _uses(found, target, compiler)
    return {"rules": rules, "uses": uses, "times": _times(results), "figures": rates}


def _uses(found: Sequence[CaseVerdict], target: str, compiler: str) -> list[_Row]:
    """Uses that the rules accept and the device does not; the first case of each."""
    accepted = [item for item in found if item.case["subject"]["expects"] == ACCEPTED]
    good = {_use(item) for item in accepted if item.kind == CONFIRMS}
    rows: dict[tuple[str, str], _Row] = {}
    for item in accepted:
        op, dtype = _use(item)
        if not op or item.outcome not in (NOT_LEGAL, NO_RUN, WRONG):
            continue
        row: _Row = {
            "target": target,
            "op": op,
            "dtype": dtype,
            "outcome": item.outcome,
            "code": item.code,
            "case": item.case["name"],
            "compiler": compiler,
            "alone": (op, dtype) not in good,
        }
        rows.setdefault((op, dtype), row)
    return [*rows.values()]


def _use(item: CaseVerdict) -> tuple[str, str]:
    subject = item.case["subject"]
    return subject["op"], subject["dtype"]


def _times(results: Results) -> list[_Row]:
    """Seconds of the fastest run beside those by the published figures."""
    return [
        {
            "target": results["target"],
            "case": case["name"],
            "seconds": min(case["execution"]["times_s"]),
            "bound_s": case["bound_s"],
            "compiler": results["facts"]["compiler"],
        }
        for case in results["cases"]
        if case["execution"]["times_s"] and case["bound_s"]
    ]


_KEYS: Mapping[str, tuple[str, ...]] = {
    "rules": ("target", "rule"),
    "uses": ("target", "op", "dtype"),
    "times": ("target", "case"),
    "figures": ("target", "lnc", "figure"),
}


def add_evidence(path: Path, new: Mapping[str, Sequence[_Row]], results: Results) -> None:
    """Write a file with the rows of a run in the place of earlier ones about the same.

    Of a rule, cases that the run has replace their earlier verdicts, and others stay. A use whose
    case went well this time is dropped.

    Raises:
        GraphgenError: GG1004 if the file is there and is something else, GG0704.
    """
    old: Mapping[str, Sequence[_Row]] = {}
    if is_there(path):
        read_evidence(path)
        old = cast("Mapping[str, Sequence[_Row]]", parse_json(read_regular(path, JSON_BYTES)))
    ran = {case["name"] for case in results["cases"]}
    content: dict[str, Json] = {"kind": KIND, "format": FORMAT}
    for name, keys in _KEYS.items():
        kept = {
            tuple(str(row[key]) for key in keys): dict(row)
            for row in old.get(name, ())
            if name != "uses" or row["target"] != results["target"] or row["case"] not in ran
        }
        for row in new[name]:
            key = tuple(str(row[item]) for item in keys)
            kept[key] = _joined(kept[key], row, ran) if name == "rules" and key in kept else row
        content[name] = [*kept.values()]
    write_whole(path, json.dumps(content, indent=1).encode())


def _joined(old: _Row, new: _Row, ran: set[str]) -> _Row:
    """The rows of one rule: verdicts of cases that were run again are the new ones."""
    made = dict(new)
    for side in ("confirmed", "contradicted"):
        before = {name for name in cast("list[str]", old[side]) if name not in ran}
        made[side] = [*sorted(before | {*cast("list[str]", new[side])})]
    return made
