"""Counterexamples of windows: reached by a call, excluded by ranges or proofs, or searched for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from graphgen.build import Builder
from graphgen.cli.validate_report import validation_view
from graphgen.ir import Module, Op, Value
from graphgen.ir.dtype import bf16, f16, f32
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, Rewriter, run_pipeline
from graphgen.passes.inspect.result_json import verdict_json
from graphgen.passes.pipelines import parse as parse_passes
from graphgen.passes.programs.specialize import Specialize
from graphgen.passes.quantization.quantize_activations import QuantizeActivations
from graphgen.passes.validate import PassChecks, Verdict, validate
from graphgen.passes.validate.rewrite_checker import check_rewrites
from graphgen.passes.validate.rewrite_verdict import RewriteCheck, RewriteStatus
from graphgen.passes.validate.verdict_text import verdict_faults, verdict_table
from graphgen.passes.weights.lift import LiftWeights
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.oracles.workloads import one_call

Change = Callable[[Op, Builder], Sequence[Value] | None]


@dataclass(frozen=True)
class Changes(Pass):
    """Rewrite ops of some kinds, where the function of the kind gives other values."""

    name: ClassVar[str] = "changes"
    changes: dict[str, Change] = field(default_factory=dict[str, Change])

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.programs():
            for op in list(function.block):
                change = self.changes.get(op.name)
                if change is None or rewriter.exhausted:
                    continue
                with rewriter.before(function, op) as b:
                    made = change(op, b)
                if made is not None:
                    rewriter.replace(function, op, made, f"change-{op.name}")


class RoundedChanges(Changes):
    """The same, of a pass that may round."""

    rounding: ClassVar[float] = 1e-6


def validated(module: Module, item: Pass) -> Verdict:
    (verdict,) = validate(module, [item], one_call(module), PassChecks(each_rewrite=True))
    return verdict


def checks_with(verdict: Verdict, status: RewriteStatus) -> list[RewriteCheck]:
    assert verdict.rewrites is not None
    return verdict.rewrites.having(status)


def program(element: str, *ops: str, domain: str = "") -> Module:
    lines = "\n  ".join(ops)
    return parse(f"""
module @m level=logical {{
  input %x : {element}[16]{domain}
  output %y : {element}[16]
}}

