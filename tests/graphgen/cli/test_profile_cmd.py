"""graphgen profile: recordings and own runs beside bounds, as tables, JSON and pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.graphgen.cli.conftest import ROOT, done, error, facts
from tests.graphgen.cli.test_explore_cmd import DETAIL, LOOP, opened
from tests.oracles.html_data import columns, head, tables

RECORDED = ROOT / "docs/examples/recurrent.xplane.pb.gz"
TRACED = ROOT / "docs/examples/recurrent.trace.json.gz"
RATES = ("--rates", "100e9,20e9")
SMALL = """HloModule small

ENTRY main {
  x = f32[8,16] parameter(0)
  w = f32[16,16] parameter(1)
  d = f32[8,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[8,16] tanh(d)
}
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / "small.hlo"
    file.write_text(SMALL)
    return file


def test_ops_are_sorted_by_the_time_that_they_lose():
    said = facts("profile", RECORDED, *RATES)
    assert (said["program"], said["alone"], len(said["runs"])) == ("jit_forward(24)", False, 2)
    assert said["rates"] == {"flops": 100e9, "bandwidth": 20e9, "source": "--rates"}
    lost = [op["lost"] for op in said["ops"]]
    assert lost == sorted(lost, reverse=True)
    ops = {op["name"]: op for op in said["ops"]}
    first = said["ops"][0]
    assert (first["name"], first["opcode"]) == ("ynn_fusion.3", "fusion")
    assert (first["layer"], first["line"]) == ("jit(forward)/reduce_max", "recurrent.py:19")
    # Products of 64 rows and 96 columns with 256 words, their maximum and what follows.
    assert 2 * 64 * 96 * 256 <= first["flops"] <= 2.2 * 64 * 96 * 256
    assert first["bound"] == pytest.approx(first["flops"] / 100e9)
    assert first["lost"] == pytest.approx(first["seconds"] - first["bound"])
    assert ops["add_tanh_fusion"]["times"] == 16
    assert ops["while.6"]["bound"] == 0
    assert ops["while.6"]["inside"] > 5 * ops["while.6"]["seconds"]
    assert ops["copy.4"]["opcode"] == "copy"
    assert said["ops_seconds"] == pytest.approx(sum(op["seconds"] for op in said["ops"]))
    assert sum(said["runs"]) / 2 == pytest.approx(said["seconds"])


def test_the_table_is_read_from_above():
    lines = done("profile", RECORDED, *RATES, "--top", 3).stdout.splitlines()
    assert lines[0].startswith("@jit_forward(24), xplane.pb of a profiler: 2 runs of ")
    assert lines[2] == "  bounds at 100.00 GFLOP/s and 20.00 GB/s (--rates)"
    assert lines[5].split()[:2] == ["op", "times"]
    assert lines[6].split()[0] == "ynn_fusion.3"
    assert lines[-1].startswith("12 more ops: ")


def test_a_trace_has_bounds_of_the_module_that_is_named(tmp_path: Path):
    result = done("profile", TRACED)
    assert "the recording has no module of the program; --module names it" in result.stderr
    assert "no bounds: the recording states no rates" in result.stderr
    module = tmp_path / "forward.pb"
    from graphgen.lowering.profiles.open_profile import read_recording

    module.write_bytes(read_recording(RECORDED).modules["jit_forward(24)"])
    one = facts("profile", TRACED, "--module", module, *RATES)
    other = facts("profile", RECORDED, *RATES)
    assert [op["name"] for op in one["ops"]] == [op["name"] for op in other["ops"]]
    assert [op["bound"] for op in one["ops"]] == [op["bound"] for op in other["ops"]]
    assert facts("inspect", TRACED)["program"] == "jit_forward"


def test_own_runs_have_thunks_of_xla_or_each_op_alone(module: Path):
    said = facts("profile", module, "--repeats", 2, *RATES)
    assert (said["alone"], len(said["runs"])) == (False, 2)
    assert sum(op["flops"] for op in said["ops"]) >= 2 * 8 * 16 * 16
    alone = facts("profile", module, "--on", "numpy", "--repeats", 2, *RATES)
    assert (alone["alone"], len(alone["runs"])) == (True, 2)
    assert [op["name"] for op in sorted(alone["ops"], key=lambda op: op["name"])] == ["d", "t"]
    assert all(op["times"] == 1 for op in alone["ops"])
    shown = done("profile", module, "--on", "numpy", "--repeats", 1, *RATES).stdout
    assert "ops alone, one after the other: " in shown
    assert " alone " in shown


def test_a_file_is_measured_as_it_stands_and_its_lines_are_named(tmp_path: Path):
    file = tmp_path / "wide.mlir"
    text = """\
module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(
      %x: tensor<64x64xf32> {mhlo.sharding = "{devices=[2,1]<=[2]}"}) -> tensor<64x64xf32> {
    %0 = stablehlo.tanh %x : tensor<64x64xf32>
    %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %2 = stablehlo.dot %0, %1 : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    return %2 : tensor<64x64xf32>
  }
}
"""
    file.write_text(text)
    found = done("profile", file, "--repeats", 2, *RATES)
    assert "note: compiled: the file\n" in found.stderr
    assert "4 runs on 2 devices" in found.stdout
    plain = text.replace("num_partitions = 2", "num_partitions = 1")
    file.write_text(plain.replace(' {mhlo.sharding = "{devices=[2,1]<=[2]}"}', ""))
    found = done("profile", file, "--repeats", 2, *RATES)
    assert "2 runs of" in found.stdout
    assert f"{file}:4" in found.stdout
    again = done("profile", file, "--repeats", 1, "--on", "numpy", *RATES)
    assert "compiled" not in again.stderr


def test_loops_and_calls_run_alone_too(tmp_path: Path):
    file = tmp_path / "loop.hlo"
    file.write_text(
        LOOP.replace("num_partitions=4", "num_partitions=1")
        .replace("replica_groups=[2,2]<=[2,2]T(1,0)", "replica_groups={{0}}")
        .replace("source_target_pairs={{0,1},{1,2},{2,3},{3,0}}", "source_target_pairs={{0,0}}")
        .replace(", sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}", "")
    )
    said = facts("profile", file, "--on", "numpy", "--repeats", 1, *RATES)
    ops = {op["name"]: op for op in said["ops"]}
    assert ops["j"]["times"] == 3
    assert ops["r.1"]["times"] == 4
    assert {"u", "v", "o"} & ops.keys()


def neuron(folder: Path) -> Path:
    file = folder / "profile.json"
    rows: list[dict[str, Any]] = [
        {"timestamp": 10, "duration": 100, "hlo_name": "%d = dot(%x, %w)", "engine": "tensor"},
        {"timestamp": 60, "duration": 100, "hlo_name": "%d = dot(%x, %w)", "engine": "dma"},
        {"timestamp": 200, "duration": 40, "hlo_name": "%t = tanh(%d)", "engine": "vector"},
        {"timestamp": 240, "duration": 10, "hlo_name": ""},
    ]
    file.write_text(json.dumps({"summary": [{"total_time": 1e-6}], "instruction": rows}))
    return file


def test_a_profile_of_a_neuron_device(module: Path, tmp_path: Path):
    said = facts("profile", neuron(tmp_path), "--module", module, "--target", "trn2")
    assert said["kind"] == "profile of a Neuron device"
    ops = {op["name"]: op for op in said["ops"]}
    # Engines work side by side: what two of them do at once counts once.
    assert ops["d"]["seconds"] == pytest.approx(150e-9)
    assert ops["t"]["seconds"] == pytest.approx(40e-9)
    assert ops["no HLO instruction"]["bound"] is None
    assert said["rates"] == {"target": "trn2", "lnc": 2}
    (tmp_path / "s.json").write_text('{"n": {"total_time": 1.0}}')
    assert "has metrics, and no instructions" in error("profile", tmp_path / "s.json")


def test_the_page_has_the_times_in_columns(tmp_path: Path):
    out = tmp_path / "p.html"
    done("profile", RECORDED, *RATES, "--html", out)
    (module,) = head(out)["modules"]
    measured = facts("profile", RECORDED, *RATES)
    assert module["measured"]["seconds"] == pytest.approx(measured["seconds"])
    column = columns(out, "columns-0", module["columns"])
    names = tables(out)["names"].split("\n")
    held = tables(out)
    first = {}
    at = 0
    for row in held["functions"]:
        value = row["value"] + row["args"]
        for op in range(row["op"], row["op"] + row["ops"]):
            first[names[value]] = op
            value += column["results"][op]
            at += 1
    ops = {op["name"]: op for op in measured["ops"]}
    for name in ("ynn_fusion.3", "add_tanh_fusion"):
        assert column["took"][first[name]] == pytest.approx(ops[name]["seconds"])
        assert column["least"][first[name]] == pytest.approx(ops[name]["bound"])
        assert column["ran"][first[name]] == ops[name]["times"]
    assert sum(took for took in column["took"] if took > 0) <= measured["ops_seconds"] * 1.0001


def test_explore_and_inspect_take_a_recording(tmp_path: Path, module: Path):
    from graphgen.lowering.profiles.open_profile import read_recording

    file, one, two = tmp_path / "f.pb", tmp_path / "one.html", tmp_path / "two.html"
    file.write_bytes(read_recording(RECORDED).modules["jit_forward(24)"])
    done("explore", file, "--profile", RECORDED, *RATES, "-o", one)
    done("inspect", file, "--profile", RECORDED, "--html", two)
    for page in (one, two):
        (row,) = head(page)["modules"]
        took = columns(page, "columns-0", row["columns"])["took"]
        assert sum(each > 0 for each in took) >= 12
    assert "measured" not in head_of(module, tmp_path / "plain.html")
    assert "no op of @small is in" in error("explore", module, "--profile", RECORDED)
    assert "--rates has no effect without --profile" in error("explore", module, *RATES)
    assert "--profile has no effect without --html" in error("inspect", module, "--profile", "x")


def head_of(module: Path, page: Path) -> Any:
    done("explore", module, "-o", page)
    return head(page)["modules"][0]


def test_mistakes(module: Path, tmp_path: Path):
    assert error("profile", tmp_path).startswith("error[GG0705]: no recording is in the folder")
    assert error("profile", RECORDED, "--program", "nope").startswith("error[GG0202]: no program")
    assert "is not FLOPS,BYTES or here" in error("profile", RECORDED, "--rates", "fast")
    assert "is not FLOPS,BYTES or here" in error("profile", RECORDED, "--rates", "1e9,nan")
    said = error("profile", RECORDED, "--rates", "1,1", "--target", "trn2")
    assert "--rates and --target both state the rates" in said
    assert "--module has no effect" in error("profile", module, "--module", module)
    assert "--html needs the module" in error("profile", TRACED, "--html", tmp_path / "x.html")
    assert "GG0704" in error("profile", RECORDED, "--html", tmp_path / "no" / "x.html")


def test_the_page_is_coloured_by_time_and_lists_what_loses(tmp_path: Path):
    out = tmp_path / "p.html"
    done("profile", RECORDED, *RATES, "--html", out)
    page = opened(out, tmp_path / "profile")
    try:
        page.go("color=lost&op=ynn_fusion.3")
        state = page.state()
        assert (state["selected"], state["rule"]) == ("ynn_fusion.3", "lost")
        text = page.run(DETAIL)
        for words in ("measured", "438.38 us, 61.6 % of a run", "bound", "31.95 us", "406.43 us"):
            assert words in text
        assert "above the bounds" in page.run("document.querySelector('#legend').innerText")
        fill = (
            "(() => {{ const unit = panes[0].drawn.units.find((each) => labelOf(each) === '{}');"
            " return fillOf(unit, panes[0].rule, panes[0].whole); }})()"
        )
        slow, quick = (page.run(fill.format(name)) for name in ("ynn_fusion.3", "ynn_fusion.2"))
        assert slow != quick
        # A loop has the time of its body, which is in the loop's own lines.
        page.go("color=time&op=while.6.0")
        assert "of that itself" in page.run(DETAIL)
        page.go("op=add_tanh_fusion")
        assert "16 times a run" in page.run(DETAIL)
        page.go("view=tables")
        rows = page.run(
            "[...document.querySelectorAll('#tables h3')]"
            ".find((each) => each.innerText === 'Measured times').parentNode.innerText"
        )
        assert rows.index("%ynn_fusion.3") < rows.index("%add_tanh_fusion")
        page.go("")
        for _ in range(4):
            page.key("c")
        assert page.state()["rule"] == "lost"
        assert page.complaints == []
    finally:
        page.close()


def test_a_page_without_times_has_no_colours_of_them(module: Path, tmp_path: Path):
    done("explore", module, "-o", tmp_path / "p.html")
    page = opened(tmp_path / "p.html", tmp_path / "profile")
    try:
        page.go("color=time")
        assert page.state()["rule"] == "kind"
        known = "[...document.querySelectorAll('#rules option')].map((each) => each.value)"
        assert not {"time", "lost"} & {*page.run(known)}
    finally:
        page.close()


def test_a_permute_is_drawn_with_the_ranks_that_it_leaves_out(tmp_path: Path):
    file = tmp_path / "p.hlo"
    file.write_text(
        "HloModule p, num_partitions=4\n\nENTRY main {\n  x = f32[4] parameter(0)\n"
        "  ROOT y = f32[4] collective-permute(x), source_target_pairs={{0,1},{1,2}}, "
        "channel_id=1\n}\n"
    )
    done("explore", file, "-o", tmp_path / "p.html")
    page = opened(tmp_path / "p.html", tmp_path / "profile")
    try:
        page.go("op=y")
        assert "2 transfers, on 4 ranks" in page.run(DETAIL)
        assert page.run("document.querySelectorAll('#detail .mesh .rank').length") == 4
    finally:
        page.close()
