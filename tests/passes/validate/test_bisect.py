"""bisect: the guilty pass among right ones, the guilty rewrite among right ones, by any judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphgen.cli.main import app
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.ir import Module
from graphgen.passes.core import parse_pipeline
from graphgen.passes.equiv.recorded_run import record
from graphgen.passes.validate.bisect import bisect, bisect_verdicts
from graphgen.passes.validate.blame import Oracle, by_outcomes
from graphgen.text import parse, print_module
from tests.oracles.planted_bugs import BUGS, Bug, Planted, model, script

AROUND = "canonicalize", "dce"
# Bugs of the logical module that show in numbers whatever rows a call has.
PLAIN = [bug for bug in BUGS if not (bug.after or bug.shuffled or bug.rounding)]


def judge(bug: Bug) -> Oracle:
    workload = script(bug.after, bug.element, bug.shuffled)
    return by_outcomes(record(model(bug.after, bug.element), workload, MEANING), workload)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bug", PLAIN[::3], ids=lambda bug: bug.name)
def test_the_guilty_rewrite_is_named(bug: Bug):
    planted = Planted(bug)
    front, back = (parse_pipeline(text) for text in AROUND)
    workload = script(bug.after, bug.element, bug.shuffled)
    passes = [*front, planted, *back]
    found = bisect_verdicts(model(bug.after, bug.element), passes, workload)
    assert found is not None
    assert (found.number, found.item) == (1, planted)
    assert found.application is not None
    assert found.application.rule == bug.name
    assert found.application.loc.scope == bug.scope
    # The last run of the pass is not the whole one; run it again to know which was wrong.
    whole = Planted(bug)
    bisect(model(bug.after, bug.element), [whole], lambda module: False)
    assert whole.history.index(True) + 1 == found.fuel
    # One rewrite less is right.
    assert found.first is not None
    wrong = judge(bug)
    assert not wrong(found.good)
    assert wrong(found.bad)


def test_with_an_oracle_no_first_wrong_op_is_looked_for():
    planted = Planted(PLAIN[0])
    found = bisect(model(), [planted], judge(PLAIN[0]))
    assert found is not None
    assert (found.item, found.first) == (planted, None)


def test_nothing_is_wrong_with_right_passes():
    bug = PLAIN[0]
    passes = [*parse_pipeline("canonicalize"), Planted(bug, harmless=True)]
    assert bisect(model(), passes, judge(bug)) is None


def test_a_check_that_fails_from_the_start_is_refused():
    with pytest.raises(GraphgenError, match="wrong before any pass has run"):
        bisect(model(), parse_pipeline("canonicalize"), lambda module: True)


def test_any_judge_will_do():
    def no_rope(module: Module) -> bool:
        return not any(op.name == "rope" for f in module.programs() for op in f.block)

    pipeline = "canonicalize,specialize{batch=[1],context=[8],tokens=[8]},legalize,dce"
    found = bisect(model(), parse_pipeline(pipeline), no_rope)
    assert found is not None
    assert found.item.name == "legalize"


CHECK = """
import sys
text = open(sys.argv[1]).read()
sys.exit("silu(" not in text)
"""
BROKEN = '''
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register, rule


@rule("silu")
def forget(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    if "layers.1" not in op.loc.scope:
        return no_match("another layer", op.result)
    return [op.operands[0]]


@register
@dataclass(frozen=True)
class Forget(Pass):
    """Leave the activation out."""

    name: ClassVar[str] = "forget"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.functions.values():
            rewriter.apply_rules(function, [forget])
'''


def test_the_command(tmp_path: Path):
    file, broken = tmp_path / "m.gg", tmp_path / "forget_activation.py"
    file.write_text(print_module(model()))
    broken.write_text(BROKEN)
    args = ["bisect", str(file), "-p", "canonicalize,forget,dce", "--plugin", str(broken)]
    folder = tmp_path / "repro"
    shown = CliRunner().invoke(app, [*args, "-o", str(folder)])
    assert shown.exit_code == 1
    assert "wrong after pass 2: forget\n  guilty: forget #1: forget at %silu" in shown.stdout
    assert "model.layers.1.mlp" in shown.stdout
    good, bad = (parse((folder / f"{name}.gg").read_text()) for name in ("good", "bad"))
    assert good.op_count() - bad.op_count() == 1
    assert "--plugin" in (folder / "command.txt").read_text()
    # An earlier reproducer may be written over, anything else may not.
    assert CliRunner().invoke(app, [*args, "-o", str(folder)]).stdout == shown.stdout
    (folder / "command.txt").write_text("graphgen validate m.gg")
    again = CliRunner().invoke(app, ["bisect", str(file), "-o", str(folder)])
    assert again.exit_code == 1
    assert "GG0704" in again.output

    script_ = tmp_path / "check.py"
    script_.write_text(CHECK)
    args = ["bisect", str(file), "-p", "canonicalize,dce", "--check", f"python {script_} {{}}"]
    fine = CliRunner().invoke(app, args)
    assert (fine.exit_code, fine.stdout) == (0, "nothing is wrong at the end of the pipeline\n")
    args[3] = "canonicalize,specialize{batch=[1],context=[8],tokens=[8]},legalize"
    found = json.loads(CliRunner().invoke(app, [*args, "--json"]).stdout)["guilty"]
    assert found["pass"].startswith("legalize")
    missing = CliRunner().invoke(app, ["bisect", str(file), "--check", "true"])
    assert "names no file" in missing.output
