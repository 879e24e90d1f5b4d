"""Coverage as JSON."""

from __future__ import annotations

from graphgen.json_value import Json, json_number
from graphgen.passes.verify.coverage.coverage import Coverage, Hole, InputCoverage, IntegerRange
from graphgen.passes.verify.coverage.coverage_text import Stages, holes_with_passes


def coverage_json(coverage: Coverage) -> dict[str, Json]:
    """Coverage of one module without the inputs, which :func:`inputs_json` has.

    Of the ops that choose by element, only those are listed that chose the same for every element.
    """
    return {
        "complete": coverage.complete,
        "programs": [
            {
                "name": program.name,
                "phase": program.phase,
                "dims": dict(program.dims),
                "calls": program.calls,
                "sizes": {name: list(bound) for name, bound in program.sizes.items()},
            }
            for program in coverage.programs
        ],
        "functions": dict(coverage.functions),
        "unused": list(coverage.unused),
        "controls": [
            {
                "function": each.function,
                "op": each.op,
                "where": each.where,
                "runs": list(each.runs),
                "executed": each.executed,
                "taken": list(each.taken),
                "turns": list(each.turns) if each.turns is not None else None,
            }
            for each in coverage.controls
        ],
        "ranges": [
            {
                "function": each.function,
                "op": each.op,
                "ops": each.ops,
                "low": json_number(each.low),
                "high": json_number(each.high),
                "nan": each.nan,
                "infinite": each.infinite,
                "beyond": each.beyond,
                "zero": each.zero,
            }
            for each in coverage.ranges
        ],
        "predicates": len(coverage.predicates),
        "constant_predicates": [
            {"function": one.function, "op": one.op, "where": one.where, "is": outcome}
            for one in coverage.predicates
            if one.constant
            for outcome in [name for name, seen in one.outcomes.items() if seen]
        ],
    }


def inputs_json(inputs: InputCoverage) -> dict[str, Json]:
    """Inputs of the calls of a workload."""
    return {
        "calls": dict(inputs.calls),
        "ids": _range_json(inputs.ids),
        "positions": _range_json(inputs.positions),
        "rows": list(inputs.rows),
        "situations": dict(inputs.situations),
        "states": [
            {
                "name": state.name,
                "written": state.written,
                "read": state.read,
                "initial": state.initial,
            }
            for state in inputs.states
        ],
        "ranges": {
            name: [json_number(low), json_number(high)]
            for name, (low, high) in inputs.ranges.items()
        },
    }


def _range_json(found: IntegerRange | None) -> Json:
    if found is None:
        return None
    return {"low": found.low, "high": found.high, "size": found.size or None}


def stages_json(stages: Stages) -> dict[str, Json]:
    """Inputs, and the holes at any stage, each with the pass after which it is first seen."""
    return {
        "complete": all(coverage.complete for _, coverage in stages),
        "inputs": inputs_json(stages[-1][1].inputs) if stages else None,
        "holes": [_hole_json(hole, since) for hole, since in holes_with_passes(stages)],
    }


def _hole_json(hole: Hole, since: str) -> dict[str, Json]:
    return {
        "kind": hole.kind,
        "name": hole.name,
        "text": hole.text,
        "where": hole.where,
        "blocking": hole.blocking,
        "after": since,
    }
