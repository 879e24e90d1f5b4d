"""Coverage in verdicts: a pass that changes what no call reached is not ok; every hole shows."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.exec.session import ProgramCall, Workload
from graphgen.ir.dtype import f32
from graphgen.json_value import Json
from graphgen.models import build, known_shape
from graphgen.passes.inspect.result_json import verdict_json
from graphgen.passes.pipelines import default
from graphgen.passes.validate import Verdict, validate
from graphgen.passes.validate.verdict import coverage_stages
from graphgen.passes.workload.coverage_report import stages_json, summary, tables
from graphgen.passes.workload.make_workload import make_workload
from graphgen.passes.workload.place_coverage import ranges

ROWS = 2
SIZES = {"R": ROWS, "M": 8}
CONFIG = CompileConfig(batch=(ROWS,), context=(4, 8), tokens=(8,))


def prefill(width: int) -> ProgramCall:
    """Two prompts of three tokens in a bucket of ``width``."""
    positions = np.full((ROWS, width), -1, np.int32)
    positions[:, :3] = np.arange(3)
    inputs = {
        "tokens": np.full((ROWS, width), 7, np.int32),
        "positions": positions,
        "lengths": np.full(ROWS, 3, np.int32),
        "seq_ids": np.arange(ROWS, dtype=np.int32),
    }
    return ProgramCall("prefill", {**SIZES, "B": ROWS, "S": width, "C": width}, inputs)


def decode() -> ProgramCall:
    inputs = {
        "tokens": np.full((ROWS, 1), 9, np.int32),
        "positions": np.full((ROWS, 1), 3, np.int32),
        "lengths": np.full(ROWS, 4, np.int32),
        "seq_ids": np.arange(ROWS, dtype=np.int32),
    }
    return ProgramCall("decode", {**SIZES, "B": ROWS, "S": 1, "C": 8}, inputs)


@cache
def verdicts(*widths: int) -> list[Verdict]:
    """A mini model over the default pipeline, with a prefill in each of these buckets."""
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    calls = (*(prefill(width) for width in widths), decode())
    workload = Workload(make_workload(module).weights, calls, SIZES)
    return validate(module, default(CONFIG), workload)


HOLE = "@prefill.b2.s8 (prefill, B=2, S=8, C=8, R=2, M=8)"


def test_a_bucket_that_is_never_called_is_reported():
    found = verdicts(4)
    names = {verdict.pass_text.split("{")[0]: verdict for verdict in found}
    assert names["canonicalize"].ok
    for changed in ("specialize", "fuse-projections", "legalize"):
        assert names[changed].uncovered == ("prefill.b2.s8",)
        assert names[changed].passed
        assert not names[changed].ok
    stages = coverage_stages(found)
    specialize = names["specialize"].pass_text
    assert summary(stages) == (
        "coverage: programs 2 of 3, B=2, C=4 8, M=8, R=2, S=1 4, ids 7..9 of 257, "
        "positions 0..3 of 8, slots 50% written 50% read, situations 1 of 15\n"
        "places: @prefill.b2.s4 positions 0..2 of 4 in rows 0..1; "
        "@decode.b2.c8 positions 3 of 8 in rows 0..1\n"
        f"not run: {HOLE}, after {specialize}\n"
        "not tried: @prefill.b2.s4 position 3 row 0, position 3 row 1, "
        f"after {specialize}\n"
        "not tried: @decode.b2.c8 positions 0..2 4..7 row 0, positions 0..2 4..7 row 1, "
        f"after {specialize}\n"
    )
    (hole,) = [row for row in tables(stages)[-1].rows if row[0] == "not run"]
    assert hole == ("not run", HOLE, "", specialize)
    assert not any(coverage.complete for text, coverage in stages if text == specialize)


def test_all_buckets_called_is_complete():
    found = verdicts(4, 8)
    assert [verdict.pass_text for verdict in found if not verdict.ok] == []
    assert all(coverage.complete for _, coverage in coverage_stages(found))
    assert "not run" not in summary(coverage_stages(found))


def plain(facts: Json) -> Any:
    """What a reader of the JSON gets."""
    return json.loads(json.dumps(facts, allow_nan=False))


def test_coverage_as_json():
    found = verdicts(4)
    coverage = plain(verdict_json(found[-1]))["coverage"]
    ranges = {each["op"]: each for each in coverage.pop("ranges")}
    assert ranges.keys() >= {"dot_general", "exponential", "multiply"}
    powers = ranges["exponential"]
    assert (powers["low"], powers["high"], powers["nan"]) == (0.0, 1.0, False)
    assert coverage.pop("predicates") > 0
    assert set(coverage.pop("functions").values()) <= {True}
    assert coverage == {
        "complete": False,
        "programs": [
            program("prefill.b2.s4", "prefill", {"B": 2, "S": 4, "C": 4}, [3]),
            program("prefill.b2.s8", "prefill", {"B": 2, "S": 8, "C": 8}),
            program("decode.b2.c8", "decode", {"S": 1, "B": 2, "C": 8}, [0, 1, 2, 4, 5, 6, 7]),
        ],
        "unused": [],
        "controls": [],
        "constant_predicates": [],
    }
    whole = plain(stages_json(coverage_stages(found)))
    inputs, holes = whole["inputs"], whole["holes"]
    assert inputs["ids"] == {"low": 7, "high": 9, "size": 257}
    assert inputs["calls"] == {"prefill": 1, "decode": 1}
    assert [hole for hole in holes if hole["blocking"]] == [
        {
            "kind": "program",
            "name": "prefill.b2.s8",
            "text": HOLE,
            "where": "",
            "blocking": True,
            "after": found[2].pass_text,
        }
    ]


def program(
    name: str, phase: str, dims: dict[str, int], missed: list[int] | None = None
) -> dict[str, Json]:
    """A program that was called once, but not at the positions ``missed``; or not at all."""
    bound = {**dims, "R": 2, "M": 8}
    facts: dict[str, Json] = {"name": name, "phase": phase, "dims": bound, "sizes": {}}
    if missed is None:
        return {**facts, "calls": 0, "places": None}
    every = sorted(set(range(dims["C"])) - set(missed))
    return {
        **facts,
        "calls": 1,
        "places": {
            "sizes": [[dims["C"], 2]],
            "text": f"positions {ranges(every)} of {dims['C']} in rows 0..1",
            "missed": [[position, row] for position in missed for row in range(2)],
            "adapters": [],
            "missed_adapters": [],
        },
    }


def test_no_verdict_is_ok_when_its_numbers_are_not():
    wrong = replace(verdicts(4, 8)[0], budget=-1.0)
    assert not wrong.ok
    assert wrong.means_the_same
