"""What inspect says of a module: told by the interface, guessed from use, layers with no scopes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphgen.analysis.layers import layers_of
from graphgen.analysis.overview import Overview, algorithm, overview
from graphgen.cli.main import app
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module


@pytest.fixture(scope="module")
def split() -> Module:
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    run_pipeline(module, default(CompileConfig(tokens=(128,), tp=2)))
    return module


def decode(module: Module) -> Overview:
    return overview(module, module.function("decode.b1.c128"))


def test_arguments_are_told_apart_by_the_interface(split: Module):
    parts = {part.kind: part for part in decode(split).parts}
    assert not any(part.guessed for part in parts.values())
    names = {kind: [value.name for value in part.values] for kind, part in parts.items()}
    assert {"tokens", "positions", "rank"} <= set(names["inputs"])
    assert len(names["caches"]) == 4
    assert any(name and name.endswith(".prepared") for name in names["weights"])
    # Keys and values of two layers: 128 slots, one of two heads of 8, f32.
    assert parts["caches"].bytes == 4 * 128 * 8 * 4


def test_ops_are_counted_by_name(split: Module):
    found = decode(split)
    assert found.histogram == Counter(op.name for op in found.function.block)
    assert found.histogram["all_reduce"] == 5


def test_collectives_are_counted_with_bytes_and_groups(split: Module):
    (exchange,) = [x for x in decode(split).exchanges if x.type == "f32[1,1,64]"]
    # Two a layer, and one of the rows that each rank looked up.
    assert (exchange.op, exchange.count, exchange.bytes) == ("all_reduce", 5, 256)
    assert (exchange.groups, exchange.algorithm) == ("[[0,1]]", "mesh")


@pytest.mark.parametrize(
    ("size", "name"),
    [
        (0, "mesh"),
        (999_999, "mesh"),
        (1_000_000, "rdh"),
        (56_000_000, "rdh"),
        (1 << 30, "kanga-ring"),
    ],
)
def test_the_algorithm_of_a_size(size: int, name: str):
    assert algorithm(size) == name


def test_layers_of_equal_work_are_one_line():
    module = build(known_shape("llama-3.1-8b"), f32)
    found = overview(module, module.function("decode")).layers
    assert [(layer.first, layer.last, layer.count) for layer in found] == [
        ("model.layers.0", "model.layers.31", 32)
    ]


def test_layers_are_found_without_scopes():
    module = build(known_shape("llama-3.1-8b"), f32)
    bare = parse(print_module(module, locs=False))
    scoped = layers_of(module.function("decode"))
    repeated = layers_of(bare.function("decode"))
    # What repeats may begin elsewhere in a layer, but not more or less often, nor longer.
    assert abs(len(repeated) - len(scoped)) <= 1
    assert {len(ops) for ops in repeated.values()} == {len(ops) for ops in scoped.values()}


def test_a_program_that_does_not_repeat_has_no_layers():
    body = "  arg %x : f32[4]\n  %y = negate(%x) : f32[4]"
    text = f"module @m level=target {{\n}}\n\nfunc @f {{\n{body}\n}}\n"
    assert layers_of(parse(text).function("f")) == {}


FOREIGN = """module @m level=target {
}

func @f {
  arg %x : f32[2,64]
  arg %w : f32[64,64]
  arg %n : s32[64,64]
  %t = transpose(%w) permutation=[1,0] : f32[64,64]
  %y = dot_general(%x, %t) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,64]
  return y = %y
}
"""


def test_weights_of_a_dump_are_guessed_from_use():
    module = parse(FOREIGN)
    parts = {part.kind: part for part in overview(module, module.function("f")).parts}
    assert [value.name for value in parts["weights"].values] == ["w"]
    assert parts["weights"].guessed
    assert [value.name for value in parts["inputs"].values] == ["x", "n"]


def test_the_command(split: Module, tmp_path: Path):
    file = tmp_path / "m.gg"
    file.write_text(print_module(split))
    text = CliRunner().invoke(app, ["inspect", str(file), "--program", "decode.b1.c128"])
    assert text.exit_code == 0
    for word in ("caches", "all_reduce", "model.layers.0", "largest", "at most at"):
        assert word in text.stdout
    facts = json.loads(CliRunner().invoke(app, ["inspect", str(file), "--json"]).stdout)
    assert facts["ranks"] == 2
    assert [item["phase"] for item in facts["programs"]] == ["prefill", "decode"]
    assert facts["programs"][1]["arguments"]["caches"]["bytes"] == 4 * 128 * 8 * 4


def test_a_symbolic_module_answers_with_polynomials(tmp_path: Path):
    file = tmp_path / "m.gg"
    file.write_text(print_module(build(known_shape("smollm2-135m"), f32, mini=True)))
    facts = json.loads(CliRunner().invoke(app, ["inspect", str(file), "--json"]).stdout)
    assert facts["programs"][1]["peak_bytes"] is None
    assert "B" in facts["programs"][1]["flops"]["f32"]
