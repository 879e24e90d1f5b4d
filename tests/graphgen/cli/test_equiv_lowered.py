"""``graphgen equiv m.gg decode.pb``: lowered programs compared with the module they came from."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import graphgen as gg
from graphgen.lowering.lowered_module import open_lowered
from tests.graphgen.cli.conftest import done, error, facts, graphgen
from tests.test_first_time_user import SCANNED

F32 = gg.dtype("f32")


def gated(folder: Path, *more: str) -> Path:
    """A gated MLP, whose projections are fused and prepared, in one program or in two."""
    module = gg.Module("gated")
    for name in ("prefill", *more):
        with gg.Builder(module.add(gg.Function(name, phase=name)), module) as b:
            x = b.input("x", F32, (gg.symbol("B"), 1 if more else 4, 8))
            gate = b.silu(b.dot(x, b.weight("gate.weight", F32, (16, 8))))
            up = b.dot(x, b.weight("up.weight", F32, (16, 8)))
            b.output("y", b.dot(gate * up, b.weight("down.weight", F32, (8, 16))))
    path = folder / "gated.gg"
    path.write_text(gg.print_module(module), encoding="utf-8")
    return path


FORMS = {"hlo": "pb", "hlo-text": "hlo", "stablehlo": "mlir"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", ["cpu", "trn2"])
def test_equal_to_its_source(form: str, target: str, tmp_path: Path):
    source, lowered = gated(tmp_path), tmp_path / f"out.{FORMS[form]}"
    wrote = done("lower", source, "--to", form, "--target", target, "-o", lowered).stderr
    assert f"wrote {lowered}; {lowered}.gg is the module" in wrote
    beside = gg.parse(Path(f"{lowered}.gg").read_text(encoding="utf-8"))
    assert "gate-up.weight.prepared" in beside.interface
    assert beside.meta["lowered.target"] == target
    assert "fuse-projections" in beside.meta["lowered.passes"]
    found = done("equiv", source, lowered)
    assert found.stdout.startswith("equal: ")
    assert f"interface and weight preparation of {lowered} from {lowered}.gg" in found.stderr


def test_a_fault_in_the_file_is_named(tmp_path: Path):
    source, lowered = gated(tmp_path), tmp_path / "out.hlo"
    done("lower", source, "--to", "hlo-text", "-o", lowered)
    text = lowered.read_text(encoding="utf-8")
    faulty = re.sub(r"(= f32\[1,4,16\]\S*) multiply\(", r"\1 add(", text, count=1)
    assert faulty != text
    lowered.write_text(faulty, encoding="utf-8")
    result = graphgen("equiv", source, lowered)
    assert result.exit_code == 1
    head, blamed = result.stdout.split(f"{lowered} is not the program of {lowered}.gg; ")
    assert head.startswith("different: y of call 0")
    assert " = add(" in blamed.split(f"  {lowered}  ")[1].splitlines()[1]
    assert blamed.endswith("its operands agree\n")


def test_a_fault_of_the_passes_is_told_from_one_of_the_file(tmp_path: Path):
    source, lowered = gated(tmp_path), tmp_path / "out.hlo"
    wrong = tmp_path / "wrong.gg"
    wrong.write_text(source.read_text(encoding="utf-8").replace("silu", "tanh"), encoding="utf-8")
    done("lower", wrong, "--to", "hlo-text", "-o", lowered)
    result = graphgen("equiv", source, lowered)
    assert result.exit_code == 1
    blamed = f"{lowered} is the program of {lowered}.gg: the passes before it differ\n"
    assert result.stdout.endswith(blamed)


def test_all_programs_of_a_folder_over_two_ranks(tmp_path: Path):
    source, split, folder = gated(tmp_path, "decode"), tmp_path / "split.gg", tmp_path / "out"
    done("opt", source, "-p", "default{tp=2,batch=[1,2],target=trn2}", "-o", split)
    made = facts("lower", split, "--to", "hlo-text", "-o", f"{folder}/")
    assert made["lowered"] == str(folder / "lowered.gg")
    names = {program["program"] for program in made["programs"]}
    assert len(names) > 1
    assert set(open_lowered(folder).functions) >= names
    assert done("equiv", source, folder).stdout.startswith("equal: ")
    for program in made["programs"]:
        text = Path(program["file"]).read_text(encoding="utf-8")
        assert "all-reduce" in text
        assert done("equiv", source, program["file"]).stdout.startswith("equal: ")
    last = Path(made["programs"][-1]["file"])
    faulty = last.read_text(encoding="utf-8").replace("logistic(", "tanh(")
    last.write_text(faulty, encoding="utf-8")
    assert graphgen("equiv", source, folder).exit_code == 1


def test_functions_that_the_program_runs_are_replaced(tmp_path: Path):
    source, lowered = tmp_path / "scan.gg", tmp_path / "scan.hlo"
    source.write_text(SCANNED, encoding="utf-8")
    done("lower", source, "--to", "hlo-text", "-o", lowered)
    assert done("equiv", source, lowered).stdout.startswith("equal: ")
    text = lowered.read_text(encoding="utf-8")
    assert "constant(3)" in text
    lowered.write_text(text.replace("constant(3)", "constant(2)"), encoding="utf-8")
    assert graphgen("equiv", source, lowered).exit_code == 1


def test_files_that_do_not_belong_together(tmp_path: Path):
    source, lowered, moved = gated(tmp_path), tmp_path / "out.pb", tmp_path / "moved.pb"
    done("lower", source, "--to", "hlo", "-o", lowered)
    shutil.copy(lowered, moved)
    found = graphgen("equiv", source, moved)
    assert found.exit_code == 2
    assert f"there is no moved.pb.gg beside '{moved}'" in found.stderr
    assert (
        f"help: if graphgen lowered it, graphgen lower MODULE.gg --to hlo -o {moved} writes both"
        in found.stderr
    )
    other = tmp_path / "other.pb"
    done("lower", source, "--to", "hlo", "--dims", "B=2", "-o", other)
    shutil.copy(other, lowered)
    assert (
        "parameter 0 is f32[2,4,8], in the module %x f32[1,4,8]"
        in graphgen("equiv", source, lowered).stderr
    )


def test_nothing_is_written_beside_standard_output_or_devices(tmp_path: Path):
    source = gated(tmp_path)
    done("lower", source)
    done("lower", source, "-o", "/dev/null")
    assert {path.name for path in tmp_path.iterdir()} == {"gated.gg"}
    assert not Path("/dev/null.gg").exists()
    assert "GG0704" in error("lower", source, "-o", tmp_path / "none" / "out.mlir")
