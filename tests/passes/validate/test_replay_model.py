"""Refutations fail a pass, with arguments on which NumPy computes something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from graphgen.build import Builder
from graphgen.cli.validate_report import validation_view
from graphgen.ir import Module, Op, Value
from graphgen.ir.dims import Poly
from graphgen.ir.dtype import bf16, f32
from graphgen.passes.core import Pass, Rewriter
from graphgen.passes.inspect.result_json import verdict_json
from graphgen.passes.proof.elements import RULES
from graphgen.passes.proof.pass_proof import PROVED, PassProof, Proof, Status
from graphgen.passes.proof.prove_pass import prove_pass
from graphgen.passes.validate import PassChecks, Verdict, validate
from graphgen.passes.validate.replay_model import replayed
from graphgen.passes.validate.rewrite_verdict import Counterexample
from graphgen.passes.validate.verdict_text import proof_lines, verdict_faults, verdict_table
from graphgen.text import parse
from tests.oracles.workloads import one_call

Change = Callable[[Op, Builder], Sequence[Value]]


@dataclass(frozen=True)
class Changed(Pass):
    """Rewrite the first op of a kind."""

    name: ClassVar[str] = "changed"
    kind: str = ""
    change: Change = field(default=lambda op, b: [op.operands[0]])

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.programs():
            found = [op for op in function.block if op.name == self.kind]
            for op in found[:1] if not rewriter.exhausted else []:
                with rewriter.before(function, op) as b:
                    made = self.change(op, b)
                rewriter.replace(function, op, made, "change")


class Approximating(Changed):
    """The same, of a pass that says so."""

    approximation: ClassVar[str] = "large numbers are cut off"


def program(element: str, *ops: str, size: str = "16", result: str = "") -> Module:
    lines = "\n  ".join(ops)
    output = element if "compare" not in ops[-1] else "pred"
    return parse(f"""
module @m level=logical {{
  input %x : {element}[{size}]
  output %y : {output}[{result or size}]
}}

func @f phase=main {{
  arg %x : {element}[{size}]
  {lines}
  return y = %y
}}
""")


def limit(value: int) -> list[str]:
    return [
        f"%c = constant() value=s32[]({value}) : s32[]",
        "%e = broadcast_in_dim(%c) shape=[16] : s32[16]",
    ]


def validated(module: Module, item: Pass, *, alone: bool = True) -> Verdict:
    checks = PassChecks(prove=True, each_rewrite=alone)
    (verdict,) = validate(module, [item], one_call(module), checks)
    return verdict


def example_of(before: Module, after: Module) -> Counterexample:
    """The counterexample of a module of one program, which is refuted."""
    proof, examples = replayed(prove_pass(before, after), before, after)
    assert [one.status for one in proof.programs.values()] == [Status.REFUTED]
    (example,) = examples.values()
    return example


REFUTED: dict[str, tuple[Module, Changed]] = {
    "minimum": (
        program("s32", *limit(600), "%y = minimum(%x, %e) : s32[16]"),
        Changed("minimum"),
    ),
    "maximum": (
        program("s32", *limit(-70), "%y = maximum(%x, %e) : s32[16]"),
        Changed("maximum"),
    ),
    "compare": (
        program("s32", *limit(100), "%y = compare(%x, %e) direction=LT : pred[16]"),
        Changed("compare", lambda op, b: [b.compare(op.operands[0], op.operands[1], "LE")]),
    ),
}


@pytest.mark.parametrize("name", REFUTED)
def test_a_refuted_pass_fails_with_arguments_that_differ(name: str):
    module, item = REFUTED[name]
    verdict = validated(module, item, alone=False)
    assert (verdict.state, verdict.passed) == ("refuted", False)
    assert verdict.proof is not None
    (example,) = verdict.examples.values()
    assert example.before != example.after
    (given,) = example.values
    assert " at [" in given


def test_table_text_json_and_page_say_refuted():
    verdict = validated(*REFUTED["minimum"], alone=False)
    assert verdict_table([verdict]).rows[0][-1] == "refuted"
    (text,) = verdict_faults([verdict])
    assert text.startswith("refuted: changed")
    assert ": y of @f, at i0=" in text
    assert " is 600 before and " in text
    facts: Any = verdict_json(verdict)
    assert (facts["state"], facts["ok"]) == ("refuted", False)
    proof = facts["proof"]["f"]
    assert proof["status"] == "refuted"
    assert proof["example"].startswith("differs: element [")
    page = validation_view([verdict], [])
    assert (page["states"], page["faults"]) == (["refuted"], [[text]])
    heading = next(part for part in proof_lines([verdict]) if isinstance(part, str))
    assert "proved" not in heading


def test_sizes_that_are_symbols_are_small():
    before = program("f32", "%y = reverse(%x) dimensions=[0] : f32[N]", size="N")
    after = program("f32", "%y = negate(%x) : f32[N]", size="N")
    (undecided,) = prove_pass(before, after).programs.values()
    assert undecided.status is Status.UNDECIDED
    after = parse(
        """
