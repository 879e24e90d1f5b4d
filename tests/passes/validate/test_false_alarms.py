"""No correct pipeline is flagged: a model of each kind, and random cells of the matrix."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks.false_alarms import draw, main, run
from graphgen.config.compile_config import CompileConfig
from graphgen.ir.dtype import f32
from graphgen.models import SHAPES, build, known_shape
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.version import __version__

# The same at each commit, so that what fails failed before. ``benchmarks.false_alarms`` makes
# thousands of others.
RUNS = 30
FIRST = {name.partition("-")[0]: name for name in reversed(list(SHAPES))}


@pytest.mark.parametrize("name", FIRST.values())
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.one_in(19)
def test_a_right_pipeline_is_not_flagged(name: str, tp: int):
    module = build(known_shape(name), f32, mini=True)
    passes = default(CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), tp=tp))
    verdicts = validate(module, passes, make_workload(module))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


def first_run() -> int:
    """The number of the first random run: another one for each version, the same on any machine."""
    return int(sha256(__version__.encode()).hexdigest()[:7], 16)


@pytest.mark.one_in(6)
@pytest.mark.slow
@pytest.mark.parametrize("place", range(RUNS))
def test_random_right_pipelines_are_not_flagged(place: int):
    result = run(first_run() + place)
    assert (result["alarms"], result["error"]) == ([], ""), result


@pytest.mark.parametrize("number", [162773560])
@pytest.mark.slow
def test_runs_that_were_flagged_are_right(number: int):
    result = run(number)
    assert (result["alarms"], result["error"]) == ([], ""), result


def test_runs_are_drawn_from_their_number_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    kept = tmp_path / "runs.jsonl"
    kept.write_text(
        '{"number": 0, "cell": "a", "seed": 1, "seconds": 1.5, "alarms": ["WRONG"], "error": ""}\n'
        '{"number": 1, "cell": "b", "seed": 2, "seconds": 0.5, "alarms": [], "error": ""}\n',
        encoding="utf-8",
    )
    assert main(["--runs", "2", "--results", str(kept)]) == 1
    out = capsys.readouterr().out
    assert '"runs": 2,' in out
    assert '"alarms": 1,' in out
    right = ["--runs", "1", "--first", "1", "--results", str(kept)]
    assert main(right) == 0
    record = tmp_path / "results" / "record.jsonl"
    for revision in ("one", "two", "one"):
        assert main([*right, "--record", str(record), "--revision", revision]) == 0
    rows = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    assert [(row["revision"], row["first"], row["runs"]) for row in rows] == [
        ("two", 1, 1),
        ("one", 1, 1),
    ]
