"""Proof that two programs compute equal values for all sizes and all arguments.

Data movement, integers and truth values are exact; other ops are functions of which only equality
is known. Integers are those of HLO: they wrap around. Sizes are in [1, 2^20].
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from graphgen.ir import Dim, Function, Value
from graphgen.passes.proof import arithmetic_rules as _arithmetic
from graphgen.passes.proof import movement_rules as _movement
from graphgen.passes.proof.elements import Elements
from graphgen.passes.proof.pass_proof import PROVED, Proof, Status
from graphgen.passes.proof.solver import INSTALL, Solver, has_solver
from graphgen.passes.proof.terms import Node, Term, Terms, nodes_of

# Importing them registers the rules.
_RULES = (_arithmetic, _movement)
# Of these terms nothing is left out, so that a difference is one of the programs.
_EXACT = frozenset(("at", "if", "le0", "eq0", "and", "not", "div", "truth", "const"))
# Elements are followed through a program by recursion: some frames for each op of a path.
_DEPTH = 1 << 20


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Facts that hold for every call of a program.

    Attributes:
        facts: integers over the sizes that are at least 0, such as ``M - C``.
        ranges: lowest and highest element of integer arguments by name.
        milliseconds: time for each question to the solver; 0 for no solver.
    """

    facts: Sequence[Dim] = ()
    ranges: Mapping[str, tuple[Dim, Dim]] = field(default_factory=dict[str, tuple[Dim, Dim]])
    milliseconds: int = 500


NONE = Assumptions()


@dataclass(frozen=True, slots=True)
class Side:
    """One of two programs that are compared.

    Attributes:
        function: the program.
        made: for arguments that another function makes, its value there.
        args: arguments of that function.
    """

    function: Function
    made: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    args: Sequence[Value] = ()

    def elements(self, terms: Terms, given: Assumptions, expand: bool) -> Elements:
        """The elements of its values."""
        names = {v: v.name or "" for v in (*self.function.args, *self.args)}
        return Elements(terms, names, self.made, expand, given.ranges)


def prove_equal(left: Function | Side, right: Function | Side, given: Assumptions = NONE) -> Proof:
    """Compare the outputs of two programs that have one name.

    Args:
        left: one program; arguments of one name are the same value in both.
        right: the other.
        given: facts about sizes and arguments.
    """
    a = Side(left) if isinstance(left, Function) else left
    b = Side(right) if isinstance(right, Function) else right
    theirs = dict(b.function.outputs)
    terms = Terms()
    ours, others = a.elements(terms, given, False), b.elements(terms, given, False)
    with deep_recursion():
        for name, value in a.function.outputs:
            other = theirs.get(name)
            # Outputs share most of the program: terms of their own only where these differ.
            if other is None or _same(ours, value, others, other):
                continue
            found = _compare(value, other, a, b, given)
            if found.status is not Status.PROVED:
                return replace(found, output=name)
    return PROVED


def _same(left: Elements, a: Value, right: Elements, b: Value) -> bool:
    return a.type is b.type and left.whole(a) is right.whole(b)


def prove_values(function: Function, pairs: Sequence[tuple[Value, Value]]) -> bool:
    """True if values of one function are equal in pairs, by the normal form of their elements."""
    side = Side(function)
    given = Assumptions(milliseconds=0)
    with deep_recursion():
        found = [_compare(a, b, side, side, given) for a, b in pairs]
    return all(proof.status is Status.PROVED for proof in found)


@contextmanager
def deep_recursion() -> Generator[None]:
    """Allow recursion as deep as a program is long."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEPTH))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _compare(a: Value, b: Value, left: Side, right: Side, given: Assumptions) -> Proof:
    if a.type is not b.type:
        return Proof(Status.UNDECIDED, why=f"{a.type.text} is compared with {b.type.text}")
    terms = Terms()
    index = tuple(terms.variable(f"i{axis}", size) for axis, size in enumerate(a.shape))
    pair: tuple[Term, Term] = (False, True)
    # Composites that are alike need not be looked into.
    for expand in (False, True):
        pair = (
            left.elements(terms, given, expand).at(a, index),
            right.elements(terms, given, expand).at(b, index),
        )
        if pair[0] is pair[1] or (pair[0] == pair[1] and type(pair[0]) is type(pair[1])):
            return PROVED
    return _solve(terms, pair, given)


def _solve(terms: Terms, pair: tuple[Term, Term], given: Assumptions) -> Proof:
    parting = _parting(*pair)
    if parting:
        # Floats that are computed by other ops: a solver knows no more about them.
        return Proof(Status.UNDECIDED, why=parting)
    if not has_solver() or not given.milliseconds:
        return Proof(Status.UNDECIDED, why=f"needs z3: {INSTALL}")
    solver = Solver(terms, given.facts)
    found = solver.find(*pair, given.milliseconds)
    if found is None:
        return PROVED
    if isinstance(found, str):
        return Proof(Status.UNDECIDED, why=f"z3: {found}")
    if {node.kind for node in nodes_of(terms, *pair)} <= _EXACT:
        return Proof(Status.REFUTED, counterexample=found, elements=solver.elements())
    return Proof(Status.UNDECIDED, why="the terms of float ops differ")


def _parting(a: Term, b: Term) -> str:
    """Two float ops at which two terms part; empty if a choice or an index may explain it."""
    while isinstance(a, Node) and isinstance(b, Node) and a is not b:
        ops = ("fn", "sum", "op")
        if a.kind not in ops or b.kind not in ops:
            return ""
        if (a.kind, a.args[0], len(a.args)) != (b.kind, b.args[0], len(b.args)):
            return (
                f"{a.args[0]} takes the place of {b.args[0]}"
                if a.args[0] != b.args[0]
                else (f"{a.args[0]} has other operands")
            )
        pairs = [(x, y) for x, y in zip(a.args, b.args, strict=True) if x is not y and x != y]
        nodes = [(x, y) for x, y in pairs if isinstance(x, Node) and isinstance(y, Node)]
        if len(nodes) < len(pairs):
            return "" if a.kind == "fn" else f"{a.args[0]} has other sizes or attributes"
        a, b = nodes[0]
        if a.kind == b.kind == "whole":
            return ""
    return ""