func @f phase=main {{
  arg %x : {element}[16]
  {lines}
  return y = %y
}}
""")


def constant(name: str, value: int) -> str:
    return f"%{name} = constant() value=s32[]({value}) : s32[]"


def spread(name: str, of: str) -> str:
    return f"%{name} = broadcast_in_dim(%{of}) shape=[16] : s32[16]"


def operand(op: Op, b: Builder) -> Sequence[Value]:
    return [op.operands[0]]


def remainder_as_mask(op: Op, b: Builder) -> Sequence[Value]:
    x = op.operands[0]
    return [b.binary("and", x, b.full(7, x.type))]


def absolute_dropped(op: Op, b: Builder) -> Sequence[Value]:
    return [op.operands[0]]


EIGHT = (constant("c", 8), spread("e", "c"))
# Op, the program's lines, its change. Each differs for an integer that the script does not have.
DROPPED: dict[str, tuple[str, Sequence[str], Change]] = {
    "remainder of a negative number": (
        "remainder",
        (*EIGHT, "%y = remainder(%x, %e) : s32[16]"),
        remainder_as_mask,
    ),
    "absolute value": ("abs", ("%y = abs(%x) : s32[16]",), absolute_dropped),
    "clamp from below": (
        "maximum",
        (constant("c", 0), spread("e", "c"), "%y = maximum(%x, %e) : s32[16]"),
        operand,
    ),
    "clamp from above": (
        "minimum",
        (constant("c", 6), spread("e", "c"), "%y = minimum(%x, %e) : s32[16]"),
        operand,
    ),
    "behind another op": (
        "minimum",
        (
            *(constant("c", 6), spread("e", "c"), "%n = negate(%x) : s32[16]"),
            *("%m = negate(%n) : s32[16]", "%y = minimum(%m, %e) : s32[16]"),
        ),
        operand,
    ),
}


@pytest.mark.parametrize("name", DROPPED)
def test_a_value_of_the_type_of_an_argument_is_a_counterexample(name: str):
    kind, lines, change = DROPPED[name]
    verdict = validated(program("s32", *lines), Changes({kind: change}))
    (check,) = checks_with(verdict, RewriteStatus.WRONG)
    assert (verdict.state, verdict.passed, verdict.ok) == ("WRONG rewrite", False, False)
    assert check.reason == "for arguments that a call of @f may have"
    found = check.counterexample
    assert found is not None
    assert found.before != found.after


@pytest.mark.parametrize("name", DROPPED)
def test_a_domain_excludes_the_counterexample(name: str):
    kind, lines, change = DROPPED[name]
    module = program("s32", *lines, domain=" domain=[0,6]")
    verdict = validated(module, Changes({kind: change}))
    assert verdict.state == "ok"
    assert verdict.rewrites is not None
    assert verdict.rewrites.right == verdict.rewrites.total == 1


MASKED = (constant("c", 7), spread("e", "c"), "%m = and(%x, %e) : s32[16]")


def test_ranges_of_operands_exclude_the_counterexample_which_is_kept():
    module = program("s32", *MASKED, "%y = abs(%m) : s32[16]")
    verdict = validated(module, Changes({"abs": absolute_dropped}))
    (check,) = checks_with(verdict, RewriteStatus.IN_CONTEXT)
    assert check.reason == "for the values that its operands can have"
    assert check.counterexample is not None
    assert check.counterexample.after.real < 0
    assert verdict.rewrites is not None
    assert (verdict.state, verdict.ok, verdict.rewrites.right) == ("ok", True, 1)


def test_a_range_that_holds_the_counterexample_excludes_nothing():
    # abs of the smallest number is that number: its low end is not 0.
    module = program("s32", "%a = abs(%x) : s32[16]", "%y = abs(%a) : s32[16]")

    def second(op: Op, b: Builder) -> Sequence[Value] | None:
        x = op.operands[0]
        return None if x.name == "x" else [b.maximum(x, b.full(0, x.type))]

    verdict = validated(module, Changes({"abs": second}))
    (check,) = checks_with(verdict, RewriteStatus.WRONG)
    assert check.counterexample is not None
    assert check.counterexample.before == -(2**31)


# x (x + 1) is even, which no range says.
EVEN = (
    *(constant("c", 1), spread("e", "c"), "%n = add(%x, %e) : s32[16]"),
    *("%p = multiply(%x, %n) : s32[16]", "%y = and(%p, %e) : s32[16]"),
)


def zero(op: Op, b: Builder) -> Sequence[Value]:
    return [b.full(0, op.result.type)]


def test_a_counterexample_that_no_call_reaches_is_searched_for_and_shown():
    verdict = validated(program("s32", *EVEN), Changes({"and": zero}))
    (check,) = checks_with(verdict, RewriteStatus.SEARCHED)
    assert verdict.state == "right in its context (searched)"
    assert (verdict.passed, verdict.ok) == (True, False)
    assert verdict.left_open == {"searched"}
    assert verdict.rewrites is not None
    assert (verdict.rewrites.right, verdict.rewrites.searched) == (0, 1)
    assert check.reason.startswith("windows of ")
    assert check.reason.endswith("calls of @f agree")
    assert check.counterexample is not None


def test_table_text_json_and_page_have_it():
    verdict = validated(program("s32", *EVEN), Changes({"and": zero}))
    state = "right in its context (searched)"
    (row,) = verdict_table([verdict]).rows
    assert row[-2:] == ("0/1, 1 searched", state)
    (text,) = verdict_faults([verdict])
    assert text.startswith(f"{state}: changes #1: change-and at %y = and(%p, %e)")
    assert "calls of @f agree" in text
    assert " : s32[16] = [" in text
    facts: Any = verdict_json(verdict)
    assert (facts["state"], facts["ok"]) == (state, False)
    rewrites = facts["rewrites"]
    assert rewrites["counts"] == {state: 1}
    (one,) = rewrites["remarkable"]
    assert one["counterexample"].startswith("differs: element [")
    page = validation_view([verdict], [])
    assert (page["states"], page["faults"]) == ([state], [[text]])


def root_of_square(op: Op, b: Builder) -> Sequence[Value] | None:
    square = op.operands[0].producer("multiply")
    return None if square is None else [square.operands[0]]


def test_values_that_determine_each_other_are_not_drawn_independently():
    # The window of sqrt alone has %s and %a, of which %s is the square.
    ops = ("%a = abs(%x) : f32[16]", "%s = multiply(%a, %a) : f32[16]")
    module = program("f32", *ops, "%y = sqrt(%s) : f32[16]")
    verdict = validated(module, RoundedChanges({"sqrt": root_of_square}))
    (check,) = checks_with(verdict, RewriteStatus.WRONG)
    # The square of what is small, or large, has no root that is near.
    assert check.counterexample is not None
    assert abs(check.counterexample.after.real) not in (0.0, 1.0)


def with_limit(op: Op, b: Builder) -> Sequence[Value]:
    x, y = op.operands
    return [b.subtract(b.minimum(x, b.full(7.0, x.type)), y)]


def beside_each_other(*ops: str) -> Module:
    """``%y`` is ``%f``, which the ops compute, less ``%a``."""
    lines = "\n  ".join(ops)
    return parse(f"""
