"""Proof that two programs compute equal values for all sizes and all arguments.

Data movement, integers and truth values are exact; other ops are functions of which only equality
is known, each one of its element type: a product in f16 is another than one in f32. Programs that
differ are compared in real arithmetic, where ranges count and rounding does not. Integers are those
of HLO: they wrap around. A composite is its decomposition. Sizes are in [1, 2^20].
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from graphgen.ir import Dim, Function, Value
from graphgen.ir.dims import Poly, symbols
from graphgen.passes.proof import arithmetic_rules as _arithmetic
from graphgen.passes.proof import collective_rules as _collective
from graphgen.passes.proof import control_rules as _control
from graphgen.passes.proof import convolution_rules as _convolution
from graphgen.passes.proof import indexing_rules as _indexing
from graphgen.passes.proof import movement_rules as _movement
from graphgen.passes.proof.elements import Elements
from graphgen.passes.proof.floats import Range
from graphgen.passes.proof.pass_proof import PROVED, Proof, Status
from graphgen.passes.proof.solver import INSTALL, STEPS, Solver, has_solver
from graphgen.passes.proof.terms import Node, Term, Terms, nodes_of

# Importing them registers the rules.
_RULES = (_arithmetic, _collective, _control, _convolution, _indexing, _movement)
# Of these terms nothing is left out, so that a difference is one of the programs.
_EXACT = frozenset(("at", "if", "le0", "eq0", "and", "not", "div", "min", "max", "truth", "const"))
# Elements are followed through a program by recursion: some frames for each op of a path.
_DEPTH = 1 << 20


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Facts that hold for every call of a program.

    Attributes:
        facts: integers over the sizes that are at least 0, such as ``M - C``.
        ranges: lowest and highest element of integer arguments by name.
        steps: of the solver for each question, at most; 0 for no solver.
    """

    facts: Sequence[Dim] = ()
    ranges: Mapping[str, tuple[Dim, Dim]] = field(default_factory=dict[str, tuple[Dim, Dim]])
    steps: int = STEPS


NONE = Assumptions()


@dataclass(frozen=True, slots=True)
class Side:
    """One of two programs that are compared.

    Attributes:
        function: the program.
        made: for arguments that another function makes, its value there.
        args: arguments of that function.
        bodies: what the functions do that the program runs.
    """

    function: Function
    made: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    args: Sequence[Value] = ()
    bodies: Mapping[str, str] = field(default_factory=dict[str, str])

    def elements(self, terms: Terms, given: Assumptions, expand: bool) -> Elements:
        """The elements of its values."""
        names = {v: v.name or "" for v in (*self.function.args, *self.args)}
        return Elements(terms, names, self.made, expand, given.ranges, bodies=self.bodies)


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
    worst = PROVED
    with deep_recursion():
        for name, value in a.function.outputs:
            other = theirs.get(name)
            # Outputs share most of the program: terms of their own only where these differ.
            if other is None or _same(ours, value, others, other):
                continue
            found = _compare(value, other, a, b, given)
            if found.status not in (Status.PROVED, Status.REAL):
                return replace(found, output=name)
            if worst is PROVED and found is not PROVED:
                worst = replace(found, output=name)
    return worst


def _same(left: Elements, a: Value, right: Elements, b: Value) -> bool:
    return a.type is b.type and left.whole(a) is right.whole(b)


def prove_values(function: Function, pairs: Sequence[tuple[Value, Value]]) -> Status:
    """Compare values of one function in pairs, by the normal form of their elements.

    Returns:
        ``PROVED``, ``REAL`` where a pair is equal in real arithmetic only, else ``UNDECIDED``.
    """
    side = Side(function)
    given = Assumptions(steps=0)
    worst = Status.PROVED
    with deep_recursion():
        for a, b in pairs:
            found = _compare(a, b, side, side, given).status
            if found not in (Status.PROVED, Status.REAL):
                return Status.UNDECIDED
            worst = found if found is Status.REAL else worst
    return worst


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
    sides: list[tuple[Elements, Elements]] = []
    pair: tuple[Term, Term] = (False, True)
    # Composites that are alike need not be looked into.
    for expand in (False, True):
        sides.append((left.elements(terms, given, expand), right.elements(terms, given, expand)))
        pair = sides[-1][0].at(a, index), sides[-1][1].at(b, index)
        if _alike(*pair):
            return PROVED
    exact, where = pair, rounding_place(terms, *pair)
    for ours, theirs in sides:
        pair = ours.in_real_arithmetic().at(a, index), theirs.in_real_arithmetic().at(b, index)
        if _alike(*pair):
            # Integers are alike as well: a solver knows no more about rounding.
            return Proof(Status.REAL, rounding=where)
    found = _solve(terms, exact, given)
    if found.status is not Status.UNDECIDED or pair == exact:
        return found
    real = _solve(terms, pair, given)
    return Proof(Status.REAL, rounding=where) if real.status is Status.PROVED else real


