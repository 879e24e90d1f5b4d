"""Results of running, explaining and comparing passes as JSON, one function per result class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphgen.ir import Op, Value
from graphgen.json_value import Json, json_number
from graphgen.passes.core import PassReport
from graphgen.passes.core.journal import Journal, Rewrite
from graphgen.passes.inspect.decisions import DecisionSite, decisions

if TYPE_CHECKING:
    from graphgen.passes.inspect.explain import Explanation, FailureReason
    from graphgen.passes.inspect.history import History
    from graphgen.passes.inspect.recording import Recording
    from graphgen.passes.verify import Verdict
    from graphgen.passes.verify.bisect import Culprit
    from graphgen.passes.verify.divergence import Maker
    from graphgen.passes.verify.equiv import Equivalence
    from graphgen.passes.verify.reproducer import Failure, Replay

# For an op of the module at the end: program, line in its StableHLO, text of the line.
LoweredLines = Mapping[Op, tuple[str, int, str]]


def report_json(report: PassReport) -> dict[str, Json]:
    """Counts, time and remarks of one pass."""
    return {
        "pass": report.name,
        "ops_before": report.ops_before,
        "ops_after": report.ops_after,
        "applications": report.applications,
        "stopped": report.stopped,
        "seconds": report.seconds,
        "remarks": report.remarks,
    }


def decisions_json(journal: Journal) -> dict[str, Json]:
    """Rules that applied, and the nearest misses of those that did not."""
    found = decisions(journal)
    applied: list[Json] = [
        {**_site_json(site), "times": {str(times): layers for times, layers in counts.items()}}
        for site, counts in found.made.items()
    ]
    near: list[Json] = [{**_site_json(site), "reason": why} for site, why in found.near.items()]
    return {"made": applied, "near": near}


def _site_json(site: DecisionSite) -> dict[str, Json]:
    return {
        "pass": site.pass_name,
        "rule": site.rule,
        "function": site.function,
        "scope": site.scope,
    }


def rewrite_json(item: Rewrite) -> dict[str, Json]:
    """One rewrite."""
    return {
        "number": item.number,
        "rule": item.rule,
        "function": item.function,
        "op": item.root,
        "where": repr(item.loc),
        "rule_at": item.source,
    }


def reason_json(reason: FailureReason, *, touched: bool = False) -> dict[str, Json]:
    """One near miss; with ``touched``, also the pass that last changed the value."""
    last: dict[str, Json] = {"last_touched_by": reason.touched or None} if touched else {}
    return {
        "rule": reason.rule,
        "reason": reason.reason,
        "value": reason.at or None,
        **last,
        "function": reason.function,
        "op": reason.root,
        "where": repr(reason.loc),
        "count": reason.count,
    }


def explanation_json(found: Explanation) -> dict[str, Json]:
    """Rewrites and near misses of one pass."""
    return {
        "pass": found.pass_name,
        "applications": [{**rewrite_json(item), "gain": item.gain} for item in found.applications],
        "misses": [reason_json(reason, touched=True) for reason in found.reasons],
    }


def history_json(found: History, recording: Recording, lines: LoweredLines) -> dict[str, Json]:
    """Origins, events and lowered ops of one value."""
    return {
        "origins": [{"function": home, "text": text} for home, text in found.origins],
        "where": repr(found.loc),
        "events": [
            {
                "pass": event.label,
                "function": event.function,
                "what": event.what,
                "number": event.number or None,
                "rule_at": event.source or None,
                "relation": str(event.relation) if event.relation is not None else None,
                "before": list(event.before),
                "after": list(event.after),
            }
            for event in found.events
        ],
        "now": _values_json(found.now, recording, lines),
        "made_for_it": _values_json(found.inside, recording, lines),
    }


def _values_json(values: Sequence[Value], recording: Recording, lines: LoweredLines) -> list[Json]:
    out: list[Json] = []
    for value in values:
        home, line, text = lines.get(value.op, ("", 0, "")) if value.op else ("", 0, "")
        out.append(
            {
                "value": recording.end.names[value],
                "function": home or None,
                "line": line or None,
                "stablehlo": text or None,
            }
        )
    return out


def verdict_json(verdict: Verdict) -> dict[str, Json]:
    """Differences before and after one pass."""
    return {
        "pass": verdict.pass_text,
        "ok": verdict.ok,
        "meaning": json_number(verdict.meaning.relative),
        "max_abs": json_number(verdict.rounding.max_abs),
        "ulp": json_number(verdict.rounding.ulp),
        "cosine": json_number(verdict.rounding.cosine),
        "rounding": json_number(verdict.rounding.relative),
        "budget": verdict.budget,
        "where": verdict.meaning.name,
        "guilty": str(verdict.guilty) if verdict.guilty else None,
    }


def equivalence_json(found: Equivalence) -> dict[str, Json]:
    """The worst difference of two modules, and the first op that differs."""
    worst, first = found.difference, found.first
    divergence: Json = None
    if first is not None:
        divergence = {
            "index": list(first.index),
            "shape": list(first.shape),
            "between": first.between,
            "joined": first.joined,
            "crossed": [list(names) for names in first.crossed],
            "left": _maker_json(first.left),
            "right": _maker_json(first.right),
        }
    return {
        "equal": found.equal,
        "tolerance": found.tolerance,
        "relative": json_number(worst.relative),
        "max_abs": json_number(worst.max_abs),
        "where": worst.name,
        "call": worst.call,
        "left": repr(found.left),
        "right": repr(found.right),
        "empty": list(found.empty),
        "first": divergence,
    }


def _maker_json(side: Maker) -> dict[str, Json]:
    return {
        "op": side.text,
        "value": json_number(side.number),
        "file": side.loc.file,
        "line": side.loc.line,
        "scope": side.loc.scope,
    }


def bisection_json(found: Culprit | None) -> dict[str, Json]:
    """The pass, rewrite and op that bisection found; ``guilty`` is null for none."""
    if found is None:
        return {"guilty": None}
    first = found.first
    guilty: Json = {
        "pass": str(found.item),
        "place": found.number + 1,
        "fuel": found.fuel or None,
        "application": rewrite_json(found.application) if found.application else None,
        "first_wrong_op": first.right.text if first is not None else None,
        "instead_of": first.left.text if first is not None else None,
    }
    return {"guilty": guilty}


def replay_json(found: Replay) -> dict[str, Json]:
    """A recorded failure, and the failure now."""
    recorded, now = found.recorded, found.now
    return {
        "pipeline": recorded.pipeline,
        "pass": recorded.failed,
        "whole_pipeline": recorded.whole,
        "fails": now is not None,
        "same": found.same,
        "recorded": _failure_json(recorded.failure),
        "now": _failure_json(now) if now is not None else None,
        "versions": {name: [then, now] for name, then, now in found.differences},
    }


def _failure_json(failure: Failure) -> dict[str, Json]:
    return {"type": failure.type, "code": failure.code or None, "what": failure.what}
