"""Rooflines against numbers computed by hand from the device's figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphgen.cli.main import app
from graphgen.ir import Module
from graphgen.ir.dtype import bf16
from graphgen.models import build, known_shape
from graphgen.text import parse, print_module
from lowering.cost.roofline import Roofline, roofline
from lowering.targets.hardware import target
from passes.core import run_pipeline
from passes.pipelines import Buckets, default

TRN2, TRN1 = target("trn2"), target("trn1")


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


def test_of_a_cache_only_what_is_read_crosses():
    lines = """
        arg %c : bf16[1,8192,8,128]
        %k = slice(%c) start_indices=[0,0,0,0] limit_indices=[1,128,8,128] strides=[1,1,1,1] : \
bf16[1,128,8,128]
        %n = negate(%k) : bf16[1,128,8,128]
    """
    assert line_of(lines).total.bytes == 128 * 8 * 128 * 2


def test_an_all_reduce_sends_its_bytes_out_and_back():
    lines = """
        arg %x : bf16[4096]
        %y = all_reduce(%x) kind=add replica_groups=[[0,1,2,3]] : bf16[4096]
    """
    cost = line_of(lines, " mesh=tp:4").total
    assert cost.link_bytes == 2 * 8192 * 3 // 4
    # A chip's links are shared by its four logical cores; a mesh takes one step.
    assert cost.link_s == pytest.approx(cost.link_bytes / (1280e9 / 4) + TRN2.hop_seconds)


@pytest.fixture(scope="module")
def decode() -> Module:
    module = build(known_shape("llama-3.1-8b"), bf16, phases=("decode",))
    run_pipeline(module, default(Buckets(tokens=(2048,)), target="trn1"))
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