module @m level=logical {
  input %x : f32[N]
  output %y : f32[N]
}

func @f phase=main {
  arg %x : f32[N]
  return y = %x
}
"""
    )
    example = example_of(before, after)
    assert 2 <= example.sizes["N"] <= 8
    assert example.before != example.after


def test_truth_values_of_a_model():
    before = program("pred", "%n = not(%x) : pred[4]", "%y = not(%n) : pred[4]", size="4")
    after = program("pred", "%n = not(%x) : pred[4]", "%y = or(%x, %n) : pred[4]", size="4")
    example = example_of(before, after)
    assert (example.before, example.after) == (0.0, 1.0)


def test_a_refutation_that_numpy_does_not_confirm_is_an_error_of_the_prover(
    monkeypatch: pytest.MonkeyPatch,
):
    right = RULES["negate"]

    def wrong(*args: Any) -> Any:
        found = right(*args)
        return found + 1 if isinstance(found, int | Poly) else found

    monkeypatch.setitem(RULES, "negate", wrong)
    module = program("s32", "%a = negate(%x) : s32[16]", "%y = negate(%a) : s32[16]")

    def as_difference(op: Op, b: Builder) -> Sequence[Value]:
        x = op.operands[0]
        return [b.binary("subtract", b.full(0, x.type), x)]

    verdict = validated(module, Changed("negate", as_difference), alone=False)
    assert (verdict.state, verdict.passed) == ("prover error", False)
    (text,) = verdict_faults([verdict])
    assert text.startswith(
        "prover error: this model of the solver is not a counterexample: changed"
    )
    assert "both programs compute the same in NumPy" in text
    facts: Any = verdict_json(verdict)
    assert facts["proof"]["f"]["status"] == "refuted wrongly"


def test_an_approximation_may_be_refuted():
    module, item = REFUTED["minimum"]
    verdict = validated(module, Approximating(item.kind, item.change), alone=False)
    assert (verdict.state, verdict.passed) == ("approximate", True)


def test_nothing_is_proved_beside_a_counterexample_of_rounding():
    def through_bf16(op: Op, b: Builder) -> Sequence[Value]:
        made = b.emit(op.name, op.operands, dict(op.attrs)).result
        return [b.convert(b.convert(made, bf16), f32)]

    module = program("f32", "%y = multiply(%x, %x) : f32[16]")
    verdict = validated(module, Changed("multiply", through_bf16))
    assert verdict.state == "over budget"
    assert verdict.proof is not None
    (proof,) = verdict.proof.programs.values()
    assert (proof.status, proof.rounding) == (Status.REAL, "convert")
    (table,) = [part for part in proof_lines([verdict]) if not isinstance(part, str)]
    assert [row[1:] for row in table.rows] == [
        ("0 of 1, 1 in real arithmetic", f"@f {proof}"),
    ]
    assert str(proof) == "equal in real arithmetic: y; rounding differs at convert"
    facts: Any = verdict_json(verdict)
    assert facts["proof"]["f"]["status"] == "equal in real arithmetic"
    assert facts["proof"]["f"]["rounding"] == "convert"


def test_no_proof_in_real_arithmetic_stands_beside_a_counterexample_of_meaning():
    proof = PassProof({"f": Proof(Status.REAL, rounding="convert"), "g": PROVED})
    found = proof.disputed({"f": "the numbers of the calls differ", "g": "rewrite #1 differs"})
    assert {one.status for one in found.programs.values()} == {Status.UNDECIDED}


def test_signs_of_zero_are_replayed():
    ops = (
        "%c = constant() value=f32[]({}0.0) : f32[]",
        "%y = pad(%x, %c) low=[0] high=[1] : f32[5]",
    )
    before, after = (
        program("f32", ops[0].format(sign), ops[1], size="4", result="5") for sign in ("", "-")
    )
    example = example_of(before, after)
    assert (str(example.before), str(example.after)) == ("0.0", "-0.0")


def test_a_program_without_a_counterexample_stays_proved():
    text = "\n".join(
        f"func @{name} phase={name} {{\n  arg %x : f32[4]\n  %a = {op}(%x) : f32[4]\n"
        "  %b = negate(%a) : f32[4]\n  return y = %b\n}\n"
        for name, op in (("first", "sine"), ("second", "cosine"))
    )
    head = "module @m level=logical {\n  input %x : f32[4]\n  output %y : f32[4]\n}\n\n"
    module = parse(head + text)
    verdict = validated(module, Changed("sine", lambda op, b: [b.op("tanh", *op.operands)]))
    assert verdict.state == "WRONG"
    assert verdict.proof is not None
    found = {name: proof.status for name, proof in verdict.proof.programs.items()}
    assert found == {"first": Status.UNDECIDED, "second": Status.PROVED}
