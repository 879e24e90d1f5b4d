"""``graphgen lower``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphgen.text import parse
from tests.graphgen.cli.conftest import done, error, facts, graphgen


def results_of(text: str) -> list[str]:
    """The result types of the only function, which XLA's parser has accepted."""
    from jax.interpreters import mlir
    from jaxlib.mlir import ir

    with mlir.make_ir_context():
        module: Any = ir.Module.parse(text)
        (main,) = module.body.operations
        return [str(kind) for kind in main.attributes["function_type"].value.results]


def test_one_program_goes_to_standard_output(mini: Path):
    result = done("lower", mini, "--to", "stablehlo", "--program", "prefill")
    assert results_of(result.stdout)[-1] == "tensor<1x257xf32>"
    assert result.stderr == (
        "note: lowering for cpu: canonicalize,unfuse-projections,specialize{in_place=true},"
        "cache-as-bits,absorb-latent-projections,dispatch-experts,cse,fuse-projections,"
        "tile-attention,lift-weights,legalize,cse,dce\n"
        "note: sizes by default: batch=[1] context=[128] tokens=[128]; "
        "--dims B=2,S=64 or -p sets others\n"
    )


def test_several_programs_need_a_folder(mini: Path, tmp_path: Path):
    assert error("lower", mini) == (
        "error[GG0705]: standard output holds one program, the module has prefill.b1.s128, "
        "decode.b1.c128\n  help: choose one, --program prefill.b1.s128, or name a folder: "
        "-o FOLDER\n"
    )
    folder = tmp_path / "programs"
    said = facts("lower", mini, "-o", folder)
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["decode.b1.c128.mlir", "lowered.gg", "prefill.b1.s128.mlir"]
    assert [item["file"] for item in said["programs"]] == [
        str(folder / "prefill.b1.s128.mlir"),
        str(folder / "decode.b1.c128.mlir"),
    ]
    for item in said["programs"]:
        assert results_of(Path(item["file"]).read_text())


