"""Each rewrite alone: planted ones are found by their window, also where no call reaches them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

import graphgen.passes
from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.exec.session import Workload
from graphgen.ir import Module, Op, Value
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import PASSES, Pass, Rewriter, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.pipeline import run_pass
from graphgen.passes.pipelines import parse as parse_passes
from graphgen.passes.validate import PassChecks, validate
from graphgen.passes.validate.rewrite_checker import check_rewrites
from graphgen.passes.validate.rewrite_verdict import RewriteCheck, RewriteStatus
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.oracles.planted_bugs import BUGS, Bug, Planted, model, script
from tests.oracles.planted_bugs_inside_passes import INSIDE, Broken, Inside
from tests.oracles.planted_bugs_on_ranks import RANK_BUGS
from tests.oracles.planted_bugs_quantized import QUANTIZED_BUGS
from tests.passes.core.test_fuel import before
from tests.passes.inspect.test_pass_docs import example

for _found in pkgutil.walk_packages(graphgen.passes.__path__, "graphgen.passes."):
    importlib.import_module(_found.name)

OURS = {name: cls for name, cls in PASSES.items() if cls.__module__.startswith("graphgen.passes.")}
EVERY_BUG = [pytest.param(bug, id=bug.name) for bug in (*BUGS, *RANK_BUGS, *QUANTIZED_BUGS)]


def wrong_of(module: Module, item: Pass, workload: Workload) -> list[RewriteCheck]:
    return check_rewrites(module, item, workload).having(RewriteStatus.WRONG)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("bug", EVERY_BUG)
def test_a_planted_rewrite_is_found_by_its_window_alone(bug: Bug):
    item = Planted(bug)
    module = model(bug.after, bug.element, bug.windowed)
    calls = script(bug.after, bug.element, bug.shuffled, bug.windowed)
    summary = check_rewrites(module, item, calls)
    wrong = summary.having(RewriteStatus.WRONG)
    assert [check.rewrite.number for check in wrong] == [item.history.index(True) + 1]
    assert summary.right == summary.total - 1
    (check,) = wrong
    assert check.counterexample is not None
    # A window compares the stored numbers, which coarser steps change in any arithmetic.
    assert check.counterexample.rounding == (bug.rounding and bug.name != "coarse-steps")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("bug", [pytest.param(bug, id=bug.name) for bug in INSIDE])
def test_a_bug_inside_a_pass_is_found_by_its_window_alone(bug: Broken):
    module, right = before(bug.item, tp=bug.tp, without="select-kernels")
    item = Inside(right, bug.breaks)
    calls = make_workload(module, seed=1, shuffled=bug.shuffled)
    wrong = check_rewrites(module, item, calls).wrong
    assert wrong is not None
    run_pass(item, clone_module(module), journal := Journal())
    assert str(wrong.rewrite) == next(str(a) for a in journal.applications if bug.guilty(a))


@dataclass(frozen=True)
class Edits(Pass):
    """Rewrite every op of some kinds, each with a function of its own."""

    name: ClassVar[str] = "edits"
    changes: dict[str, Callable[[Op, Builder], Sequence[Value]]] = field(
        default_factory=dict[str, Callable[[Op, Builder], Sequence[Value]]]
    )

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.functions.values():
            for op in list(function.block):
                change = self.changes.get(op.name)
                if change is not None and not rewriter.exhausted:
                    with rewriter.before(function, op) as b:
                        made = change(op, b)
                    rewriter.replace(function, op, made, f"change-{op.name}")


def one_more(op: Op, b: Builder) -> Sequence[Value]:
    return [b.binary("add", b.emit(op.name, op.operands, dict(op.attrs)).result, 1.0)]


def two_less(op: Op, b: Builder) -> Sequence[Value]:
    return [b.binary("subtract", b.emit(op.name, op.operands, dict(op.attrs)).result, 2.0)]


CHAIN = """
module @m level=logical {{
  input %x : f32[4]
  output %y : f32[4]
}}

func @f {{
  arg %x : f32[4]
  %a = {first}(%x) : f32[4]
  %b = negate(%a) : f32[4]
  %c = negate(%b) : f32[4]
  %y = {last} : f32[4]
  return y = %y
}}
"""

DEAD_BRANCH = """
module @m level=logical {
  input %x : f32[4]
  output %y : f32[4]
}

func @first {
  arg %x : f32[4]
  %y = sine(%x) : f32[4]
  return y = %y
}

func @second {
  arg %x : f32[4]
  %y = cosine(%x) : f32[4]
  return y = %y
}

