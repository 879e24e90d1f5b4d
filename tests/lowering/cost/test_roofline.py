"""Rooflines against numbers computed by hand from the device's figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphgen.cli.main import app
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module
from graphgen.ir.dtype import bf16
from graphgen.lowering.cost.roofline import Roofline, RooflineCost, roofline
from graphgen.models import build, known_shape
from graphgen.ops import op_def
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import accelerator
from graphgen.text import parse, print_module
from tests.oracles.small_modules import function

TRN2, TRN1 = accelerator("trn2"), accelerator("trn1")


def line_of(lines: str, mesh: str = "") -> Roofline:
    body = "".join(f"  {line.strip()}\n" for line in lines.strip().splitlines())
    module = parse(f"module @m level=target{mesh} {{\n}}\n\nfunc @f {{\n{body}}}\n")
    return roofline(module, module.function("f"), TRN2)


DOT = """
    arg %x : bf16[{m},4096]
    arg %w : bf16[4096,4096]
    %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 : \
bf16[{m},4096]
"""


def test_one_row_waits_for_the_weight():
    cost = line_of(DOT.format(m=1)).total
    assert cost.flops == 2 * 4096 * 4096
    assert cost.bytes == 2 * 4096 * 4096 + 2 * 4096
    assert cost.memory_s == pytest.approx(cost.bytes / 725e9)
    assert cost.bound == "memory"


def test_many_rows_wait_for_the_product():
    line = line_of(DOT.format(m=2048))
    assert line.total.bound == "compute"
    assert line.seconds == pytest.approx(2 * 2048 * 4096 * 4096 / 158e12)


def test_a_weight_that_two_ops_read_crosses_once():
    lines = DOT.format(m=1) + "%z = dot_general(%y, %w) lhs_contracting_dims=[1] "
    lines += "rhs_contracting_dims=[1] dtype=bf16 : bf16[1,4096]"
    assert line_of(lines).total.bytes == line_of(DOT.format(m=1)).total.bytes


def test_a_view_moves_no_bytes():
    lines = DOT.format(m=1) + "%v = reshape(%y) shape=[64,64] : bf16[64,64]"
    assert line_of(lines).total.bytes == line_of(DOT.format(m=1)).total.bytes


@pytest.mark.parametrize(("softcap", "more"), [("", 0), (" softcap=30.0", 1)])
def test_attention_takes_an_exponential_a_score_and_a_tangent_where_scores_are_capped(
    softcap: str, more: int
):
    lines = (
        *("arg %q : f32[2,3,4,8]", "arg %k : f32[2,5,2,8]"),
        *("arg %v : f32[2,5,2,8]", "arg %m : pred[2,3,5]"),
        f"%y = attention(%q, %k, %v, %m) scale=0.125{softcap} : f32[2,3,4,8]",
    )
    (op,) = parse(function(*lines)).function("f").block
    cost = op_def("attention").cost
    assert cost is not None
    types = [value.type for value in op.operands], [value.type for value in op.results]
    scores = 2 * 3 * 4 * 5
    products = 2 * scores * (8 + 8)
    assert cost(*types, op.attrs) == (products + (3 + 2 * more) * scores, scores * (1 + more))


def test_of_a_cache_only_what_is_read_crosses():
    lines = """
        arg %c : bf16[1,8192,8,128]
        %k = slice(%c) start_indices=[0,0,0,0] limit_indices=[1,128,8,128] strides=[1,1,1,1] : \