def test_a_file_is_no_folder(mini: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    text = error("lower", mini, "-o", tmp_path / "file")
    assert text.startswith(f"error[GG0704]: cannot write '{tmp_path / 'file'}': it is a file\n")


def test_one_program_to_a_file_or_into_a_folder(mini: Path, tmp_path: Path):
    done("lower", mini, "--program", "decode", "-o", tmp_path / "d.mlir")
    done("lower", mini, "--program", "decode", "-o", f"{tmp_path}/new/")
    text = (tmp_path / "d.mlir").read_text()
    assert text == (tmp_path / "new" / "decode.b1.c128.mlir").read_text()


def test_a_pipeline_of_ones_own(mini: Path):
    pipeline = "specialize{batch=[3],context=[8],tokens=[8]},lift-weights,legalize"
    result = done("lower", mini, "--program", "prefill", "-p", pipeline)
    assert results_of(result.stdout)[-1] == "tensor<3x257xf32>"
    assert result.stderr == ""


def test_a_pipeline_that_does_not_get_there(mini: Path):
    text = error("lower", mini, "--program", "prefill", "-p", "canonicalize")
    assert text.startswith("error[GG0401]: key_positions has no StableHLO form\n")


def test_a_module_at_level_target_is_left_alone(mini: Path, tmp_path: Path):
    path = tmp_path / "target.gg"
    pipeline = "specialize{context=[8],tokens=[8]},legalize"
    done("opt", mini, "-p", pipeline, "-o", path)
    assert parse(path.read_text()).level == "target"
    result = done("lower", path, "--program", "decode.b1.c8")
    assert result.stderr == ""
    assert "tensor<1x257xf32>" in result.stdout


@pytest.mark.parametrize("annotated", [False, True])
def test_a_split_module_has_replicas(mini: Path, split: Path, tmp_path: Path, annotated: bool):
    path = split
    if annotated:
        path = tmp_path / "annotated.gg"
        done("opt", mini, "-p", "canonicalize,shard{tp=2}", "-o", path)
    text = done("lower", path, "--program", "decode").stdout
    assert "mhlo.num_replicas = 2" in text
    assert "stablehlo.all_reduce" in text
    # The cache of one rank: one of two heads.
    assert "tensor<1x128x1x8xf32>" in results_of(text)


def test_weight_preparation_can_be_lowered(split: Path):
    text = done("lower", split, "--program", "weights.rank").stdout
    assert "stablehlo.dynamic_slice" in text


def test_unknown_program(mini: Path):
    assert error("lower", mini, "--program", "prefil") == (
        "error[GG0202]: no function @prefil\n  --> --program prefil\n"
        "  help: the module has @prefill, @decode\n"
    )


def test_hlo_protobufs_in_a_folder(mini: Path, tmp_path: Path):
    from tests.oracles import xla_hlo

    folder = tmp_path / "programs"
    done("lower", mini, "--to", "hlo", "-o", folder)
    files = sorted(folder.glob("*.pb"))
    assert [path.name for path in files] == ["decode.b1.c128.pb", "prefill.b1.s128.pb"]
    for path in files:
        text = xla_hlo.parsed(path.read_bytes())
        assert f"ENTRY %{path.stem} " in text
        assert "must-alias" in text


def test_for_an_accelerator(mini: Path, tmp_path: Path):
    folder = tmp_path / "programs"
    said = done("lower", mini, "--target", "trn2", "--to", "hlo", "-o", folder)
    assert "pad-cache-slots" in said.stderr
    assert "legalize{target=trn2}" in said.stderr
    for file in folder.glob("*.pb"):
        assert facts("check", file, "--target", "trn2", "--sdk-next")["findings"] is not None


def test_a_dump_is_made_legal(tmp_path: Path):
    dump = tmp_path / "dump.hlo"
    dump.write_text(
        "HloModule m\n\nENTRY %main (x: s32[4,8], w: s32[8,4]) -> s32[4,4] {\n"
        "  %x = s32[4,8]{1,0} parameter(0)\n  %w = s32[8,4]{1,0} parameter(1)\n"
        "  ROOT %y = s32[4,4]{1,0} dot(%x, %w), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n}\n"
    )
    checked = ("--target", "trn2", "--sdk-next")
    assert "NCC_EVRF035" in graphgen("check", dump, *checked).stdout
    legal = tmp_path / "legal.pb"
    done("lower", dump, "--target", "trn2", "--to", "hlo", "-o", legal)
    assert [
        i for i in facts("check", legal, *checked)["findings"] if i["severity"] == "error"
    ] == []


def test_a_target_there_is_not(mini: Path, tmp_path: Path):
    assert "unknown target 'tpu'" in error("lower", mini, "--target", "tpu", "-o", tmp_path)


def test_a_certificate_beside_a_program_is_proved_again(mini: Path, tmp_path: Path):
    out = tmp_path / "prefill.mlir"
    done("lower", mini, "--program", "prefill", "--dims", "B=1,S=8", "-o", out, "--prove")
    names = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("prefill"))
    assert names == [
        "prefill.mlir",
        "prefill.mlir.certificate.json",
        "prefill.mlir.gg",
        "prefill.mlir.source.gg",
    ]
    certificate = tmp_path / "prefill.mlir.certificate.json"
    assert facts("prove", "--check", certificate)["complete"]
    out.write_text(out.read_text().replace("stablehlo.add", "stablehlo.maximum", 1))
    ended = graphgen("prove", "--check", certificate)
    assert ended.exit_code == 2
    assert "error[GG0710]" in ended.stderr


def test_a_proof_needs_a_file(mini: Path):
    ended = graphgen("lower", mini, "--program", "prefill", "--prove")
    assert ended.exit_code == 2
    assert "needs -o" in ended.stderr
