"""Text of coverage: the line under a table of verdicts, the list of holes, and the full tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphgen.json_value import Json, json_number
from graphgen.passes.workload.coverage import Coverage, Hole, InputCoverage, IntegerRange
from graphgen.passes.workload.place_coverage import PlaceCoverage
from graphgen.report.table import Table

# A coverage after each pass: the pass as text, and the coverage.
Stages = Sequence[tuple[str, Coverage]]
_HOLES = {
    "predicate": "constant",
    "unused": "unused",
    "place": "not covered",
    "untried": "not tried",
}


def holes_with_passes(stages: Stages) -> list[tuple[Hole, str]]:
    """All holes at any stage, once each, with the pass after which each is first seen."""
    found: dict[tuple[str, str, str], tuple[Hole, str]] = {}
    for pass_text, coverage in stages:
        for hole in coverage.holes():
            found.setdefault((hole.kind, hole.name, hole.text), (hole, pass_text))
    return list(found.values())


def summary(stages: Stages) -> str:
    """Two lines of what was exercised, then one for each thing that was not at some stage."""
    if not stages:
        return ""
    coverage = stages[-1][1]
    run = len([program for program in coverage.programs if program.calls])
    facts = [f"programs {run} of {len(coverage.programs)}", *_size_text(coverage)]
    facts += _input_text(coverage.inputs)
    holes = holes_with_passes(stages)
    untried = {hole for hole in coverage.holes() if hole.kind == "untried"}
    missing = [
        f"{_HOLES.get(hole.kind, 'not run')}: {hole.text}"
        f"{f' ({hole.where})' if hole.where else ''}, after {since}\n"
        for hole, since in holes
        if hole.blocking or hole in untried
    ]
    constant = len([hole for hole, _ in holes if hole.kind == "predicate"])
    if constant:
        facts.append(f"constant predicates {constant}")
    return f"coverage: {', '.join(facts)}\n{_places_text(coverage)}{''.join(missing)}"


def _places_text(coverage: Coverage) -> str:
    """The positions and rows of each program of a language model that was run, in one line."""
    texts: dict[str, list[str]] = {}
    for program in coverage.programs:
        if program.places is not None:
            texts.setdefault(program.places.text, []).append(f"@{program.name}")
    found = [f"{' '.join(names)} {text}" for text, names in texts.items()]
    return f"places: {'; '.join(found)}\n" if found else ""


def _size_text(coverage: Coverage) -> list[str]:
    """``B=3``, ``C=8 16``: the sizes in programs that were run."""
    sizes: dict[str, set[int]] = {}
    for program in coverage.programs:
        if program.calls:
            for name, size in program.dims.items():
                sizes.setdefault(name, set()).add(size)
            for name, bound in program.sizes.items():
                sizes.setdefault(name, set()).update(bound)
    return [f"{name}={' '.join(map(str, sorted(sizes[name])))}" for name in sorted(sizes)]


def _input_text(inputs: InputCoverage) -> Iterator[str]:
    for name, found in (("ids", inputs.ids), ("positions", inputs.positions)):
        if found is not None:
            yield f"{name} {found.low}..{found.high}{f' of {found.size}' if found.size else ''}"
    if inputs.states and inputs.situations:
        least = min(inputs.states, key=lambda state: state.written)
        yield f"slots {least.written:.0%} written {least.read:.0%} read"
    if inputs.situations:
        yield f"situations {sum(inputs.situations.values())} of {len(inputs.situations)}"


def tables(stages: Stages) -> list[Table]:
    """The coverage of the module after the last pass, in full, and the holes at every stage."""
    if not stages:
        return []
    coverage = stages[-1][1]
    found = [_program_table(coverage), _input_table(coverage.inputs), _control_table(coverage)]
    found += [_range_table(coverage), _hole_table(stages)]
    return [table for table in found if table.rows]


def _program_table(coverage: Coverage) -> Table:
    rows: list[tuple[str, ...]] = []
    for program in coverage.programs:
        sizes = [f"{name}={' '.join(map(str, bound))}" for name, bound in program.sizes.items()]
        calls = str(program.calls) if program.calls else "0, not run"
        places = program.places.text if program.places is not None else ""
        rows.append((program.text, calls, ", ".join(sizes), places))
    rows += [
        (f"@{name}", "yes" if run else "not run", "", "")
        for name, run in coverage.functions.items()
    ]
    return Table(("program or function", "calls", "sizes bound", "places"), rows)


def _input_table(inputs: InputCoverage) -> Table:
    rows = [(name, "yes" if seen else "no") for name, seen in inputs.situations.items()]
    rows += [
        (f"input {name}", f"{low:.6g} .. {high:.6g}") for name, (low, high) in inputs.ranges.items()
    ]
    for state in inputs.states:
        facts = f"{state.written:.0%} written, {state.read:.0%} read, first {state.initial}"
        rows.append((f"state {state.name}", facts))
    return Table(("situation, input or state", "exercised"), rows)


def _control_table(coverage: Coverage) -> Table:
    rows: list[tuple[str, str, str]] = []
    for each in coverage.controls:
        if each.op == "while":
            turns = (
                "never reached"
                if each.trip_counts is None
                else f"{each.trip_counts[0]} to {each.trip_counts[1]}"
            )
            took = f"turns: {turns}"
        else:
            took = "taken: " + (
                ", ".join(f"@{each.runs[number]}" for number in each.taken) or "none"
            )
        rows.append((f"{each.op} in @{each.function}", took, each.where))
    return Table(("loop or conditional", "reached", "where"), rows)


def _range_table(coverage: Coverage) -> Table:
    """Ranges over all functions, by kind of op."""
    kinds = dict.fromkeys(each.op for each in coverage.ranges)
    rows: list[tuple[str, ...]] = []
    for kind in kinds:
        found = [each for each in coverage.ranges if each.op == kind]
        beyond, zero = sum(each.beyond for each in found), sum(each.zero for each in found)
        remarks = [
            *(["NaN"] if any(each.nan for each in found) else []),
            *(["infinite"] if any(each.infinite for each in found) else []),
            *([f"beyond the type in {beyond}"] if beyond else []),
            *([f"only zeros in {zero}"] if zero else []),
        ]
        low, high = min(each.low for each in found), max(each.high for each in found)
        ops = str(sum(each.ops for each in found))
        rows.append((kind, ops, f"{low:.4g}", f"{high:.4g}", ", ".join(remarks)))
    return Table(("results of", "ops", "lowest", "highest", "remarks"), rows, 3)


def _hole_table(stages: Stages) -> Table:
    rows = [
        (_HOLES.get(hole.kind, "not run"), hole.text, hole.where, since)
        for hole, since in holes_with_passes(stages)
    ]
    return Table(("hole", "in", "where", "after"), rows)


def coverage_json(coverage: Coverage) -> dict[str, Json]:
    """Coverage of one module without the inputs, which :func:`inputs_json` has.

    Of the places of a program ``sizes`` are pairs of positions and rows, ``missed`` pairs of a
    position and a row.

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
                "places": _places_json(program.places),
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
                "turns": list(each.trip_counts) if each.trip_counts is not None else None,
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


def _places_json(places: PlaceCoverage | None) -> Json:
    if places is None:
        return None
    return {
        "sizes": [list(size) for size in places.sizes],
        "text": places.text,
        "missed": [list(place) for place in places.missed],
        "adapters": list(places.adapters),
        "missed_adapters": list(places.missed_adapters),
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