def _alike(a: Term, b: Term) -> bool:
    return a is b or (a == b and type(a) is type(b))


def _solve(terms: Terms, pair: tuple[Term, Term], given: Assumptions) -> Proof:
    parting = _parting(*pair)
    if parting:
        # Floats that are computed by other ops: a solver knows no more about them.
        return Proof(Status.UNDECIDED, why=parting)
    if not has_solver() or not given.steps:
        return Proof(Status.UNDECIDED, why=f"needs z3: {INSTALL}")
    solver = Solver(terms, given.facts)
    found = solver.find(*pair, given.steps)
    if found is None:
        return PROVED
    if isinstance(found, str):
        return Proof(Status.UNDECIDED, why=f"z3: {found}")
    if {node.kind for node in nodes_of(terms, *pair)} <= _EXACT:
        return Proof(Status.REFUTED, counterexample=found, elements=solver.elements())
    return Proof(Status.UNDECIDED, why="the terms of float ops differ")


# Nodes of ops, which begin with the name of the op, what it rounds to, and its attributes.
_OPS = ("fn", "sum", "op")


def _parting(a: Term, b: Term) -> str:
    """Two float ops at which two terms part; empty if a choice or an index may explain it."""
    while isinstance(a, Node) and isinstance(b, Node) and a is not b:
        if a.kind not in _OPS or b.kind not in _OPS:
            alone = next((x for x in (a, b) if x.kind in _OPS), None)
            plain = any(x.kind in ("at", "const") for x in (a, b))
            return f"only one of them has {_op_text(alone)}" if alone is not None and plain else ""
        if (a.kind, *a.args[:2], len(a.args)) != (b.kind, *b.args[:2], len(b.args)):
            return (
                f"{_op_text(b)} takes the place of {_op_text(a)}"
                if a.args[:2] != b.args[:2]
                else (f"{a.args[0]} has other operands")
            )
        pairs = [(x, y) for x, y in zip(a.args, b.args, strict=True) if x is not y and x != y]
        nodes = [(x, y) for x, y in pairs if isinstance(x, Node) and isinstance(y, Node)]
        if len(nodes) < len(pairs):
            same = a.kind == "fn" and a.args[2] == b.args[2]
            return "" if same else f"{a.args[0]} has other sizes or attributes"
        a, b = nodes[0]
        if a.kind == b.kind == "whole":
            return ""
    return ""


def _op_text(node: Node) -> str:
    """``multiply in f16``."""
    name, to = node.args[:2]
    kind = to.dtype if isinstance(to, Range) else to
    return f"{name} {'to' if name == 'convert' else 'in'} {kind}" if kind is not None else f"{name}"


def rounding_place(terms: Terms, a: Term, b: Term) -> str:
    """The op at which two exact terms part that are equal in real arithmetic, and its place."""
    found = ""
    while True:
        pair = [x for x in (a, b) if isinstance(x, Node)]
        # A conversion of one program alone is the difference, else the op of the second one.
        converts = [x for x in pair if x.kind == "fn" and x.args[0] == "convert"]
        order = (*converts, *pair[::-1]) if len(converts) == 1 else pair[::-1]
        found = next((terms.makers[x] for x in order if x in terms.makers), found)
        heads = [(x.kind, len(x.args), x.args[:3] if x.kind in _OPS else ()) for x in pair]
        if len(pair) == 2 and heads[0] != heads[1]:
            break
        # Operands of sums and products are in an order of their own.
        left, right = _parts(terms, a), _parts(terms, b)
        only = [next((x for x in left if x not in right), None)]
        only.append(next((x for x in right if x not in left), None))
        if only[0] is None or only[1] is None:
            break
        a, b = only[0], only[1]
    return found or "an op"


def _parts(terms: Terms, term: Term) -> list[Node | Poly]:
    """The nodes and polynomials that a term is made of."""
    if isinstance(term, Poly):
        return [terms.atoms[name] for name in symbols([term]) if name in terms.atoms]
    return [x for x in term.args if isinstance(x, Node | Poly)] if isinstance(term, Node) else []
