"""One judgement: what validate calls wrong, bisect finds and minify keeps, by the same check."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import pytest

from graphgen.ir import Module
from graphgen.passes.core import Pass, Rewriter, parse_pipeline
from graphgen.passes.inspect.result_json import bisection_json
from graphgen.passes.validate import PassChecks, validate
from graphgen.passes.validate.bisect import Culprit, bisect, bisect_verdicts
from graphgen.passes.validate.failure_predicate import at_fault
from graphgen.passes.validate.minify import Minifier
from graphgen.passes.validate.verdict_text import bisection_text
from graphgen.passes.workload.make_workload import workload_for
from graphgen.text import parse, print_module
from tests.oracles.wrong_rewrites import COARSE, LAST_TIES, UNSHIFTED


@dataclass(frozen=True)
class Silent(Pass):
    """Swaps operands without a rewrite."""

    name: ClassVar[str] = "silent"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.programs():
            for op in function.block:
                if op.name == "multiply":
                    op.set_operands(op.operands[::-1])


_NUMBERS = count()


@dataclass(frozen=True)
class Varying(Pass):
    """Gives a value another name each time."""

    name: ClassVar[str] = "varying"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.programs():
            for op in [op for op in function.block if op.name == "multiply"]:
                with (b := rewriter.before(function, op)):
                    made = b.binary("multiply", *op.operands)
                made.name = f"drawn{next(_NUMBERS)}"
                rewriter.replace(function, op, [made], "again")


@dataclass(frozen=True)
class Raising(Pass):
    """Refuses any multiplication."""

    name: ClassVar[str] = "raising"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        if any(op.name == "multiply" for f in module.programs() for op in f.block):
            raise KeyError("multiply")


TEXT = """\
module @m level=logical {
  input %x : f32[4,8]
  input %z : f32[4,8]
  output %y : f32[4,8]
  output %v : f32[4,2]
  output %k : s32[4,2]
}

func @main phase=main {
  arg %x : f32[4,8]
  arg %z : f32[4,8]
  %a = tanh(%x) : f32[4,8]
  %p = multiply(%a, %z) : f32[4,8]
  %m = reduce(%p) dimensions=[1] kind=maximum : f32[4]
  %w = broadcast_in_dim(%m) shape=[4,8] dimensions=[0] : f32[4,8]
  %d = subtract(%p, %w) : f32[4,8]
  %e = exponential(%d) : f32[4,8]
  %s = reduce(%e) dimensions=[1] kind=add : f32[4]
  %t = broadcast_in_dim(%s) shape=[4,8] dimensions=[0] : f32[4,8]
  %y = divide(%e, %t) : f32[4,8]
  %v, %k = top_k(%y) k=2 : f32[4,2], s32[4,2]
  return y = %y
  return v = %v
  return k = %k
}
"""
# The state of the verdict, and the op that has to be left for the pass to fail.
CASES = {
    "ties": (LAST_TIES, "WRONG rewrite", "top_k"),
    "softmax": (UNSHIFTED, "WRONG rewrite", "subtract"),
    "rounding": (COARSE, "over budget", "multiply"),
    "silent": (Silent(), "silent", "multiply"),
    "varying": (Varying(), "not repeatable", "multiply"),
    "raising": (Raising(), "raised", "multiply"),
}


def around(item: Pass) -> list[Pass]:
    """The pass among right ones."""
    first, last = parse_pipeline("cse,dce")
    return [first, item, last]


def found(item: Pass) -> Culprit:
    module = parse(TEXT)
    passes = around(item)
    workload = workload_for(module, passes, 1)
    culprit = bisect_verdicts(module, passes, workload, PassChecks(each_rewrite=True))
    assert culprit is not None
    return culprit


@pytest.mark.parametrize("name", CASES)
def test_bisect_finds_what_validate_calls_wrong(name: str):
    item, state, root = CASES[name]
    module, passes = parse(TEXT), around(item)
    verdicts = validate(
        module, passes, workload_for(module, passes, 1), PassChecks(each_rewrite=True)
    )
    states = [verdict.state for verdict in verdicts]
    assert states[:2] == ["ok", state]
    culprit = found(item)
    assert (culprit.number, culprit.item) == (1, item)
    guilty = verdicts[1].guilty
    assert str(culprit.application) == str(guilty)
    # A pass that is to blame as a whole has no rewrite to stop before.
    assert (culprit.fuel == 0) == (guilty is None)
    if guilty is not None:
        assert root in guilty.root
        assert print_module(culprit.good) != print_module(culprit.bad)


def test_an_oracle_blames_a_pass_without_rewrites_as_a_whole(monkeypatch: pytest.MonkeyPatch):
    # The default of users; the suite runs with contracts, which refuse silent passes.
    monkeypatch.setenv("GRAPHGEN_VERIFY", "1")
    culprit = bisect(parse(TEXT), around(Silent()), lambda m: "(%z, %a)" in print_module(m))
    assert culprit is not None
    assert (culprit.number, culprit.silent, culprit.raising) == (1, True, None)
    assert (culprit.fuel, culprit.application) == (0, None)


@pytest.mark.parametrize("name", CASES)
def test_minify_keeps_the_check_that_failed(name: str):
    item, state, root = CASES[name]
    fails, guilty, kept = at_fault(parse(TEXT), around(item), 1)
    assert (guilty, kept) == (item, state)
    small = Minifier(parse(TEXT), fails, lambda done: None, lambda ops, checks: None).run()
    left = [op.name for function in small.programs() for op in function.block]
    assert root in left
    assert len(left) < 8
    verdicts = validate(
        small, around(item), workload_for(small, around(item), 1), PassChecks(each_rewrite=True)
    )
    assert verdicts[1].state == state


@pytest.mark.parametrize(("item", "alone"), [(LAST_TIES, True), (COARSE, False)])
def test_the_text_and_the_json_name_the_check(item: Pass, alone: bool):
    culprit = found(item)
    text = bisection_text(culprit, rounding=False)
    guilty = bisection_json(culprit)["guilty"]
    assert isinstance(guilty, dict)
    if alone:
        assert text.startswith("a wrong rewrite by pass 2: last-ties\n  guilty: last-ties #1: ")
        assert "\n  wrong when checked alone, " in text
        assert (guilty["state"], guilty["counterexample"] is None) == ("WRONG rewrite", False)
        return
    assert text.startswith("over its rounding budget after pass 2: coarse\n  guilty: coarse #1: ")
    assert guilty["state"] == "over budget"
    assert str(guilty["counterexample"]).startswith("rounded differently: ")


def test_right_passes_have_no_culprit():
    module, passes = parse(TEXT), parse_pipeline("cse,dce")
    workload = workload_for(module, passes, 1)
    assert bisect_verdicts(module, passes, workload, PassChecks(each_rewrite=True)) is None
    assert at_fault(parse(TEXT), passes, 1)[1:] == (None, "")
