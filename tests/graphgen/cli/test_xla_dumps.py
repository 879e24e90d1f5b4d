"""XLA's dump folders on the command line: programs, passes, memory, and files about these."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import ROOT, done, error, facts, graphgen
from tests.oracles import xla_dump

STEM = f"{xla_dump.NAME}.cpu_after_optimizations"


def refused(*words: object) -> str:
    """The error of ``diff``, whose status 1 is an answer."""
    result = graphgen("diff", *words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return xla_dump.write_dump(tmp_path / "d")


def test_a_folder_lists_programs_not_files(folder: Path):
    said = done("inspect", folder).stdout
    assert said.startswith("XLA dump: 3 programs\n")
    (row,) = [line for line in said.splitlines() if line.startswith(xla_dump.NAME)]
    assert row.split() == [xla_dump.NAME, "7", "8", "2", "1", "1", "3.07", "kB", "3"]
    assert "2 small programs of a few ops: jit_convert_element_type" in said
    assert f"graphgen diff {folder} --program {xla_dump.NAME}" in said
    assert f"graphgen memory {folder / STEM}.txt" in said
    assert "of no program: 1 unknown (notes.txt)" in said
    assert "damaged" not in said
    told = facts("inspect", folder)
    assert told["other_files"] == {"unknown": ["notes.txt"]}
    assert told["programs"][2]["files"]["pass"][0].endswith("before_algsimp.txt")


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (
            "cpu_after_optimizations-buffer-assignment.txt",
            "buffer assignment: 3 allocations, 3.07 kB (3,072 B)",
        ),
        ("cpu_after_optimizations-live-range.txt", "live ranges: 4.10 kB (4,096 B) at 3, f"),
        (
            "cpu_after_optimizations-memory-usage-report.txt",
            "memory usage report: 3.07 kB (3,072 B)",
        ),
        ("cpu_after_optimizations-buffer-assignment-values.txt", "used values: 3.07 kB (3,072 B)"),
        ("debug_options", "debug options: 3 that are not by default"),
        ("kernel.ir-with-opt.ll", "LLVM IR"),
        ("obj-file.kernel.o", "object file"),
        ("sm_8.0_gpu.thunk_sequence.txt", "thunk sequence: 2 thunks"),
    ],
)
def test_files_without_a_module_are_described(folder: Path, ending: str, said: str):
    file = folder / f"{xla_dump.NAME}.{ending}"
    assert said in done("inspect", file).stdout
    assert facts("inspect", file)["kind"] in done("inspect", file).stdout


def test_live_ranges_have_the_layers_of_the_module_beside(folder: Path):
    told = facts("inspect", folder / f"{STEM}-live-range.txt")
    layers = {row["name"]: row["layer"] for row in told["buffers"]}
    assert layers == {
        "d": "jit(step)/dot",
        "f": "jit(step)/sub",
        "w": "jit(step)/w",
        "x": "jit(step)/x",
    }


def test_a_module_has_the_memory_that_xla_assigned_beside_its_own(folder: Path):
    said = done("inspect", folder / f"{STEM}.txt").stdout
    assert said.startswith("XLA assigned 3.07 kB in 3 allocations; graphgen memory says to what\n")
    assert "live " in said
    assert facts("inspect", folder / f"{STEM}.txt")["xla_bytes"] == 3072


def test_an_unknown_text_lists_the_known_kinds(folder: Path):
    said = error("inspect", folder / "notes.txt")
    assert "buffer assignment, live ranges" in said
    assert "graphgen build" not in said


def test_passes_of_a_program(folder: Path):
    said = done("diff", folder).stdout
    assert said.startswith(f"{xla_dump.NAME}: 5 records, 2 with changes")
    told = facts("diff", folder, "--program", "jit_step")
    assert [row["pass"] for row in told["passes"]] == ["algsimp", "fusion"]
    assert told["passes"][0]["removed"] == ["n", "m"]
    assert "fuses t into f" in done("diff", folder, "--op", "%t").stdout
    assert facts("diff", folder, "--op", "m")["passes"] == [
        {"pass": "algsimp", "pipeline": "simplification", "what": "removes m"}
    ]
    assert "is the same in all records" in done("diff", folder, "--op", "w").stdout
    assert refused(folder, "--op", "nothing").startswith("error[GG0202]: no op %nothing")


def test_what_a_folder_needs_is_said(folder: Path, tmp_path: Path):
    said = refused(tmp_path)
    assert said.startswith("error[GG0802]: this folder has no modules named as XLA names them")
    assert "--xla_dump_hlo_pass_re=.*" in said
    file = folder / f"{STEM}.txt"
    assert refused(file).startswith("error[GG0705]: B is missing")
    assert refused(file, file, "--op", "t").startswith("error[GG0705]: --op is of a dump")
    assert "leaves nothing to compare" in refused(folder, "--program", "module_0001")


def test_memory_of_a_program(folder: Path):
    said = done("memory", folder).stdout
    assert "jit_step: 3.07 kB (3,072 B) reserved" in said
    assert "XLA's peak   4.10 kB (4,096 B) live at 3: f" in said
    assert "donated      1.02 kB: outputs take the buffers of w" in said
    told = facts("memory", folder / f"{STEM}.txt", "--fit", "2KiB")
    assert (told["bytes"], told["computed_bytes"], told["xla_bytes"]) == (3072, 3072, 3072)
    assert told["by_kind"] == {"parameter": 2048, "temp": 1024}
    assert told["peak"]["bytes"] == 3072
    assert [row["name"] for row in told["fit"]["to_go"]] == ["d"]
    assert told["fit"]["fits"]
    assert told["live"] == [2048, 2048, 3072, 3072]
    assert [row["name"] for row in facts("memory", folder, "--at", 0)["peak"]["buffers"]] == [
        "w",
        "x",
    ]
    assert error("memory", folder, "--at", 4).startswith("error[GG0705]: --at: the program has the")
    assert error("memory", folder, "--fit", "2XB").startswith("error[GG0705]: --fit: '2XB'")


def questions() -> list[list[str]]:
    """The rows of the guide: question, command and answer."""
    text = (ROOT / "docs/xla-dumps.md").read_text()
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if "`graphgen " in line]
    return [row for row in rows if len(row) == 3]


def test_the_guide_has_its_questions():
    assert len(questions()) >= 20


@pytest.mark.parametrize(
    ("command", "answer"), [row[1:] for row in questions()], ids=[row[0] for row in questions()]
)
def test_each_question_of_the_guide_takes_one_command(folder: Path, command: str, answer: str):
    words = command.strip(" `").removeprefix("graphgen ").split()
    stem = str(folder / xla_dump.NAME)
    words = [str(folder) if w == "dump" else w.replace("STEP", stem) for w in words]
    assert answer.strip(" `") in done(*words).stdout


def test_memory_of_a_module_without_a_schedule(tmp_path: Path):
    file = tmp_path / "m.mlir"
    file.write_text(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %0 = stablehlo.negate %x : tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n"
    )
    result = graphgen("memory", file, "--json")
    assert result.exit_code == 0, result.stderr
    assert "states no schedule" in result.stderr
    told = facts("memory", file)
    assert (told["bytes"], told["scheduled"], told["xla_bytes"]) == (32, False, None)


def test_a_plain_folder_counts_texts_and_names_what_holds_no_module(tmp_path: Path):
    (tmp_path / "a.txt").write_text(xla_dump.AFTER)
    (tmp_path / "b.mlir").write_text("func.func @main() { return }\n")
    (tmp_path / "c.pb").write_bytes(b"\x0a\x03\x00\x01\x02\x10\x01")
    rows = {row["file"]: row for row in facts("inspect", tmp_path)["modules"]}
    assert rows["a.txt"]["instructions"] == 8
    assert rows["b.mlir"]["instructions"] == 0
    assert rows["c.pb"]["form"] == "protobuf"
