"""Programs of several decode steps: the model's decode program, applied as often as a row asks.

Such a program calls one function once a step. Where that function is proved to refine the model's
decode program, what each call leaves is what the model leaves for the same inputs. So it remains to
compare these inputs with those that a step means (:mod:`graphgen.exec.decode_steps`): the states
and tokens of the step before, one position further, for the rows that take part. The tokens of a
row that takes no part are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphgen.exec.decode_steps import (
    COUNT,
    STEP_COUNTS,
    STEP_RANDOM,
    STEP_TOKENS,
    STEPS,
    STOP_TOKENS,
)
from graphgen.ir import Dim, Function, Module, Op, Role, Value
from graphgen.ir.clone import clone_function
from graphgen.passes.proof.chosen_tokens import TOKENS
from graphgen.passes.proof.elements import Elements, Index
from graphgen.passes.proof.integers import at_most_zero, both, choose, conjuncts, is_zero, negated
from graphgen.passes.proof.interface_relation import active_row
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.rebuild import where
from graphgen.passes.proof.refinement_result import Claim, RefinementProof
from graphgen.passes.proof.sums import summed, truth_of_sum
from graphgen.passes.proof.terms import Node, Term, Terms

WITHIN = "no row of several steps goes beyond the context: position and length grow by one a step"
_INPUTS = ("tokens", "positions", "lengths", "seq_ids")
# From the strongest verdict to the weakest.
_ORDER = (Status.PROVED, Status.REAL, Status.NARROW, Status.UNDECIDED)


@dataclass(frozen=True, slots=True)
class Steps:
    """A program of several steps.

    Attributes:
        function: the program.
        step: the function that it calls, as a decode program.
        calls: of that function, in their order.
    """

    function: Function
    step: Function
    calls: Sequence[Op]


def steps_of(module: Module, function: Function) -> Steps | None:
    """A program of several steps; ``None`` for any other, also for one that calls others."""
    if function.phase != STEPS:
        return None
    calls = [op for op in function.block if op.name == "call"]
    names = {op.attrs.text("to_apply") for op in calls}
    if len(names) != 1 or len(calls) != function.dims.get(COUNT):
        return None
    step = clone_function(module.function(names.pop()))
    step.phase = "decode"
    same = {k: v for k, v in function.dims.items() if k != COUNT} == step.dims
    named = all(step.arg(name) is not None and function.arg(name) is not None for name in _INPUTS)
    named &= function.arg(STEP_COUNTS) is not None and function.arg(STOP_TOKENS) is not None
    chooses = step.outputs.get(TOKENS) is not None and isinstance(step.dims.get("R"), int)
    return Steps(function, step, calls) if same and named and chooses else None


@dataclass
class StepsProof:
    """The proof of a program of several steps.

    Attributes:
        module: has the program.
        steps: the program.
        proof: of the step as a decode program.
        ranges: of its integers.
        rows: R where row b of a call is row b of the caches, or idle; 0 where any row may be any.
    """

    module: Module
    steps: Steps
    proof: RefinementProof
    ranges: Mapping[str, tuple[Dim, Dim]]
    rows: int
    terms: Terms = field(default_factory=Terms)
    elements: Elements = field(init=False)

    def prove(self) -> RefinementProof:
        """The verdicts on the outputs."""
        function = self.steps.function
        names = {arg: arg.name or "" for arg in function.args}
        exact = Elements(self.terms, names, ranges=self.ranges, deep=True)
        exact.returned.update(value for _, value in function.outputs)
        self.elements = exact.in_real_arithmetic()
        self._relate_rows()
        lost = self._lost()
        status, rounding = self._of_step()
        claims = [
            Claim(function.name, name, status, rounding=rounding)
            if why is None
            else Claim(function.name, name, Status.UNDECIDED, why)
            for name, value in function.outputs
            for why in (lost or self._lost_output(name, value),)
        ]
        assumed = (*self.proof.assumptions, WITHIN)
        rules = sorted({*self.proof.rules, *self.terms.rules, "steps"})
        return replace(self.proof, claims=claims, assumptions=assumed, rules=rules)

    def _of_step(self) -> tuple[Status, tuple[str, ...]]:
        """The weakest verdict on what a step leaves, and all places whose rounding differs."""
        claims = [claim for claim in self.proof.claims if self._is_needed(claim.output)]
        places = dict.fromkeys(place for claim in claims for place in claim.rounding)
        return max((c.status for c in claims), key=_ORDER.index), tuple(places)

    def _is_needed(self, name: str) -> bool:
        row = self.module.interface.get(name)
        return name == TOKENS or (row is not None and row.role is Role.STATE)

    # ---- what steps mean -------------------------------------------------------------------------

    def row(self) -> Dim:
        """The variable of a row."""
        (count,) = self.steps.calls[0].results[self._place(TOKENS)].shape
        return self.terms.variable(f"i0_{count}", count)

    def _place(self, name: str) -> int:
        return [output for output, _ in self.steps.step.outputs].index(name)

    def _token(self, number: int, row: Dim) -> Dim:
        """The token that the model chooses in a step."""
        return self.terms.atom(self.terms.node("at", f"token of step {number}", None, row))

    def _given(self, name: str, *index: Dim) -> Dim:
        """An element of an argument."""
        argument = self.steps.function.arg(name)
        assert argument is not None
        return self.elements.integer(argument, index)

    def takes_part(self, number: int, row: Dim) -> bool | Node:
        """The condition that a row takes a step: asked to, and not ended by a token before it."""
        terms = self.terms
        asked = at_most_zero(terms, self._given(STEP_COUNTS, row) * -1 + (number + 1))
        if not number:
            return asked
        stops = self.steps.function.arg(STOP_TOKENS)
        assert stops is not None
        stop = terms.variable(f"stop_{stops.shape[1]}", stops.shape[1])
        same = is_zero(
            terms, self._token(number - 1, row) + self._given(STOP_TOKENS, row, stop) * -1
        )
        ended = same
        if not isinstance(stop, int):
            some = summed(terms, "or", None, [(str(stop), stops.shape[1])], same)
            made = truth_of_sum(terms, some)
            assert isinstance(made, bool | Node)
            ended = made
        goes_on = both(terms, asked, negated(terms, ended))
        return both(terms, self.takes_part(number - 1, row), goes_on)

    def meant(self, number: int, name: str, row: Dim) -> Dim:
        """An input of a step."""
        terms, takes = self.terms, self.takes_part(number, row)
        if name == "tokens":
            return self._given(name, row, 0) if number == 0 else self._token(number - 1, row)
        if name == "seq_ids":
            rows = self.steps.function.dims["R"]
            assert isinstance(rows, int)
            found = choose(terms, takes, self._given(name, row), rows)
        elif name == "lengths":
            found = choose(terms, takes, self._given(name, row) + number, 0)
        else:
            found = choose(terms, takes, self._given(name, row, 0) + number, -1)
        assert not isinstance(found, bool | Node)
        return found

    # ---- what the program does -------------------------------------------------------------------

    def _relate_rows(self) -> None:
        """Relate row numbers, and the tokens that each call gives, to those of the model."""
        related = self.elements.ranks.related
        ids = self.steps.function.arg("seq_ids")
        if self.rows and ids is not None:

            def row(e: Elements, index: Index, rank: Dim) -> Term:
                return choose(e.terms, active_row(e.terms, index[0]), index[0], self.rows)

            related[ids] = row
        for number, call in enumerate(self.steps.calls):

            def chosen(e: Elements, index: Index, rank: Dim, number: int = number) -> Term:
                known = both(e.terms, self._active(index[0]), self.takes_part(number, index[0]))
                other = e.terms.atom(e.terms.node("at", f"other of step {number}", None, *index))
                return choose(e.terms, known, self._token(number, index[0]), other)

            related[call.results[self._place(TOKENS)]] = chosen

    def _active(self, row: Dim) -> bool | Node:
        return active_row(self.terms, row) if self.rows else True

    def _lost(self) -> str | None:
        """The reason why calls are not the steps of the model; ``None`` if they are."""
        for claim in self.proof.claims:
            if self._is_needed(claim.output) and claim.status is Status.UNDECIDED:
                return f"the program of one step is not proved: {claim.output}: {claim.reason}"
        for number, call in enumerate(self.steps.calls):
            for argument, value in zip(self.steps.step.args, call.operands, strict=True):
                same = value.type is argument.type
                if not same or not self._is_input(number, argument.name or "", value):
                    return f"{argument.name} of step {number} is another value"
        return None

    def _is_input(self, number: int, name: str, value: Value) -> bool:
        """True if an operand of a call is the input, state or weight of that name."""
        function, row = self.steps.function, self.module.interface.get(name)
        if row is not None and row.role is Role.STATE and number:
            return value is self.steps.calls[number - 1].results[self._place(name)]
        every = function.arg(STEP_RANDOM) if name == "random" else None
        if every is not None:
            numbers = self.elements.at(every, (self.row(), number))
            return self.elements.at(value, (self.row(),)) is numbers
        if name not in _INPUTS:
            return value is function.arg(name)
        at = self.row()
        index = (at, 0) if name in ("tokens", "positions") else (at,)
        return self._same(number, name, self.elements.integer(value, index), at)

    def _same(self, number: int, name: str, found: Dim, row: Dim) -> bool:
        """True if an input of a row is as it is meant, and that of an idle row is idle."""
        terms, active = self.terms, self._active(row)
        meant: Term = self.meant(number, name, row)
        facts = active
        if name == "tokens":
            facts = both(terms, active, self.takes_part(number, row))
        if not self._equal(number, found, meant, facts, row):
            return False
        if name != "seq_ids" or not isinstance(active, Node):
            return True
        return where(terms, found, negated(terms, active)) == self.rows

    def _equal(self, number: int, found: Term, meant: Term, facts: bool | Node, row: Dim) -> bool:
        """True if both are equal where facts hold, whether or not a row takes the step before."""
        terms, before = self.terms, self.takes_part(max(number - 1, 0), row)
        cases = [facts]
        for part in conjuncts(before) if isinstance(before, Node) else ():
            last = cases.pop()
            cases += [both(terms, last, negated(terms, part)), both(terms, last, part)]
        return all(
            where(terms, found, case) == where(terms, meant, case)
            for case in cases
            if case is not False
        )

    def _lost_output(self, name: str, value: Value) -> str | None:
        """The reason why an output is not what the steps leave; ``None`` if it is."""
        last = self.steps.calls[-1]
        if name != STEP_TOKENS:
            known = [output for output, _ in self.steps.step.outputs]
            is_left = name in known and value is last.results[known.index(name)]
            return None if is_left and self._is_needed(name) else "it is not what steps leave"
        terms, row = self.terms, self.row()
        if value.shape != (self.rows or value.shape[0], len(self.steps.calls)):
            return "it has not a token of each step"
        for number in range(len(self.steps.calls)):
            takes = self.takes_part(number, row)
            meant = choose(terms, takes, self._token(number, row), -1)
            found = self.elements.integer(value, (row, number))
            if not self._equal(number + 1, found, meant, self._active(row), row):
                return f"the token of step {number} is another one"
        return None
