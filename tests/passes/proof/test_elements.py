"""Elements at symbolic indices: each term has the value that NumPy computes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphgen.eval import Array, evaluate
from graphgen.ir import Function
from graphgen.ir.clone import clone_function
from graphgen.ir.dims import Poly
from graphgen.passes.proof.elements import Elements
from graphgen.passes.proof.prove_equal import prove_equal
from graphgen.passes.proof.terms import Node, Term, Terms, nodes_of
from tests.passes.test_random_graphs import Grower, inputs

# Terms of these kinds have a value that follows from the arguments by integer arithmetic.
EXACT = {"at", "if", "le0", "eq0", "and", "not", "div", "truth", "const"}


OF_KIND: dict[str, Callable[..., float]] = {
    "le0": lambda x: x <= 0,
    "eq0": lambda x: x == 0,
    "and": lambda *x: all(x),
    "not": lambda x: not x,
    "div": lambda x, by: x // by,
    "truth": lambda x: x,
}


class Values:
    """Values of terms for given arguments."""

    def __init__(self, terms: Terms, given: dict[str, Array]) -> None:
        self.terms = terms
        self.given = given

    def of(self, term: object) -> float:
        if isinstance(term, int):
            return term
        if isinstance(term, Poly):
            return sum(c * self.product(m) for m, c in term.terms)
        assert isinstance(term, Node)
        args = term.args
        match term.kind:
            case "at":
                index = tuple(int(self.of(i)) for i in args[2:])
                array = self.given[str(args[0])]
                assert all(0 <= i < n for i, n in zip(index, array.shape, strict=True))
                return array[index].item()
            case "if":
                return self.of(args[1] if self.of(args[0]) else args[2])
            case "const":
                return float(str(args[0]))
            case _:
                return OF_KIND[term.kind](*map(self.of, args))

    def product(self, monomial: tuple[str, ...]) -> float:
        out = 1.0
        for name in monomial:
            out = out * self.of(self.terms.atoms[name])
        return out


def exact(terms: Terms, term: Term) -> bool:
    kinds = {node.kind for node in nodes_of(terms, term)}
    read = [str(node.args[0]) for node in nodes_of(terms, term) if node.kind == "at"]
    return kinds <= EXACT and not any(name.startswith("literal") for name in read)


def compared(function: Function, arrays: dict[str, Array]) -> int:
    """Compare every element of every output whose term is exact; how many there are."""
    terms = Terms()
    elements = Elements(terms, {value: value.name or "" for value in function.args})
    wanted, count = evaluate(function, arrays), 0
    for name, value in function.outputs:
        for index in np.ndindex(wanted[name].shape):
            term = elements.at(value, index)
            if exact(terms, term):
                found, right = Values(terms, arrays).of(term), wanted[name][index].item()
                assert found == right or np.isnan(right), (name, index, term)
                count += 1
    return count


OPTIONS = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@OPTIONS
@given(random=st.randoms(use_true_random=False), seed=st.integers(0, 99))
def test_a_term_has_the_value_that_numpy_computes(random: Random, seed: int):
    grower = Grower(random)
    grower.grow()
    compared(grower.function, inputs(grower.function, seed))


def test_many_elements_of_random_graphs_are_compared():
    count = 0
    for seed in range(40):
        grower = Grower(Random(seed))
        grower.grow()
        count += compared(grower.function, inputs(grower.function, seed))
    assert count > 100


def swapped(function: Function, random: Random) -> bool:
    """Let one op read another value of the same type; False where no op can."""
    known = list(function.args)
    choices: list[tuple[int, int, int]] = []
    for number, op in enumerate(function.block):
        for place, operand in enumerate(op.operands):
            others = [v for v in known if v.type is operand.type and v is not operand]
            choices += [(number, place, known.index(other)) for other in others]
        known += op.results
    if not choices:
        return False
    number, place, other = random.choice(choices)
    op = list(function.block)[number]
    operands = (*op.operands[:place], known[other], *op.operands[place + 1 :])
    op.set_operands(operands)
    return True


@OPTIONS
@given(random=st.randoms(use_true_random=False), seed=st.integers(0, 9))
def test_only_equal_programs_are_proved_equal(random: Random, seed: int):
    grower = Grower(random)
    grower.grow()
    changed = clone_function(grower.function)
    if not swapped(changed, random):
        return
    if str(prove_equal(grower.function, changed)) != "proved":
        return
    for other in range(seed, seed + 3):
        arrays = inputs(grower.function, other)
        ours, theirs = evaluate(grower.function, arrays), evaluate(changed, arrays)
        for name, array in ours.items():
            np.testing.assert_array_equal(theirs[name], array)
