"""``graphgen inspect`` of profiles: times beside bounds, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import dtype
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.neuron.device_profile import DeviceInstruction, busy
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from tests.graphgen.cli.conftest import done, error, facts


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decode program of a mini Llama as HLO."""
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), twin="mini")
    run_pipeline(module, default(CompileConfig(target="trn2", context=(8,), tokens=(8,))))
    file = tmp_path_factory.mktemp("profile") / "graph.hlo"
    file.write_bytes(emit_hlo(module, module.function("decode.b1.c8")))
    return file


def written(folder: Path, content: object, name: str = "profile.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(content))
    return file


def test_times_stand_beside_the_bounds_of_layers_and_ops(program: Path, tmp_path: Path):
    found = facts("grep", program, "dot_general", "--all")
    layers = {hit["layer"] for hit in found if hit["layer"]}
    assert len(layers) == 2
    names = [hit["ops"][0]["results"][0] for hit in found]
    rows: list[dict[str, Any]] = []
    for index, name in enumerate(names):
        # Two engines, half of whose times overlap: 1,500 ns of an op.
        for engine, start in (("tensor", 0), ("dma", 500)):
            rows.append(
                {
                    "timestamp": 10_000 * index + start,
                    "duration": 1000,
                    "hlo_name": f"%{name} = dot(%x, %y)",
                    "engine": engine,
                    "new_field": 1,
                }
            )
    rows.append({"timestamp": 10**6, "duration": 7, "hlo_name": "", "opcode": "DRAIN"})
    summary = {"total_time": 0.017, "event_count": 11, "new_metric": "x"}
    content = {"summary": [summary], "instruction": rows, "new_table": [{"a": 1}]}
    file = written(tmp_path, content)
    said = facts("inspect", file, "--module", program, "--target", "trn2", "--lnc", 2)
    assert said["seconds"] == 0.017
    assert said["summary"] == {"0": summary}
    assert said["other"] == {"new_table": [{"a": 1}]}
    times = {item["name"]: item for item in said["layers"]}
    assert layers <= {*times}
    for hit, name in zip(found, names, strict=True):
        (op,) = [item for item in said["ops"] if item["name"] == name]
        assert op["seconds"] == pytest.approx(1.5e-6)
        assert op["bound"] > 0
        assert op["share"] == pytest.approx(op["bound"] / op["seconds"])
        if hit["layer"]:
            assert op["layer"] == hit["layer"]
    count = sum(hit["layer"] == min(layers) for hit in found)
    assert times[min(layers)]["seconds"] == pytest.approx(1.5e-6 * count)
    assert times["not in the program"]["seconds"] == pytest.approx(7e-9)
    assert times["not in the program"]["bound"] is None
    # The bounds of all layers are those of `cost`.
    cost = facts("cost", program, "--target", "trn2", "--lnc", 2)
    assert 0 < times[min(layers)]["bound"] <= sum(row["seconds"] for row in cost["programs"])
    text = done("inspect", file, "--module", program, "--target", "trn2").stdout
    assert "of the time" in text
    assert "slowest ops" in text
    # Without the module there are times alone.
    assert all(item["bound"] is None for item in facts("inspect", file)["ops"])


def test_a_summary_keeps_every_metric(tmp_path: Path):
    metrics = {"total_time": 0.003, "mfu_estimated_percent": 0.06, "unheard_of": [1]}
    said = facts("inspect", written(tmp_path, {"n_12": metrics}, "summary.json"))
    assert said["summary"] == {"n_12": metrics}
    assert said["layers"] == []
    assert "mfu_estimated_percent 0.06" in done("inspect", tmp_path / "summary.json").stdout


def test_engines_side_by_side_are_counted_once():
    times = [(0, 10), (5, 12), (20, 21), (20, 25), (22, 23)]
    items = [DeviceInstruction("", "", "", start, end) for start, end in times]
    assert busy(items) == 17
    assert busy([]) == 0


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("profile.json", "{", "cannot read"),
        ("profile.json", '{"summary": [1]}', "has a summary that is not an object"),
        ("profile.json", '{"summary": [], "instruction": [{"duration": 1}]}', "instruction 0 with"),
        ("profile.json", '{"summary": [], "instruction": 3}', "instruction that is not a list"),
        ("x.ntff", "NTFF", "is an NTFF trace, whose form is not read here"),
        ("Summary.parquet", "PAR1", "is a Parquet table, whose form is not read here"),
    ],
)
def test_files_that_are_no_profiles_are_clear_errors(
    name: str, text: str, what: str, tmp_path: Path
):
    (tmp_path / name).write_text(text)
    said = error("inspect", tmp_path / name)
    assert "GG0705" in said
    assert what in said
    if "form is not read" in what:
        # Neither has a public form: the tool that made them writes one.
        assert "convert it: neuron-profile view" in said
        assert "--output-format json" in said


def test_a_module_beside_another_file_is_refused(program: Path):
    assert "is not a profile" in error("inspect", program, "--module", program)
