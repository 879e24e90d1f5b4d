"""Programs of several steps: the model's decode program applied as often, and what is not that."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from graphgen.eval import Array
from graphgen.exec.decode_steps import step_inputs, takes_part
from graphgen.ir import Function, Literal, Module, Op, attrs_of
from graphgen.ir.clone import clone_module
from graphgen.ir.dims import Poly
from graphgen.passes.proof.chosen_tokens import MEANING
from graphgen.passes.proof.interface_relation import ACTIVE
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.refinement_result import Claim, RefinementProof
from graphgen.passes.proof.step_programs import WITHIN, StepsProof, steps_of
from graphgen.passes.proof.terms import Node
from tests.matrix.cells import cell_run, compiled
from tests.matrix.proofs import nearest
from tests.passes.proof.rule_checks import TermValues

ROWS, COUNT = 4, 2


@cache
def pair(sampling: str = "logits and best") -> tuple[Module, Module]:
    """A model, and its programs of one step and of two on two ranks."""
    values = {"launches": "several steps", "sampling": sampling, "phases": "decode alone"}
    cell = nearest(values)
    assert cell is not None
    run = cell_run(cell, one_layer=True)
    module = compiled(run)
    programs = [f.name for f in module.programs() if f.phase == "steps"]
    for name in programs[1:]:
        del module.functions[name]
    return run.module, module


def steps_in(module: Module) -> Function:
    (found,) = [f for f in module.programs() if f.phase == "steps"]
    return found


def claims_of(found: RefinementProof, module: Module) -> list[Claim]:
    name = steps_in(module).name
    return [claim for claim in found.claims if claim.program == name]


@pytest.mark.parametrize("sampling", ["logits and best", "best", "drawn"])
def test_two_steps_are_the_model_applied_twice(sampling: str) -> None:
    model, module = pair(sampling)
    found = prove_refinement(model, module)
    assert found.complete, found.open
    claims = claims_of(found, module)
    assert {claim.output for claim in claims} == {n for n, _ in steps_in(module).outputs}
    # What is promised, and what the tokens mean that the model does not give.
    assert WITHIN in found.assumptions
    assert (MEANING in found.assumptions) == (sampling == "logits and best")
    # Places whose rounding differs are those of one step.
    assert {claim.status for claim in claims} == {Status.REAL}
    assert all(claim.rounding for claim in claims)


def calls(module: Module) -> list[Op]:
    return [op for op in steps_in(module).block if op.name == "call"]


def operand_of(module: Module, number: int, name: str) -> int:
    """The place of an input among the operands of a call."""
    call = calls(module)[number]
    step = module.function(call.attrs.text("to_apply"))
    return [arg.name for arg in step.args].index(name)


def given_to(name: str, *, first: str = "") -> Callable[[Module], None]:
    """The second call is given what the first one is, or an argument."""

    def change(module: Module) -> None:
        first_call, second = calls(module)
        place = operand_of(module, 1, name)
        operands = list(second.operands)
        value = steps_in(module).arg(first) if first else first_call.operands[place]
        assert value is not None
        operands[place] = value
        second.set_operands(tuple(operands))

    return change


def other_attr(op_name: str, which: int, attr: str, value: object) -> Callable[[Module], None]:
    """Another attribute of an op of the program."""

    def change(module: Module) -> None:
        op = [op for op in steps_in(module).block if op.name == op_name][which]
        assert op.attrs[attr] != value
        op.attrs = attrs_of({**op.attrs, attr: value})  # pyright: ignore[reportArgumentType]

    return change


def one_more(module: Module) -> None:
    """Each number one is two: a row asks for one step more than it takes."""
    number = Literal.of(next(iter(ones(module))).attrs.literal("value").dtype, 2)
    for op in ones(module):
        op.attrs = attrs_of({**op.attrs, "value": number})


def ones(module: Module) -> list[Op]:
    return [
        op
        for op in steps_in(module).block
        if op.name == "constant" and op.attrs.literal("value").values() == [1]
    ]


def a_one_more(which: int) -> Callable[[Module], None]:
    """A number one that is two: in the count of steps, in the position, or in the length."""

    def change(module: Module) -> None:
        op = ones(module)[which]
        op.attrs = attrs_of({**op.attrs, "value": Literal.of(op.attrs.literal("value").dtype, 2)})

    return change


def exchanged(module: Module) -> None:
    """The tokens of both steps, exchanged."""
    (joined,) = [op for op in steps_in(module).block if op.name == "concatenate"]
    joined.set_operands(tuple(reversed(joined.operands)))


def first_states(module: Module) -> None:
    """The states after the first step, returned."""
    function, (first, second) = steps_in(module), calls(module)
    function.outputs = [
        (name, first.results[value.index] if value.op is second else value)
        for name, value in function.outputs
    ]


def never_ended(module: Module) -> None:
    """No token ends a row: the first half of each conjunction alone."""
    for op in steps_in(module).block:
        if op.name == "and":
            steps_in(module).replace_uses(op.result, op.operands[0])


def other_layout(module: Module) -> None:
    """Keys and values, exchanged."""
    second = calls(module)[1]
    function = module.function(second.attrs.text("to_apply"))
    places = [n for n, arg in enumerate(function.args) if (arg.name or "").endswith("_cache")]
    operands = list(second.operands)
    a, b = places[:2]
    operands[a], operands[b] = operands[b], operands[a]
    second.set_operands(tuple(operands))


def wrong_step(module: Module) -> None:
    """The function of a step, whose ranks take another part of the vocabulary for theirs."""
    step = module.function(calls(module)[0].attrs.text("to_apply"))
    gathers = [op for op in step.block if op.name == "all_gather"]
    assert gathers
    for op in gathers:
        op.attrs = attrs_of({**op.attrs, "replica_groups": ((1, 0),)})


WRONG: dict[str, Callable[[Module], None]] = {
    "the first token again": given_to("tokens"),
    "the position again": given_to("positions"),
    "the length again": given_to("lengths"),
    "rows that are done go on": given_to("seq_ids"),
    "rows that are asked for nothing go on": given_to("seq_ids", first="seq_ids"),
    "a cache as it was": given_to("model.layers.0.self_attn.k_cache"),
    "keys for values": other_layout,
    "a weight for another one": given_to(
        "model.norm.weight", first="model.layers.0.input_layernorm.weight"
    ),
    "one step more": one_more,
    "one step more than is asked for": a_one_more(0),
    "two positions further": a_one_more(1),
    "two tokens longer": a_one_more(2),
    "every token ends a row but those that should": other_attr("compare", -2, "direction", "NE"),
    "all stops have to be met": other_attr("reduce", 0, "kind", "minimum"),
    "tokens exchanged": exchanged,
    "what the first step leaves": first_states,
    "nothing ends a row": never_ended,
    "another step": wrong_step,
}


def test_the_random_number_of_another_step_is_not_proved() -> None:
    model, module = pair("drawn")
    wrong = clone_module(module)
    given_to("random")(wrong)
    claims = claims_of(prove_refinement(model, wrong), wrong)
    assert {claim.reason for claim in claims} == {"random of step 1 is another value"}


@pytest.mark.parametrize("what", WRONG)
def test_other_steps_are_not_proved(what: str) -> None:
    model, module = pair()
    wrong = clone_module(module)
    WRONG[what](wrong)
    found = prove_refinement(model, wrong)
    claims = claims_of(found, wrong)
    assert any(claim.status is Status.UNDECIDED for claim in claims)
    assert all(claim.reason for claim in claims if claim.status is Status.UNDECIDED)


def test_another_number_of_calls_is_not_proved() -> None:
    model, module = pair()
    wrong = clone_module(module)
    function = steps_in(wrong)
    function.dims = {**function.dims, "N": 3}
    assert steps_of(wrong, function) is None
    assert not any(
        c.status is not Status.UNDECIDED for c in claims_of(prove_refinement(model, wrong), wrong)
    )


def drawn(seed: int) -> tuple[dict[str, Array], Array]:
    """Inputs of a call, with the ends of each range among them, and tokens that steps chose."""
    rng = np.random.default_rng(seed)

    def numbers(low: int, high: int, *shape: int) -> Array:
        return rng.integers(low, high, shape, endpoint=True).astype(np.int32)

    inputs = {
        "tokens": numbers(0, 3, ROWS, 1),
        "positions": numbers(-1, 5, ROWS, 1),
        "lengths": numbers(0, 6, ROWS),
        "seq_ids": np.where(numbers(0, 3, ROWS) > 0, np.arange(ROWS), ROWS).astype(np.int32),
        "step_counts": numbers(0, COUNT, ROWS),
        "stop_tokens": numbers(-1, 3, ROWS, 8) * numbers(0, 1, ROWS, 1),
    }
    return inputs, numbers(0, 3, ROWS, COUNT)


def test_steps_mean_what_the_same_steps_one_by_one_mean() -> None:
    """The terms of the inputs of each step, against those of the calls of one step in NumPy."""
    _, module = pair()
    steps = steps_of(module, steps_in(module))
    assert steps is not None
    ranges = {"positions": (-1, 7), "lengths": (0, 8)}
    one = RefinementProof([Claim(steps.step.name, "next_tokens", Status.PROVED)])
    proof = StepsProof(module, steps, one, ranges, ROWS)
    proof.prove()
    terms, row = proof.terms, proof.row()
    assert isinstance(row, Poly)
    meant = {
        (number, name): proof.meant(number, name, row)
        for number in range(COUNT)
        for name in ("tokens", "positions", "lengths", "seq_ids")
    }
    takes = [proof.takes_part(number, row) for number in range(COUNT)]
    assert isinstance(takes[0], Node)
    took = 0
    for seed in range(200):
        inputs, chosen = drawn(seed)
        given = {**inputs, ACTIVE: np.stack([inputs["seq_ids"] < ROWS] * 1, -1)}
        given |= {f"token of step {n}": chosen[:, n] for n in range(COUNT)}
        values = TermValues(terms, given)
        for number in range(COUNT):
            active = takes_part(inputs, number, chosen)
            expected = step_inputs(inputs, number, chosen, ROWS)
            for b in range(ROWS):
                at = {str(row): b, "rows_of_call": 0}
                assert bool(values.of(takes[number], at)) == active[b]
                took += number and int(active[b])
                for name, array in expected.items():
                    # The token of a row that takes no part is any.
                    if name != "tokens" or active[b]:
                        found = values.of(meant[number, name], at)
                        assert found == array[b].item(), (name, number, b)
    assert took
