"""graphgen inspect, of programs and of files other than modules."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from graphgen.cli.inspect_cmd import LARGE
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.report.units import folded, groups, number, size, spans
from tests.graphgen.cli.conftest import done, error, facts
from tests.lowering.hlo.test_unmodelled import OTHERS, REGIONS
from tests.oracles.hlo_texts import SUM
from tests.oracles.small_gguf import write_small_model
from tests.runtime.artifact.test_artifact_folder import start

KERNEL = "eyJmdW5jX25hbWUiOiAiYWRkIiwgImdyaWQiOiBbMl19"  # {"func_name": "add", "grid": [2]}
CALLS = f"""
HloModule step, input_output_alias={{ {{1}}: (2, {{}}, must-alias) }}

ENTRY %main (x: f32[8], w: f32[64,8], cache: f32[8]) -> (f32[8], f32[8], f32[64]) {{
  %x = f32[8] parameter(0)
  %w = f32[64,8] parameter(1)
  %cache = f32[8] parameter(2)
  %y = f32[64] dot(%w, %x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, \
metadata={{op_name="layers/0/mlp" source_file="net.py" source_line=7}}
  %n = f32[8] custom-call(%x, %cache), custom_call_target="AwsNeuronCustomNativeKernel", \
backend_config="{KERNEL}", api_version=API_VERSION_UNSPECIFIED, \
metadata={{op_name="layers/1/norm" source_file="net.py" source_line=9}}
  %new = f32[8] add(%cache, %n), metadata={{op_name="layers/1/add" source_file="net.py" \
source_line=10}}
  ROOT %out = (f32[8], f32[8], f32[64]) tuple(%n, %new, %y)
}}
"""


@pytest.fixture
def step(tmp_path: Path) -> Path:
    path = tmp_path / "step.pb"
    path.write_bytes(parse_hlo_text(CALLS))
    return path


def test_the_first_screen(step: Path):
    text = done("inspect", step).stdout
    rows = [line.split() for line in text.splitlines()]
    lines = [" ".join(row) for row in rows]
    assert ["caches", "1", "32", "B", "cache"] in rows
    assert ["outputs", "3", "1", "kept", "in", "place"] in rows
    assert ["1", "cache", "f32[8]", "32", "B", "argument", "2", "add", "net.py:10"] in rows
    assert ["layers.0", "1", "1", "1024", "2.34", "kB", "0", "B"] in rows
    assert ("%w 2.05 kB f32[64,8] argument layers.0 read at net.py:7") in lines
    assert ["%y", "256", "B", "f32[64]", "dot_general", "layers.0", "net.py:7"] in rows
    assert ("AwsNeuronCustomNativeKernel 1 kernel add, grid 2 net.py:9") in lines


def test_bytes_of_symbolic_shapes_stand_in_a_column_of_their_own(mini: Path):
    lines = done("inspect", mini, "--program", "prefill").stdout.splitlines()
    parts = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert "  8*B+8*B*S bytes  tokens, positions," in parts["inputs"]
    assert " bytes    model.layers.{0,1}.self_attn.k_cache" in parts["caches"]
    names = [parts["inputs"].index("tokens"), parts["weights"].index("model.")]
    assert names == [parts["caches"].index("model.")] * 2


def test_everything_as_json(step: Path):
    found = facts("inspect", step)
    (program,) = found["programs"]
    assert program["custom_calls"] == [
        {
            "target": "AwsNeuronCustomNativeKernel",
            "count": 1,
            "configuration": {"kernel": "add", "grid": [2]},
            "first_at": "net.py:9",
        }
    ]
    assert program["largest"][0] == {
        "name": "w",
        "type": "f32[64,8]",
        "bytes": 2048,
        "op": None,
        "layer": "layers.0",
        "where": "net.py:7",
        "scope": "layers.0.mlp",
        "where_is_of_a_reader": True,
    }
    assert [(o["name"], o["takes_over"], o["argument"]) for o in program["outputs"]] == [
        ("output0", None, None), ("cache", 2, "cache"), ("output2", None, None)
    ]  # fmt: skip


@pytest.mark.parametrize("wanted", ["1", "cache"])
def test_one_output(step: Path, wanted: str):
    text = done("inspect", step, "--result", wanted).stdout
    assert text == (
        "@main, output 1 of 3: cache\n"
        "  type        f32[8], 32 B\n"
        "  takes over  argument 2, %cache: updated in place\n"
        "  made by     add %new net.py:10\n"
        "  layer       layers.1\n"
    )
    (found,) = facts("inspect", step, "--result", wanted)
    assert (found["program"], found["index"], found["takes_over"]) == ("main", 1, 2)


def test_an_output_that_is_not_there(step: Path):
    text = error("inspect", step, "--result", "7")
    assert text.startswith("error[GG0705]: @main has no output '7'\n")
    assert "it has 0 to 2: output{0,2}, cache" in text


def test_outputs_alike_are_one_row(mini: Path):
    text = done("inspect", mini, "--program", "decode").stdout
    assert "model.layers.{0,1}.self_attn.k_cache" in text
    assert text.count("k_cache") == 2  # among the caches, and among the outputs


def test_what_has_no_op_is_told(tmp_path: Path):
    path = tmp_path / "others.hlo"
    path.write_text(OTHERS)
    text = done("inspect", path).stdout
    assert "kept as they are, for want of an op: " in text
    assert "opt-barrier 1" in text


ONE_BIT = """
HloModule odd
ENTRY %main (x: u1[4]) -> u1[4] {
  %x = u1[4] parameter(0)
  ROOT %y = u1[4] not(%x)
}
"""


def test_what_no_graph_can_be_built_of_is_summarized(tmp_path: Path):
    path = tmp_path / "odd.pb"
    path.write_bytes(parse_hlo_text(ONE_BIT))
    result = done("inspect", path)
    assert "no graph can be built of this file, so it is only summarized" in result.stderr
    assert "1 computations, 2 instructions" in result.stdout


def test_the_summary(step: Path):
    text = done("inspect", step, "--summary").stdout
    assert "calls       AwsNeuronCustomNativeKernel 1" in text
    assert ["2", "cache", "f32[8]{0}", "32", "B", "by", "an", "output"] in [
        line.split() for line in text.splitlines()
    ]
    assert facts("inspect", step, "--summary")["opcodes"]["custom-call"] == 1


def test_a_large_file_is_summarized_by_itself(step: Path, monkeypatch: pytest.MonkeyPatch):
    assert LARGE > 1 << 20
    monkeypatch.setattr("graphgen.cli.inspect_cmd.LARGE", 10)
    assert "highest id" in done("inspect", step).stdout


def test_a_folder_without_a_file_of_its_index_says_so(tmp_path: Path):
    names = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / names[0])
    index = {"weight_map": dict(zip("wvu", names, strict=True))}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    shown = done("inspect", tmp_path)
    assert shown.stdout.startswith("safetensors: 1 tensors")
    assert f"incomplete: the index names {names[1]} and 1 more, not in the folder" in shown.stderr
    save_file({"v": np.zeros(2, np.float32)}, tmp_path / names[1])
    save_file({"u": np.zeros(2, np.float32)}, tmp_path / names[2])
    assert done("inspect", tmp_path).stderr == ""


def test_a_safetensors_file_and_a_folder_of_them(tmp_path: Path):
    arrays = {f"layers.{i}.w": np.zeros((4, 2), np.float32) for i in range(3)}
    save_file(arrays, tmp_path / "a-00001-of-2.safetensors", {"format": "pt"})
    save_file({"head": np.zeros(5, np.float16)}, tmp_path / "a-00002-of-2.safetensors")
    alone = done("inspect", tmp_path / "a-00001-of-2.safetensors").stdout
    assert alone.startswith("safetensors: 3 tensors, 96 B, 96 B of F32\n  format: pt\n")
    assert "layers.{0..2}.w      3        32 B  F32[4, 2]" in alone
    both = facts("inspect", tmp_path)
    assert (both["kind"], both["bytes"], len(both["tensors"])) == ("safetensors", 106, 4)
    assert both["tensors"][-1] == {
        "name": "head", "shape": [5], "type": "F16", "nbytes": 10,
        "file": "a-00002-of-2.safetensors",
    }  # fmt: skip


def test_a_folder_of_pytorch_files(tmp_path: Path):
    weight = torch.ones(4, 2)
    torch.save({"a.0.w": weight, "a.1.w": weight}, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save({"head": torch.ones(5).half()}, tmp_path / "pytorch_model-00002-of-00002.bin")
    torch.save({"epoch": 3}, tmp_path / "training_args.bin")
    both = facts("inspect", tmp_path)
    assert (both["kind"], both["bytes"], len(both["tensors"])) == ("PyTorch", 74, 3)
    assert both["tensors"][-1] == {
        "name": "head", "shape": [5], "type": "float16", "nbytes": 10,
        "file": "pytorch_model-00002-of-00002.bin",
    }  # fmt: skip
    alone = done("inspect", tmp_path / "pytorch_model-00001-of-00002.bin").stdout
    assert alone.startswith("PyTorch: 2 tensors, 64 B, 64 B of float32\n")
    assert "  tensors that share bytes with others: 1\n" in alone
    assert "a.{0,1}.w      2        32 B  float32[4, 2]" in alone
    assert "'epoch' is not a tensor but of type int" in error(
        "inspect", tmp_path / "training_args.bin"
    )


def test_a_damaged_checkpoint(tmp_path: Path):
    path = tmp_path / "w.safetensors"
    header = json.dumps({"w": {"dtype": "F32"}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    assert error("inspect", path).startswith(
        "error[GG0601]: tensor 'w' is not described as it should be\n"
    )


def test_a_gguf_file_and_an_artifact(tmp_path: Path):
    model = tmp_path / "small.gguf"
    write_small_model(model)
    text = done("inspect", model).stdout
    assert text.startswith("GGUF: ")
    assert "blk.{0,1}.attn_q.weight" in text
    start(model, tmp_path / "artifact")
    text = done("inspect", tmp_path / "artifact").stdout
    assert text.startswith("artifact of graphgen, from checkpoint ")
    assert "(decode)" in text
    found = facts("inspect", tmp_path / "artifact")
    assert found["kind"] == "artifact"
    assert found["settings"]["max_len"] == 64
    assert {program["phase"] for program in found["programs"]} == {"prefill", "decode"}


def test_a_neff(tmp_path: Path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        item = tarfile.TarInfo("info.json")
        item.size = 3
        archive.addfile(item, io.BytesIO(b"xyz"))
    path = tmp_path / "model.neff"
    path.write_bytes(b"\2\0neuronx-cc 2.27\0".ljust(1024, b"\0") + packed.getvalue())
    assert "says neuronx-cc 2.27" in done("inspect", path).stdout
    assert facts("inspect", path)["members"] == [{"name": "info.json", "nbytes": 3}]


def test_a_cache_and_a_work_folder(step: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    for key, last in (("MODULE_12+d41d8cd9", "model.done"), ("MODULE_34+0a1b2c3d", "model.log")):
        folder = cache / "neuronxcc-2.27" / key
        folder.mkdir(parents=True)
        shutil.copy(step, folder / "model.hlo_module.pb")
        (folder / last).touch()
    text = done("inspect", cache).stdout
    assert text.startswith("compiler cache: 2 programs\n")
    assert ["MODULE_34+0a1b2c3d", "failed", "model.hlo_module.pb"] in [
        line.split()[:3] for line in text.splitlines()
    ]
    assert [item["state"] for item in facts("inspect", cache)["programs"]] == ["done", "failed"]
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(step, work / "hlo_module.pb")
    assert done("inspect", work).stdout == done("inspect", step).stdout


def test_what_is_nothing_known(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    assert error("inspect", tmp_path / "empty").startswith("error[GG0802]")
    assert error("inspect", tmp_path / "none.pb").startswith("error[GG0705]: cannot read")


def test_units():
    assert [size(n) for n in (0, 999, 1000, 2_500_000, 10**12)] == [
        "0 B", "999 B", "1.00 kB", "2.50 MB", "1000.00 GB"
    ]  # fmt: skip
    assert [number(n) for n in (999_999, 10**6, 3 * 10**12)] == ["999999", "1.00 M", "3.00 T"]
    assert [spans(n) for n in ([1], [1, 5], [0, 1, 2], [1, 3, 5], [1, 2, 7])] == [
        "1", "1,5", "0..2", "1,3..5", "1,2..7 (3)"
    ]  # fmt: skip
    names = ["a.0.k1", "b", "a.1.k1", "a.2.k1"]
    assert [folded(group) for group in groups(names)] == ["a.{0..2}.k1", "b"]


def test_groups_and_what_is_inside_of_loops(tmp_path: Path):
    path = tmp_path / "r.hlo"
    path.write_text(REGIONS)
    text = done("inspect", path).stdout
    assert "inside      select-and-scatter: compare 1, subtract 1" in text
    assert "inside      while body @body, 3 turns: constant 2, add 1, reduce_window 1" in text
    (program,) = facts("inspect", path)["programs"]
    assert program["inside_opaque"] == {"select-and-scatter": {"compare": 1, "subtract": 1}}
    assert program["bodies"][2] == {
        "op": "conditional branch 0",
        "name": "yes",
        "turns": None,
        "histogram": {"negate": 1},
    }
    groups = "{{" + ",".join(map(str, range(16))) + "}}"
    path.write_text(SUM.replace("{{0,1}}", groups))
    assert "[0..15]" in done("inspect", path).stdout
    path.write_text(SUM.replace("{{0,1}}", "{{0,2},{1,3},{4,6},{5,7},{8,9}}"))
    assert "[0,2] [1,3] [4,6] [5,7] ... (5 groups)" in done("inspect", path).stdout


def test_a_folder_of_dumps(step: Path, tmp_path: Path):
    folder = tmp_path / "dumps"
    (folder / "more").mkdir(parents=True)
    shutil.copy(step, folder / "a.pb")
    (folder / "more" / "b.txt").write_text(CALLS)
    (folder / "c.pb").write_bytes(step.read_bytes()[:200])
    (folder / "notes.md").write_text("no module")
    lines = [" ".join(line.split()) for line in done("inspect", folder).stdout.splitlines()]
    assert lines[0] == "folder of dumps: 3 modules"
    assert any(
        line.startswith("a.pb HLO protobuf") and line.endswith("step 7 3 1 3") for line in lines
    )
    assert any(line.startswith("c.pb HLO protobuf 200 B damaged: ") for line in lines)
    assert any(line.startswith("more/b.txt HLO text") for line in lines)
    found = facts("inspect", folder)
    assert [item["form"] for item in found["modules"]] == ["HLO protobuf"] * 2 + ["HLO text"]