func @f phase=main {
  arg %x : f32[4]
  %p = constant() value=pred[](true) : pred[]
  %y = conditional(%p, %x, %x) branches=[first,second] takes=[1,1] results=[f32[4]] : f32[4]
  return y = %y
}
"""


def test_a_fault_in_a_branch_that_is_never_taken_is_found():
    module = parse(DEAD_BRANCH)
    calls = make_workload(module)
    item = Edits({"sine": lambda op, b: [b.op("sine", *op.operands)], "cosine": one_more})
    (verdict,) = validate(module, [item], calls, PassChecks(each_rewrite=True))
    assert verdict.means_the_same
    assert verdict.state == "WRONG rewrite"
    assert verdict.guilty is not None
    assert (verdict.guilty.rule, verdict.guilty.function) == ("change-cosine", "second")


def test_a_fault_that_a_later_rewrite_cancels_is_found():
    # sine(x) + 1 through two negations, and added to itself: 2 too much, which the end takes away.
    module = parse(CHAIN.format(first="sine", last="add(%a, %c)"))
    calls = make_workload(module)
    item = Edits({"sine": one_more, "add": two_less})
    (verdict,) = validate(module, [item], calls, PassChecks(each_rewrite=True))
    assert verdict.means_the_same
    assert not verdict.ok
    assert verdict.rewrites is not None
    assert [c.rewrite.rule for c in verdict.rewrites.having(RewriteStatus.WRONG)] == [
        "change-sine",
        "change-add",
    ]


def test_two_rewrites_that_are_right_together_are_not_wrong():
    module = parse(CHAIN.format(first="sine", last="cosine(%c)"))
    calls = make_workload(module)

    def doubled(op: Op, b: Builder) -> Sequence[Value]:
        return [b.binary("multiply", b.op("sine", *op.operands), 2.0)]

    def halved(op: Op, b: Builder) -> Sequence[Value]:
        twice = op.operands[0].producer("multiply")
        if twice is None or twice.operands[0].producer("sine") is None:
            return [b.op("negate", *op.operands)]
        return [b.binary("multiply", b.op("negate", *op.operands), 0.5)]

    (verdict,) = validate(
        module, [Edits({"sine": doubled, "negate": halved})], calls, PassChecks(each_rewrite=True)
    )
    assert verdict.ok
    assert verdict.rewrites is not None
    together = verdict.rewrites.having(RewriteStatus.TOGETHER)
    assert [check.rewrite.rule for check in together] == ["change-sine", "change-negate"]
    assert verdict.rewrites.right == verdict.rewrites.total == 3


def plain_logistic(op: Op, b: Builder) -> Sequence[Value]:
    power = b.op("exponential", *op.operands)
    return [b.op("divide", power, b.binary("add", power, 1.0))]


def test_an_overflow_at_large_values_is_found():
    module = parse(CHAIN.format(first="logistic", last="cosine(%c)"))
    calls = make_workload(module)
    (verdict,) = validate(
        module, [Edits({"logistic": plain_logistic})], calls, PassChecks(each_rewrite=True)
    )
    assert verdict.means_the_same
    assert verdict.guilty is not None
    assert verdict.guilty.rule == "change-logistic"


def test_a_fault_in_a_program_that_no_call_runs_is_found():
    sizes = parse_passes("specialize{batch=[3],context=[8,32],tokens=[8,16]}")
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    calls = make_workload(module)
    run_pipeline(module, sizes)

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        add = one_more if b.function.name == "prefill.b3.s32" else None
        return add(op, b) if add else b.emit(op.name, op.operands, dict(op.attrs)).results

    found = wrong_of(module, Edits({"silu": wrong}), calls)
    assert {check.rewrite.function for check in found} == {"prefill.b3.s32"}
    assert len(found) == 2


@pytest.mark.parametrize("name", sorted(OURS))
def test_no_rewrite_of_a_documented_example_is_wrong(name: str):
    given, pipeline, _ = example(OURS[name])
    module = parse(given)
    calls = make_workload(module) if module.programs() else Workload({}, ())
    for item in pipeline:
        assert [str(check) for check in wrong_of(module, item, calls)] == []
        run_pass(item, module)


PIPELINES = (
    ("llama-3.1-8b", "default", "f32"),
    ("llama-3.1-8b", "default{tp=2,outline=true}", "bf16"),
    ("gpt2", "default", "bf16"),
    ("gemma-3-1b", "default{roll_window_cache=true}", "f32"),
    ("gpt-neox-20b", "default{tp=2}", "f32"),
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "text", "element"), PIPELINES)
def test_every_rewrite_of_the_default_pipeline_is_right(name: str, text: str, element: str):
    from graphgen.ir import dtype

    module = build(known_shape(name), dtype(element), mini=True)
    calls = make_workload(module)
    sizes = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
    unfused = False
    for item in parse_passes(text, sizes):
        summary = check_rewrites(module, item, calls)
        open_ones = [
            str(check)
            for check in summary.remarkable
            if check.status in (RewriteStatus.WRONG, RewriteStatus.UNDECIDED)
        ]
        assert open_ones == []
        # Weights that the checkpoint has fused become parameters, which are compared by numbers.
        fused = unfused and item.name == "fuse-projections"
        unfused = unfused or (item.name == "unfuse-projections" and summary.total > 0)
        if item.name in ("cse", "fuse-projections") and not fused:
            status = RewriteStatus.REAL if item.rounding else RewriteStatus.PROVED
            assert summary.counts.get(status, 0) == summary.total
        run_pass(item, module)
