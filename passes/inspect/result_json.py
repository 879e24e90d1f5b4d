"""Results of running, explaining and comparing passes as JSON, one function per result class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from graphgen.eval.element_kinds import element_json
from graphgen.ir import Op, Value
from graphgen.json_value import Json, json_number
from graphgen.passes.core import PassReport
from graphgen.passes.core.journal import Journal, Rewrite
from graphgen.passes.inspect.decisions import DecisionSite, decisions
from graphgen.passes.proof.verdict_json import verdicts as proof_json
from graphgen.passes.workload.coverage_report import coverage_json

if TYPE_CHECKING:
    from graphgen.passes.equiv.choice_replay import ChoiceCounts
    from graphgen.passes.equiv.deviation import Deviation
    from graphgen.passes.equiv.equiv import Equivalence
    from graphgen.passes.equiv.find_divergence import Maker
    from graphgen.passes.inspect.explain import Explanation, FailureReason
    from graphgen.passes.inspect.history import History
    from graphgen.passes.inspect.recording import Recording
    from graphgen.passes.proof.pass_proof import PassProof
    from graphgen.passes.proof.prove_bounds import IndexProof
    from graphgen.passes.validate import Verdict
    from graphgen.passes.validate.bisect import Culprit
    from graphgen.passes.validate.reproducer import Failure, Replay
    from graphgen.passes.validate.rewrite_verdict import RewriteSummary
    from graphgen.passes.validate.verdict import LayerResults, RaisedError, RunDifference

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
    """Applied rules, and the nearest misses of the others."""
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


def _proof_json(verdict: Verdict, proof: PassProof) -> dict[str, Json]:
    return {
        name: {
            "status": str(one.status),
            "output": one.output,
            "why": one.why,
            "rounding": one.rounding or None,
            "counterexample": dict(one.counterexample),
            "example": verdict.examples[name].text if name in verdict.examples else None,
        }
        for name, one in proof.programs.items()
    }


def _indices_json(indices: Mapping[str, Sequence[IndexProof]]) -> dict[str, Json]:
    """Numbers of index operands, and those that may be out of bounds."""
    found = [(name, proof) for name, proofs in indices.items() for proof in proofs]
    undecided: list[Json] = [
        {
            "function": name,
            "op": proof.op.name,
            "where": repr(proof.op.loc),
            "low": str(proof.index.low),
            "high": str(proof.index.high),
            "why": proof.why,
        }
        for name, proof in found
        if not proof.proved
    ]
    return {"count": len(found), "proved": len(found) - len(undecided), "undecided": undecided}


def verdict_json(verdict: Verdict) -> dict[str, Json]:
    """Differences before and after one pass, and its other faults."""
    return {
        "pass": verdict.pass_text,
        "ok": verdict.ok,
        "state": verdict.state,
        "meaning": json_number(verdict.meaning.relative),
        "max_abs": json_number(verdict.rounding.max_abs),
        "ulp": json_number(verdict.rounding.ulp),
        "cosine": json_number(verdict.rounding.cosine),
        "rounding": json_number(verdict.rounding.relative),
        "meaning_element": json_number(verdict.meaning.element),
        "rounding_element": json_number(verdict.rounding.element),
        "other_bits": verdict.rounding.bits,
        "budget": verdict.budget,
        "declared_budget": verdict.declared.declared if verdict.declared else None,
        "explained_budget": verdict.declared.explained if verdict.declared else None,
        "finite_math_only": verdict.finite_math_only,
        "where": verdict.meaning.name,
        "guilty": str(verdict.guilty) if verdict.guilty else None,
        "together": [rewrite_json(item) for item in verdict.together],
        "recovered": verdict.recovered or None,
        "first": _deviation_json(verdict.first) if verdict.first else None,
        "choices": _choices_json(verdict.choices),
        "rounded_choices": _choices_json(verdict.rounded_choices),
        "silent": verdict.silent,
        "proof": _proof_json(verdict, verdict.proof) if verdict.proof else None,
        "pipeline": proof_json(verdict.pipeline) if verdict.pipeline is not None else None,
        "indices": _indices_json(verdict.indices) if verdict.indices is not None else None,
        "repeatable": verdict.repeatable,
        "varies": _varies_json(verdict.varies) if verdict.varies else None,
        "raised": _raised_json(verdict.raised) if verdict.raised else None,
        "uncovered": list(verdict.uncovered),
        "coverage": coverage_json(verdict.coverage) if verdict.coverage is not None else None,
        "rewrites": _rewrites_json(verdict.rewrites) if verdict.rewrites else None,
        "layers": _layers_json(verdict.layers) if verdict.layers else None,
    }


def _layers_json(found: LayerResults) -> dict[str, Json]:
    """Layers by outcome: run, same as another layer, unchanged, or wrong."""
    wrong: list[Json] = [
        {
            "layer": result.label,
            "meaning": json_number(result.meaning.relative),
            "rounding": json_number(result.rounding.relative),
            "guilty": str(result.guilty) if result.guilty else None,
            "first": _deviation_json(result.first) if result.first else None,
        }
        for result in found.wrong
    ]
    return {
        "run": list(found.run),
        "same_as": {result.label: result.same_as for result in found.changed if result.same_as},
        "unchanged": list(found.unchanged),
        "wrong": wrong,
    }


def _rewrites_json(found: RewriteSummary) -> dict[str, Json]:
    """Counts of rewrites checked alone, and those that are not right."""
    return {
        "counts": {status.value: count for status, count in found.counts.items()},
        "seconds": found.seconds,
        "remarkable": [
            {
                **rewrite_json(check.rewrite),
                "status": check.status.value,
                "reason": check.reason,
                "counterexample": check.counterexample.text if check.counterexample else None,
            }
            for check in found.remarkable
        ],
    }


def _deviation_json(found: Deviation) -> dict[str, Json]:
    return {
        "where": found.name,
        "call": found.call,
        "relative": json_number(found.relative),
        "element": json_number(found.element),
        "other_bits": found.bits,
    }


def _choices_json(found: ChoiceCounts) -> dict[str, Json]:
    return {
        "compared": found.compared,
        "replayed": found.replayed,
        "wrong": found.wrong,
        "alone": found.alone,
    }


def _varies_json(found: RunDifference) -> dict[str, Json]:
    return {"line": found.line or None, "first": found.first, "second": found.second}


def _raised_json(found: RaisedError) -> dict[str, Json]:
    more = {"where": found.where, "note": found.note, "help": found.help}
    return {**_failure_json(found.failure), "during": found.during, **more}


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
        "element": json_number(worst.element),
        "other_bits": worst.bits,
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
        "value": element_json(side.number),
        "file": side.loc.file,
        "line": side.loc.line,
        "scope": side.loc.scope,
    }


def bisection_json(found: Culprit | None) -> dict[str, Json]:
    """The pass, rewrite and op that bisection found, ``guilty``, and the pass that raises."""
    raising = found.raising if found is not None else None
    raised: Json = None
    if raising is not None:
        place = {"pass": str(raising.item), "place": raising.number + 1}
        raised = {**place, **_raised_json(raising.error)}
    guilty = _culprit_json(found) if found is not None and found.wrong else None
    return {"guilty": guilty, "raised": raised}


def _culprit_json(found: Culprit) -> dict[str, Json]:
    first = found.first
    return {
        "pass": str(found.item),
        "place": found.number + 1,
        "fuel": found.fuel or None,
        "application": rewrite_json(found.application) if found.application else None,
        "first_wrong_op": first.right.text if first is not None else None,
        "instead_of": first.left.text if first is not None else None,
        "together": [rewrite_json(item) for item in found.together],
        "recovered": found.recovered or None,
        "recovered_pass": found.recovered_pass or None,
        "silent": found.silent,
        "varies": _varies_json(found.varies) if found.varies else None,
        "state": found.verdict.state if found.verdict is not None else None,
        "counterexample": _alone(found.verdict) if found.verdict is not None else None,
    }


def _alone(verdict: Verdict) -> str | None:
    """The counterexample of the first rewrite that is wrong alone."""
    wrong = verdict.rewrites.wrong if verdict.rewrites is not None else None
    example = wrong.counterexample if wrong is not None else None
    return example.text if example is not None else None


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