module @m level=logical {{
  input %x : f32[16]
  input %z : f32[16]
  output %y : f32[16]
}}

func @f phase=main {{
  arg %x : f32[16]
  arg %z : f32[16]
  %c = constant() value=f32[](7.0) : f32[]
  %e = broadcast_in_dim(%c) shape=[16] : f32[16]
  %a = negate(%x) : f32[16]
  {lines}
  %y = subtract(%f, %a) : f32[16]
  return y = %y
}}
""")


SHARE = (
    "%s = multiply(%t, %t) : f32[16]",
    "%d = add(%s, %e) : f32[16]",
    "%f = divide(%s, %d) : f32[16]",
)
MIXED = "%t = add(%a, %z) : f32[16]"


@pytest.mark.parametrize("steps", [1, 150])
def test_a_value_that_another_one_determines_is_computed_of_it(steps: int):
    names = ["a", *[f"t{step}" for step in range(1, steps)], "t"]
    ops = [f"%{new} = tanh(%{old}) : f32[16]" for old, new in pairwise(names)]
    module = beside_each_other(*ops, *SHARE)
    verdict = validated(module, RoundedChanges({"subtract": with_limit}))
    assert verdict.state == "ok"


def test_samples_of_a_window_that_is_closed_over_more_exclude_no_counterexample():
    # The share is below 1, which neither ranges nor a proof show.
    verdict = validated(beside_each_other(MIXED, *SHARE), RoundedChanges({"subtract": with_limit}))
    (check,) = checks_with(verdict, RewriteStatus.SEARCHED)
    assert check.counterexample is not None
    assert verdict.state == "right in its context (searched)"


def test_ranges_exclude_what_a_closed_window_does_not_show():
    module = beside_each_other(MIXED, "%f = sine(%t) : f32[16]")
    verdict = validated(module, RoundedChanges({"subtract": with_limit}))
    assert verdict.rewrites is not None
    assert verdict.rewrites.counts == {RewriteStatus.IN_CONTEXT: 1}


def test_a_proof_of_the_wider_window_excludes_the_counterexample():
    ops = (constant("c", 7), spread("e", "c"), "%p = compare(%x, %e) direction=GT : pred[16]")
    ops += ("%m = convert(%p) dtype=s32 : s32[16]", "%n = negate(%m) : s32[16]")
    ops += ("%o = negate(%n) : s32[16]",)
    module = program("s32", *ops, "%y = minimum(%o, %e) : s32[16]")
    verdict = validated(module, Changes({"minimum": operand}))
    assert verdict.rewrites is not None
    assert verdict.rewrites.right == 1
    assert verdict.state == "ok"


def through_bf16(op: Op, b: Builder) -> Sequence[Value]:
    product = b.emit(op.name, op.operands, dict(op.attrs)).result
    return [b.convert(b.convert(product, bf16), f32)]


def test_a_proof_without_rounding_excludes_no_counterexample_of_rounding():
    # Products of -1, 0 and 1 are exact in bf16, those of other numbers are not.
    module = program("f32", "%a = sign(%x) : f32[16]", "%y = multiply(%a, %a) : f32[16]")
    verdict = validated(module, Changes({"multiply": through_bf16}))
    (check,) = checks_with(verdict, RewriteStatus.SEARCHED)
    assert check.counterexample is not None
    assert check.counterexample.rounding


NEGATED_TWICE = ("%a = negate(%x) : s32[16]", "%y = negate(%a) : s32[16]")


def one_more(op: Op, b: Builder) -> Sequence[Value] | None:
    x = op.operands[0]
    return [b.binary("add", b.op("negate", x), b.full(1, x.type))] if x.name == "x" else None


def test_two_rewrites_that_are_wrong_together_for_other_integers():
    def second(op: Op, b: Builder) -> Sequence[Value] | None:
        first = one_more(op, b)
        if first is not None:
            return first
        a = op.operands[0]
        again = b.binary("add", b.op("negate", a), b.full(1, a.type))
        return [b.minimum(again, b.full(6, a.type))]

    verdict = validated(program("s32", *NEGATED_TWICE), Changes({"negate": second}))
    found = checks_with(verdict, RewriteStatus.WRONG)
    assert [check.rewrite.number for check in found] == [1, 2]


def test_two_rewrites_that_are_right_together_for_all_values():
    def second(op: Op, b: Builder) -> Sequence[Value] | None:
        first = one_more(op, b)
        a = op.operands[0]
        return first or [b.binary("add", b.op("negate", a), b.full(1, a.type))]

    verdict = validated(program("s32", *NEGATED_TWICE), Changes({"negate": second}))
    assert verdict.rewrites is not None
    assert verdict.rewrites.counts == {RewriteStatus.TOGETHER: 2}
    assert verdict.state == "ok"


def test_two_rewrites_that_are_wrong_together_for_other_floats():
    # What the floats of the call do not show: a number over 100.
    def second(op: Op, b: Builder) -> Sequence[Value] | None:
        x = op.operands[0]
        if x.name == "x":
            return [b.binary("multiply", b.op("negate", x), 2.0)]
        half = b.binary("multiply", b.op("negate", x), 0.5)
        return [b.minimum(half, b.full(100.0, x.type))]

    lines = [line.replace("s32", "f32") for line in NEGATED_TWICE]
    verdict = validated(program("f32", *lines), Changes({"negate": second}))
    assert verdict.rewrites is not None
    assert verdict.rewrites.counts[RewriteStatus.WRONG] == 2
    assert verdict.state == "WRONG rewrite"


def at_most_100(b: Builder, value: Value) -> Value:
    return b.minimum(value, b.full(100.0, value.type))


class ClampedWeights(LiftWeights):
    """Prepare a weight clamped at 100, which no weight of the script reaches."""

    def run(self, module: Module, rewriter: Rewriter) -> None:
        super().run(module, rewriter)
        function = module.function("weights.global")
        (name, value), *others = function.outputs
        with Builder(function) as b:
            function.outputs = [(name, at_most_100(b, value)), *others]


class ClampedActivations(Specialize):
    """Clamp an activation of each copy at 100, without a record."""

    def run(self, module: Module, rewriter: Rewriter) -> None:
        super().run(module, rewriter)
        for function in module.programs():
            op = next(op for op in function.block if op.name == "silu")
            (user,) = op.result.users
            with Builder(function, before=user) as b:
                clamped = at_most_100(b, op.result)
                user.set_operands(tuple([clamped if v is op.result else v for v in user.operands]))


class ReplacedTwice(ClampedActivations):
    """Beside that, replace a sum of each copy, and what replaced it."""

    def run(self, module: Module, rewriter: Rewriter) -> None:
        super().run(module, rewriter)
        for function in module.programs():
            op = next(op for op in function.block if op.name == "add")
            for _ in range(2):
                with rewriter.before(function, op) as b:
                    made = b.emit("add", op.operands, dict(op.attrs))
                rewriter.replace(function, op, [made.result], "again")
                op = made


def lifted_weights() -> Module:
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    run_pipeline(module, parse_passes("canonicalize,fuse-projections"))
    return module


def test_a_prepared_weight_that_is_right_for_the_weights_of_the_script_only():
    module = lifted_weights()
    found = check_rewrites(module, ClampedWeights(), make_workload(module))
    assert set(found.counts) == {RewriteStatus.EQUAL, RewriteStatus.WRONG}
    check = found.having(RewriteStatus.WRONG)[0]
    assert check.reason == "differs with drawn weights; agrees with the weights of the script"
    assert check.counterexample is not None
    assert (check.counterexample.before, check.counterexample.after) == (1000.0, 100.0)
    right = check_rewrites(module, LiftWeights(), make_workload(module))
    assert set(right.counts) == {RewriteStatus.EQUAL}


def test_a_rebuilt_function_that_is_right_for_the_weights_of_the_script_only():
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    item = ClampedActivations(batch=(3,), context=(8,), tokens=(8,))
    found = check_rewrites(module, item, make_workload(module))
    check, other = found.having(RewriteStatus.WRONG)
    assert (check.rewrite.function, other.rewrite.function) == ("prefill.b3.s8", "decode.b3.c8")
    assert check.reason == "differs with drawn weights; agrees with the calls of the script"
    assert check.counterexample is not None
    assert "multiply" in check.counterexample.program
    right_item = Specialize(batch=(3,), context=(8,), tokens=(8,))
    right = check_rewrites(module, right_item, make_workload(module))
    assert not right.having(RewriteStatus.WRONG)


def test_a_rebuilt_function_is_compared_although_some_values_stand_for_none_before():
    """What replaced a replacement stands for a value that neither run has."""
    module = build(known_shape("llama-3.1-8b"), f32, mini=True, phases=("decode",))
    found = check_rewrites(module, ReplacedTwice(batch=(1,), tokens=(8,)), make_workload(module))
    reasons = [check.reason for check in found.having(RewriteStatus.WRONG)]
    assert reasons == ["differs with drawn weights; agrees with the calls of the script"]


class FiniteChanges(Changes):
    """The same, of a pass that is right for finite floats only."""

    finite_math_only: ClassVar[bool] = True


class HalfChanges(Changes):
    """The same, of a pass that may round to f16."""

    rounding: ClassVar[float] = 2e-3


class FiniteHalfChanges(HalfChanges):
    """The same, right for finite floats only."""

    finite_math_only: ClassVar[bool] = True


def at_least_in_f16(least: float) -> Change:
    """The maximum with a number, in f16: where x is beyond its range, that is the number."""

    def change(op: Op, b: Builder) -> Sequence[Value]:
        x = b.convert(op.operands[0], f16)
        return [b.convert(b.maximum(x, b.full(least, x.type)), f32)]

    return change


BELOW_ALL = (
    "%c = constant() value=f32[](-3e38) : f32[]",
    "%e = broadcast_in_dim(%c) shape=[16] : f32[16]",
)
# By elements, and of a window that is compared as a whole.
MAXIMA = {
    "elements": "%y = maximum(%x, %e) : f32[16]",
    "a sort": "%m = maximum(%x, %e) : f32[16]\n  %y = sort(%m) dimension=0 : f32[16]",
}


@pytest.mark.parametrize("form", MAXIMA)
def test_a_pass_for_finite_floats_may_overflow_on_the_way(form: str):
    # The result is finite: that of a number that is not.
    lowest = {"maximum": at_least_in_f16(-65504.0)}
    module = program("f32", *BELOW_ALL, MAXIMA[form])
    assert validated(module, FiniteHalfChanges(lowest)).state == "ok"
    assert validated(module, HalfChanges(lowest)).state == "WRONG rewrite"


@pytest.mark.parametrize("form", MAXIMA)
def test_what_is_in_the_range_is_compared_beside_what_overflows(form: str):
    changes = {"maximum": at_least_in_f16(-30000.0)}
    verdict = validated(program("f32", *BELOW_ALL, MAXIMA[form]), FiniteHalfChanges(changes))
    assert verdict.state == "WRONG rewrite"


# Places 2 and 3 of %p are padding, which %y multiplies by 0.
PADDED = """
module @m level=logical {
  input %x : f32[2]
  input %w : f32[2]
  output %y : f32[4]
}

