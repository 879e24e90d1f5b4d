"""How far numbers may differ: bits under budget 0, small elements, explained budgets."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.passes.core import Pass, Rewriter
from graphgen.passes.experts.limit_expert_capacity import LimitExpertCapacity
from graphgen.passes.inspect.result_json import verdict_json
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.validate import PassChecks, Verdict, validate
from graphgen.passes.validate.narrow_rounding import DeclaredBudget, explained_budget, unit_of
from graphgen.passes.validate.rewrite_verdict import RewriteStatus
from graphgen.passes.validate.subnormals import subnormals_json, subnormals_text
from graphgen.passes.validate.verdict_text import budget_text, verdict_faults
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse

Change = Callable[[Op, Builder], Sequence[Value]]


@dataclass(frozen=True)
class Changed(Pass):
    """Rewrite the ops of one kind."""

    name: ClassVar[str] = "changed"
    kind: str
    change: Change

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.programs():
            for op in [op for op in function.block if op.name == self.kind]:
                with rewriter.before(function, op) as b:
                    made = self.change(op, b)
                rewriter.replace(function, op, made, f"change-{op.name}")


class Rounding(Changed):
    rounding: ClassVar[float] = 1e-6


class Generous(Changed):
    rounding: ClassVar[float] = 0.1


class Dropping(Changed):
    approximation: ClassVar[str] = "sums are left out"
    approximates: ClassVar[tuple[str, ...]] = ("add",)


def program(*ops: str, element: str = "f32") -> Module:
    lines = "\n  ".join(ops)
    return parse(f"""
module @m level=logical {{
  input %x : {element}[16]
  output %y : f32[16]
}}

