"""Validation of programs that were read from StableHLO: one call, random inputs of their types."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.passes.core import parse_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.validate.blame import apply_pass
from graphgen.passes.workload.make_workload import make_workload
from tests.graphgen.cli.conftest import done, graphgen
from tests.oracles.planted_bugs import BUGS, RANKS, SIMPLE, Bug, Planted, model

# On the ranks the rewrite has to be planted among simple ops as well.
ON_SIMPLE = [bug for bug in BUGS if bug.after == SIMPLE and not bug.rounding]


def foreign(after: str, program: str) -> Module:
    module = model(after)
    return read_stablehlo(emit_stablehlo(module, module.function(program)), "m.mlir")


@pytest.mark.parametrize("bug", ON_SIMPLE, ids=[bug.name for bug in ON_SIMPLE])
def test_the_wrong_rewrite_of_a_read_program_is_named(bug: Bug):
    module = foreign(SIMPLE, bug.program)
    item = Planted(replace(bug, program="main"))
    apply_pass(clone_module(module), item)
    assert item.history.count(True) == 1
    number = item.history.index(True) + 1
    (verdict,) = validate(module, [item], make_workload(module, 3))
    assert not verdict.means_the_same
    assert verdict.guilty is not None
    assert (verdict.guilty.number, verdict.guilty.function) == (number, "main")
    assert verdict.guilty.loc.scope == bug.scope


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("program", ["prefill.b3.s8", "decode.b3.c16"])
@pytest.mark.one_in(4)
def test_no_false_alarm_on_a_read_program(program: str, seed: int):
    module = foreign(SIMPLE, program)
    passes = [
        *parse_pipeline("simplify-shape,fold-constants"),
        *default(CompileConfig(batch=(3,), context=(8,), tokens=(8,))),
    ]
    verdicts = validate(module, passes, make_workload(module, seed))
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []


def test_each_rank_of_a_read_program_has_inputs_of_its_own():
    after = f"specialize{{batch=[3],context=[8],tokens=[8]}},{RANKS},legalize"
    module = foreign(after, "decode.b3.c8")
    assert (module.ranks, module.level) == (2, "sharded")
    call = make_workload(module, 0).calls[0]
    weight = call.parts["model.layers.0.mlp.gate_proj.weight"]
    assert len(weight) == 2
    assert (weight[0] != weight[1]).any()
    # What a language model takes is the same on all.
    assert {"tokens", "positions", "lengths", "seq_ids"} <= call.inputs.keys()
    dropped = next(bug for bug in BUGS if bug.root == "all_reduce")
    wrong = replace(dropped, program="main", where=lambda op: True)
    verdicts = validate(
        module, [*parse_pipeline("cse,dce"), Planted(wrong)], make_workload(module, 0)
    )
    assert [verdict.ok for verdict in verdicts] == [True, True, False]
    assert verdicts[-1].guilty is not None
    assert verdicts[-1].guilty.root.partition(" = ")[2].startswith("all_reduce(")


PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
from graphgen.passes.core import Pass, no_match, register, rule


@rule("add")
def other_way_round(op, b):
    if "planted" in op.loc.via:
        return no_match("done")
    left, right = op.operands
    biased = right.producer("broadcast_in_dim") is not None
    return [b.emit("subtract" if biased else "add", (left, right)).result]


@register
@dataclass(frozen=True)
class Planted(Pass):
    name: ClassVar[str] = "planted"

    def run(self, module, rewriter):
        for function in module.functions.values():
            rewriter.apply_rules(function, [other_way_round])
"""


def test_the_command_names_the_rewrite_in_a_jitted_program(tmp_path: Path):
    source = tmp_path / "net.mlir"
    source.write_text(
        """
        func.func @main(%x: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
          %0 = stablehlo.add %x, %x : tensor<4x8xf32> loc("net.py":3:0)
          %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
          %2 = stablehlo.add %0, %1 : tensor<4x8xf32> loc("bias"("net.py":4:0))
          %3 = stablehlo.logistic %2 : tensor<4x8xf32>
          return %3 : tensor<4x8xf32>
        }
        """
    )
    plugin = tmp_path / "planted.py"
    plugin.write_text(PLUGIN)
    command = ("validate", source, "-p", "canonicalize,planted,dce", "--plugin", plugin)
    result = graphgen(*command)
    assert result.exit_code == 1, result.output
    assert (
        "first wrong rewrite: planted #2: other-way-round at %add = add(%add, %broadcast_in_dim) "
        "(net.py:4 bias)\n  seen at: result of call 0\n"
    ) in result.stdout
    text = done("validate", source, "--on", "cpu").stdout
    assert "WRONG" not in text
    assert "over budget" not in text