bf16[1,128,8,128]
        %n = negate(%k) : bf16[1,128,8,128]
    """
    assert line_of(lines).total.bytes == 128 * 8 * 128 * 2


def exchange(op: str, kind: str, result: str, ranks: int, group: int | None = None) -> RooflineCost:
    size = group or ranks
    groups = [list(range(start, start + size)) for start in range(0, ranks, size)]
    lines = f"""
        arg %x : {kind}
        %y = {op} replica_groups={groups} : {result}
    """.replace(", ", ",")
    return line_of(lines, f" mesh=tp:{ranks}").total


def test_within_a_chip_nothing_crosses_a_link():
    cost = exchange("all_reduce(%x) kind=add", "bf16[4096]", "bf16[4096]", 4)
    assert cost.link_bytes == 0
    # A mesh takes one step.
    assert cost.link_s == pytest.approx(TRN2.hop_seconds)
    assert exchange("all_reduce(%x) kind=add", "bf16[4096]", "bf16[4096]", 64, 4) == cost
    # What it sends is an argument, which is in device memory.
    assert cost.bytes == 8192


def test_an_all_reduce_sends_its_bytes_out_and_back():
    # 64 ranks on 16 chips: each chip sends 15/16 to where it is summed, and 15/16 of sums.
    cost = exchange("all_reduce(%x) kind=add", "bf16[4096]", "bf16[4096]", 64)
    assert cost.link_bytes == 2 * 8192 * 15 // 16
    assert cost.link_s == pytest.approx(cost.link_bytes / 1280e9 + TRN2.hop_seconds)


def test_the_halves_of_an_all_reduce():
    gather = exchange("all_gather(%x) dimension=0", "bf16[64]", "bf16[4096]", 64)
    assert gather.link_bytes == 8192 * 15 // 16
    scatter = exchange("reduce_scatter(%x) kind=add dimension=0", "bf16[4096]", "bf16[64]", 64)
    assert scatter.link_bytes == 8192 * 15 // 16
    both = "all_to_all(%x) split_dimension=0 concat_dimension=0"
    assert exchange(both, "bf16[64]", "bf16[64]", 8).link_bytes == 4 * 128 * 4 // 8


def test_what_does_not_fit_into_the_core_crosses_at_a_collective():
    size = 8192 * 8192
    cost = exchange("all_reduce(%x) kind=add", "bf16[8192,8192]", "bf16[8192,8192]", 64)
    assert cost.bytes == 4 * 2 * size


def test_scores_of_attention_need_not_cross():
    lines = """
        arg %q : bf16[16384,128]
        arg %k : bf16[16384,128]
        %s = dot_general(%q, %k) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[16384,16384]
        %e = exponential(%s) : f32[16384,16384]
    """
    assert line_of(lines).total.bytes == 2 * 2 * 16384 * 128


@pytest.fixture(scope="module")
def decode() -> Module:
    module = build(known_shape("llama-3.1-8b"), bf16, phases=("decode",))
    run_pipeline(module, default(CompileConfig(tokens=(2048,), target="trn1")))
    return module


def test_a_decode_step_of_a_model_reads_each_weight_once(decode: Module):
    line = roofline(decode, decode.programs()[0], TRN1)
    embedding, caches = 2 * 128256 * 4096, 2 * 32 * 2048 * 8 * 128 * 2
    weights = 2 * 8_030_261_248 - embedding
    assert line.total.bytes == pytest.approx(weights + caches, rel=1e-3)
    assert line.total.bound == "memory"
    assert line.seconds == pytest.approx(line.total.memory_s, rel=0.01)
    assert [(g.first, g.last) for g in line.groups][-2:] == [
        ("model.layers.1", "model.layers.31"),
        ("", ""),
    ]


def test_the_command(decode: Module, tmp_path: Path):
    file = tmp_path / "m.gg"
    file.write_text(print_module(decode))
    shown = CliRunner().invoke(app, ["cost", str(file), "--target", "trn1"])
    assert shown.exit_code == 0
    for word in ("at least", "model.layers.1 to model.layers.31", "memory:", "instructions:"):
        assert word in shown.stdout
    facts = json.loads(CliRunner().invoke(app, ["cost", str(file), "--json"]).stdout)
    (program,) = facts["programs"]
    assert program["seconds"] > 0
    assert set(facts["sources"]) >= {"hbm_bandwidth", "flops", "link_bandwidth"}


def test_measured_times_stand_beside(decode: Module, tmp_path: Path):
    file = tmp_path / "m.gg"
    file.write_text(print_module(decode))
    name = decode.programs()[0].name
    for key in ("decode", name):
        args = ["cost", str(file), "--target", "trn1", "--measured", f"{key}=100"]
        shown = CliRunner().invoke(app, args)
        facts = json.loads(CliRunner().invoke(app, [*args, "--json"]).stdout)
        (program,) = facts["programs"]
        assert program["measured_s"] == 0.1
        assert program["share"] == pytest.approx(program["seconds"] / 0.1)
        assert f"measured 100 ms: the roofline is {1e3 * program['seconds']:.1f} % of it" in (
            shown.stdout
        )


@pytest.mark.parametrize("text", ["decode", "decode=fast", "prefill=1", "decode=0"])
def test_measured_times_that_say_nothing(text: str, decode: Module, tmp_path: Path):
    file = tmp_path / "m.gg"
    file.write_text(print_module(decode))
    shown = CliRunner().invoke(app, ["cost", str(file), "--measured", text])
    assert shown.exit_code != 0