func @f phase=main {{
  arg %x : {element}[16]
  {lines}
  return y = %y
}}
""")


def numbers(name: str, *values: float) -> str:
    """A constant of 16 elements: these, and then ones."""
    data = np.array([*values, *[1.0] * (16 - len(values))], np.float32)
    return f"%{name} = constant() value=f32[16](0x{data.tobytes().hex()}) : f32[16]"


def filled(name: str, value: float) -> list[str]:
    return [
        f"%{name}.0 = constant() value=f32[]({value}) : f32[]",
        f"%{name} = broadcast_in_dim(%{name}.0) shape=[16] : f32[16]",
    ]


# -0 and ones, plus zero.
PLUS_ZERO = (numbers("c", -0.0), *filled("z", 0.0))


def validated(module: Module, item: Pass, *, alone: bool = True) -> Verdict:
    (verdict,) = validate(module, [item], make_workload(module), PassChecks(each_rewrite=alone))
    return verdict


def without_zero(op: Op, b: Builder) -> Sequence[Value]:
    return [op.operands[0]]


def test_the_sign_of_zero_is_compared_under_budget_0():
    module = program(*PLUS_ZERO, "%s = add(%c, %z) : f32[16]", "%y = minimum(%s, %x) : f32[16]")
    verdict = validated(module, Changed("add", without_zero))
    assert verdict.rewrites is not None
    (check,) = verdict.rewrites.remarkable
    assert check.status in (RewriteStatus.WRONG, RewriteStatus.IN_CONTEXT)
    assert check.counterexample is not None
    assert "element [0] is 0 before and -0 after" in check.counterexample.text
    # x + -0 is x.
    right = program(numbers("c", -0.0), *filled("z", -0.0), "%y = add(%c, %z) : f32[16]")
    assert validated(right, Changed("add", without_zero)).ok


def test_calls_are_compared_bit_for_bit():
    module = program(*PLUS_ZERO, "%y = add(%c, %z) : f32[16]")
    verdict = validated(module, Changed("add", without_zero), alone=False)
    assert (verdict.state, verdict.rounding.relative, verdict.rounding.bits) == (
        "over budget",
        0.0,
        1,
    )
    assert "1 element differs in the sign of zero" in "".join(verdict_faults([verdict]))
    facts: Any = verdict_json(verdict)
    assert (facts["other_bits"], facts["first"]["other_bits"]) == (1, 1)


def test_infinities_that_a_sign_of_zero_makes_differ_under_any_budget():
    ops = (*PLUS_ZERO, "%s = add(%c, %z) : f32[16]", "%y = divide(%x, %s) : f32[16]")
    verdict = validated(program(*ops), Generous("add", without_zero), alone=False)
    assert verdict.state == "WRONG"


def test_subnormals_are_kept_by_the_comparison():
    def flushed(op: Op, b: Builder) -> Sequence[Value]:
        y = b.emit(op.name, op.operands, dict(op.attrs)).result
        small = b.compare(b.emit("abs", [y]).result, b.full(2.0**-126, y.type), "LT")
        return [b.select(small, b.full(0.0, y.type), y)]

    ops = (numbers("c", *[1e-39] * 8), numbers("o"), "%y = multiply(%c, %o) : f32[16]")
    module = program(*ops)
    for item in (Changed("multiply", flushed), Rounding("multiply", flushed)):
        assert not validated(module, item, alone=False).passed


def test_a_wrong_channel_of_small_numbers_is_seen():
    """Signs are left out of the half of a result that is 1e-10 as large as the other."""

    def without_signs(op: Op, b: Builder) -> Sequence[Value]:
        return [op.operands[0]]

    module = program(
        numbers("c", *[1e-10] * 8),
        numbers("s", *[-1.0] * 8),
        "%m = multiply(%x, %c) : f32[16]",
        "%y = divide(%m, %s) : f32[16]",
    )
    verdict = validated(module, Rounding("divide", without_signs), alone=False)
    assert verdict.state == "WRONG"
    assert verdict.meaning.relative < 1e-9
    assert verdict.meaning.element == 2
    assert "an element is off by 2.0e+00 of its own size" in "".join(verdict_faults([verdict]))


def again(op: Op, b: Builder) -> Sequence[Value]:
    return [b.emit(op.name, op.operands, dict(op.attrs)).result]


def test_a_budget_that_types_do_not_explain_is_not_right():
    module = program("%y = add(%x, %x) : f32[16]")
    verdict = validated(module, Generous("add", again))
    assert (verdict.state, verdict.passed, verdict.ok) == ("budget not explained", True, False)
    assert [*budget_text([verdict])] == []
    (text,) = verdict_faults([verdict])
    assert text.startswith("budget not explained: changed")
    facts: Any = verdict_json(verdict)
    assert facts["declared_budget"] == 0.1
    assert 0 < facts["explained_budget"] < 1e-4
    assert json.dumps(facts)
    assert validated(module, Rounding("add", again)).ok


def test_the_project_s_own_budgets_are_listed_only():
    module = program("%y = add(%x, %x) : f32[16]")
    found = DeclaredBudget.of(Legalize(), module, module)
    assert (found.plugin, found.is_explained) == (False, False)
    verdict = validated(module, Legalize())
    assert verdict.ok
    assert [text.partition(":")[0] for text in budget_text([verdict])] == [
        "budgets above what the element types explain, in brackets"
    ]


def test_wider_types_explain_less():
    wide = program("%y = add(%x, %x) : f32[16]")
    narrow = program(
        "%a = add(%x, %x) : bf16[16]", "%y = convert(%a) dtype=f32 : f32[16]", element="bf16"
    )
    assert explained_budget(wide, wide) < 1e-4 < 5e-2 < explained_budget(wide, narrow) < 0.1
    assert unit_of(wide.function("f").block) == 2.0**-24
    assert unit_of(narrow.function("f").block) == 2.0**-8


def test_an_approximation_covers_the_ops_that_it_names_only():
    def dropped(op: Op, b: Builder) -> Sequence[Value]:
        return [op.operands[0]]

    ops = ("%a = add(%x, %x) : f32[16]", "%y = multiply(%a, %a) : f32[16]")
    within = validated(program(*ops), Dropping("add", dropped))
    assert (within.state, within.passed) == ("approximate", True)
    # No rewrite is to blame for what the pass says that it changes.
    assert (within.guilty, within.first) == (None, None)
    assert within.rewrites is not None
    assert within.rewrites.counts[RewriteStatus.APPROXIMATED] == 1
    outside = validated(program(*ops), Dropping("multiply", dropped))
    assert not outside.passed
    assert outside.rewrites is not None
    assert outside.rewrites.wrong is not None
    assert LimitExpertCapacity.approximates == ("experts",)


def test_targets_say_whether_they_flush_subnormals():
    assert subnormals_text([Changed("add", again)]) == ""
    passes = [Legalize(target="cpu"), Legalize(target="trn2")]
    assert subnormals_text(passes) == (
        "subnormal numbers: kept by the comparison; cpu flushes them to zero, "
        "trn2 is not known to keep them\n"
    )
    facts: Any = subnormals_json(passes)
    assert facts["targets"]["cpu"]["flushes"] is True
    assert facts["targets"]["trn2"]["flushes"] is None
    assert facts["targets"]["trn2"]["source"]


@pytest.mark.parametrize("part", ["real", "imag"])
def test_a_complex_part_that_is_negated_is_seen(part: str):
    module = parse(f"""
module @m level=logical {{
  input %x : c64[4]
  output %y : f32[4]
}}

func @f phase=main {{
  arg %x : c64[4]
  %y = {part}(%x) : f32[4]
  return y = %y
}}
""")

    def negated(op: Op, b: Builder) -> Sequence[Value]:
        made = b.emit(op.name, op.operands, dict(op.attrs)).result
        return [b.emit("negate", [made]).result]

    verdict = validated(module, Changed(part, negated))
    assert verdict.state == "WRONG"
    assert verdict.rewrites is not None
    assert verdict.rewrites.wrong is not None
    example = verdict.rewrites.wrong.counterexample
    assert example is not None
    assert "i" in example.values[0].partition("=")[2]
    drawn = make_workload(module).calls[0].inputs["x"]
    assert np.iscomplexobj(drawn)
    assert (np.imag(drawn) != 0).any()