func @f phase=main {
  arg %x : f32[2]
  arg %w : f32[2]
  %i = constant() value=s32[4](0,1,-1,-1) : s32[4]
  %p = take(%x, %i) dimension=0 : f32[4]
  %q = take(%w, %i) dimension=0 : f32[4]
  %y = multiply(%p, %q) : f32[4]
  return y = %y
}
"""


def padded_by(first: float) -> Change:
    """Padding by 7 in the place of ``take`` of x, and ``first`` times what is not padding."""

    def change(op: Op, b: Builder) -> Sequence[Value] | None:
        x = op.operands[0]
        if x.name != "x":
            return None
        scaled = b.binary("multiply", x, first)
        return [b.concatenate([scaled, b.full(7.0, x.type)], 0)]

    return change


def test_padding_of_a_pass_for_finite_floats_is_compared_by_calls():
    verdict = validated(parse(PADDED), FiniteChanges({"take": padded_by(1.0)}))
    (check,) = checks_with(verdict, RewriteStatus.UNCHECKED)
    assert check.reason.startswith("it differs in padding alone")
    assert verdict.state == "ok"


def test_padding_hides_no_difference_beside_it():
    # The difference in padding is the larger one.
    verdict = validated(parse(PADDED), FiniteChanges({"take": padded_by(1.001)}))
    assert verdict.rewrites is not None
    assert verdict.rewrites.wrong is not None


def test_another_pass_may_not_fill_padding():
    verdict = validated(parse(PADDED), Changes({"take": padded_by(1.0)}))
    assert verdict.state == "WRONG rewrite"


def zero_for_nan(op: Op, b: Builder) -> Sequence[Value] | None:
    key, ids = op.operands
    if key.producer("select") is not None:
        return None
    known = b.select(b.compare(key, key, "EQ"), key, b.full(0.0, key.type))
    return b.emit("sort", [known, ids], dict(op.attrs)).results


def test_nan_has_its_place_in_a_sort_of_ids():
    module = parse("""
module @m level=logical {
  input %x : f32[8]
  output %y : f32[8]
  output %p : s32[8]
}

func @f phase=main {
  arg %x : f32[8]
  %i = iota() dtype=s32 shape=[8] dimension=0 : s32[8]
  %y, %p = sort(%x, %i) dimension=0 : f32[8], s32[8]
  return y = %y
  return p = %p
}
""")
    verdict = validated(module, Changes({"sort": zero_for_nan}))
    assert verdict.state in ("WRONG", "WRONG rewrite")


def test_products_are_approximated_by_static_scales_only():
    static = QuantizeActivations(scale="static")
    assert (static.approximated, QuantizeActivations().approximated) == (("dot_general",), ())
