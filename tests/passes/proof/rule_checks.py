"""Checks of rules by evaluation: a term has the value that NumPy computes, at every index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import product
from math import exp, isclose, isnan, prod

import numpy as np

from graphgen.eval import NATIVE, Array
from graphgen.eval.evaluate import evaluate_ranks
from graphgen.ir import RANK, Attrs, Dim, Function, Literal, Module, Value
from graphgen.ir.dims import Poly
from graphgen.ops import verify
from graphgen.passes.proof.elements import Elements, Index, Ranks, Rule
from graphgen.passes.proof.integers import range_of
from graphgen.passes.proof.sums import ranges_of
from graphgen.passes.proof.terms import Node, Term, Terms
from graphgen.text import parse
from tests.passes.proof.rule_cases import Case

Number = float | int | bool
# Draws of the arguments of a program.
_DRAWS = 4

_NODES: dict[str, Callable[..., Number]] = {
    "le0": lambda x: x <= 0,
    "eq0": lambda x: x == 0,
    "and": lambda *x: all(x),
    "not": lambda x: not x,
    "div": lambda x, by: x // by,
    "min": min,
    "max": max,
    "truth": bool,
}
_COMBINED: dict[str, Callable[[list[Number]], Number]] = {
    "add": sum,
    "maximum": max,
    "minimum": min,
    "multiply": prod,
    "or": any,
    "and": all,
}


class TermValues:
    """Values of terms for given arguments, variables and sizes."""

    def __init__(self, terms: Terms, given: Mapping[str, Array]) -> None:
        self.terms = terms
        self.given = given

    def of(self, term: object, at: Mapping[str, int]) -> Number:
        """The value where variables have the values of ``at``."""
        if isinstance(term, bool | int):
            return term
        if isinstance(term, Poly):
            return sum(c * prod(self.named(name, at) for name in m) for m, c in term.terms)
        assert isinstance(term, Node)
        return self.node(term, at)

    def named(self, name: str, at: Mapping[str, int]) -> int:
        """The value of a variable or an atom."""
        node = self.terms.atoms.get(name)
        return at[name] if node is None else int(self.of(node, at))

    def node(self, node: Node, at: Mapping[str, int]) -> Number:
        """The value of a node."""
        args = node.args
        match node.kind:
            case "at":
                index = tuple(int(self.of(i, at)) for i in args[2:])
                array = self.given[str(args[0])]
                assert all(0 <= i < n for i, n in zip(index, array.shape, strict=True)), (
                    node,
                    index,
                )
                return array[index].item()
            case "if":
                return self.of(args[1] if self.of(args[0], at) else args[2], at)
            case "const":
                return float(str(args[0]))
            case "fn":
                return self.function(node, at)
            case "place":
                return self.of(args[0], at)
            case "sum" | "total":
                ranges, body = ranges_of(node)
                values = [self.of(body, {**at, **inner}) for inner in self.places(ranges, at)]
                return _COMBINED[str(args[0])](values)
            case "write":
                return self.written(node, at)
            case "sort":
                return self.sorted(node, at)
            case _:
                return _NODES[node.kind](*[self.of(x, at) for x in args])

    def places(
        self, ranges: Sequence[tuple[str, Dim]], at: Mapping[str, int]
    ) -> Iterator[dict[str, int]]:
        """All values of bound variables."""
        sizes = [range(int(self.of(size, at))) for _, size in ranges]
        for values in product(*sizes):
            yield dict(zip([name for name, _ in ranges], values, strict=True))

    def function(self, node: Node, at: Mapping[str, int]) -> Number:
        """The value of an elementwise op."""
        name, to, how, *parts = node.args
        values = [self.of(part, at) for part in parts]
        if name == "bitcast_convert":
            source, target = str(how), str(to)
            kinds = {"f32": "f4", "s32": "i4", "s8": "i1", "u8": "u1"}
            part = int(values[1]) if len(values) > 1 else 0
            return np.array([values[0]], kinds[source]).view(kinds[target])[part].item()
        if name in ("float", "convert"):
            return float(values[0])
        if name == "at place":
            return values[0]
        if name == "compare":
            equal = isinstance(how, Attrs) and how.text("direction") == "EQ"
            return values[0] == values[1] if equal else values[0] < values[1]
        if name in ("divide", "subtract"):
            return values[0] / values[1] if name == "divide" else values[0] - values[1]
        if name == "exponential":
            return exp(values[0])
        if name in ("maximum", "abs"):
            return max(values) if name == "maximum" else abs(values[0])
        return {"add": sum, "multiply": prod, "product": prod}[str(name)](values)

    def written(self, node: Node, at: Mapping[str, int]) -> Number:
        """The value that is written last."""
        count = node.args[0]
        assert isinstance(count, int)
        variables, sizes = node.args[1 : 1 + count], node.args[1 + count : 1 + 2 * count]
        here, new, old = node.args[-3:]
        ranges = [(str(v), n) for v, n in zip(variables, sizes, strict=True)]
        found = self.of(old, at)
        for inner in self.places([(name, _dim(n)) for name, n in ranges], at):
            if self.of(here, {**at, **inner}):
                found = self.of(new, {**at, **inner})
        return found

    def sorted(self, node: Node, at: Mapping[str, int]) -> Number:
        """The value that comes at a place."""
        down, variable, size, key, moved, place = node.args
        pairs = [
            (self.of(key, {**at, str(variable): n}), self.of(moved, {**at, str(variable): n}))
            for n in range(int(self.of(size, at)))
        ]
        ordered = sorted(pairs, key=lambda pair: pair[0], reverse=bool(down))
        return ordered[int(self.of(place, at))][1]


def _dim(value: object) -> Dim:
    assert isinstance(value, int | Poly)
    return value


def program(case: Case) -> tuple[Module, dict[str, tuple[int, int]]]:
    """The program of a case, @f of a module, and the ranges of its integers."""
    args = [item.split(":") for item in case.args.split()]
    lines = [f"  arg %{name} : {kind}" for name, kind, *_ in args]
    ops = "\n".join(f"  {line}" for line in case.lines.splitlines())
    text = "\n".join([*lines, ops, "  return y = %y"])
    mesh = f" mesh=tp:{case.ranks}" if case.ranks > 1 else ""
    module = parse(
        f"module @m level=target{mesh} {{\n}}\n\n{case.functions}func @f {{\n{text}\n}}\n", "case"
    )
    verify(module)
    ranges = {name: (int(more[0]), int(more[1])) for name, _, *more in args if more}
    return module, ranges


def drawn(value: Value, random: np.random.Generator, ends: tuple[int, int] | None) -> Array:
    """Numbers of an argument, its extremes among them."""
    shape, dtype = value.type.dims, value.dtype
    if dtype.name == "pred":
        return random.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float:
        return random.integers(-4, 5, shape).astype(dtype.name.replace("f", "float"))
    low, high = ends or range_of(dtype)
    values = random.integers(low, high, shape, endpoint=True)
    edges = random.choice([low, high, max(low, min(0, high))], shape)
    kind = dtype.name.replace("u", "uint").replace("s", "int")
    return np.where(random.random(shape) < 0.5, values, edges).astype(kind)


def check(rule: Rule, case: Case) -> str:
    """Compare what a rule gives with NumPy at every index; the first difference, or nothing."""
    module, ranges = program(case)
    function = module.function("f")
    (op,) = [op for op in function.block if any(r is function.outputs[0][1] for r in op.results)]
    wrong = ""
    for real in (False, True):
        terms = Terms()
        e = elements(terms, function, case.ranks, ranges)
        e.functions = module.functions
        e = e.in_real_arithmetic() if real else e
        shape = function.outputs[0][1].shape
        index = tuple(terms.variable(f"i{n}", size) for n, size in enumerate(shape))
        e.result = function.outputs[0][1].index
        found = rule(e, op, index)
        if case.outside:
            if found is not None:
                return f"{op.name} is not covered, and the rule gives {found!r}"
            continue
        if found is None:
            return f"{op.name} is covered, and the rule declines"
        wrong = wrong or compared(terms, found, module, case, ranges)
    return wrong


def elements(
    terms: Terms, function: Function, ranks: int, ranges: Mapping[str, tuple[int, int]]
) -> Elements:
    """The elements of a program, whose arguments differ from rank to rank."""
    rank = terms.variable(RANK, ranks)
    relations = Ranks(ranks, rank)
    names = {value: value.name or "" for value in function.args}
    e = Elements(terms, names, ranges=ranges, ranks=relations, deep=True)
    for value in function.args if ranks > 1 else ():

        def on_rank(e: Elements, index: Index, rank: Dim, v: Value = value) -> Term:
            return e.of_type(e.terms.node("at", v.name, v.type, *index, rank), v.dtype)

        relations.related[value] = on_rank
    return e


def compared(
    terms: Terms,
    term: Term,
    module: Module,
    case: Case,
    ranges: Mapping[str, tuple[int, int]],
) -> str:
    """The first index at which a term has another value than NumPy computes."""
    function = module.function("f")
    value = function.outputs[0][1]
    for draw in range(_DRAWS):
        random = np.random.default_rng(draw)
        given = [
            {v.name or "": drawn(v, random, ranges.get(v.name or "")) for v in function.args}
            for _ in range(case.ranks)
        ]
        results = [found["y"] for found in evaluate_ranks(function, given, NATIVE, module=module)]
        held = {
            name: np.stack([one[name] for one in given], -1) if case.ranks > 1 else given[0][name]
            for name in given[0]
        }
        values = TermValues(terms, {**held, **literals(function)})
        for rank, result in enumerate(results):
            for place in np.ndindex(value.type.dims):
                at = {f"i{n}": i for n, i in enumerate(place)}
                got = values.of(term, {**at, RANK: rank})
                if not _same(got, result[place].item()):
                    return f"{case.lines} at {place} of rank {rank}: {got} for {result[place]}"
    return ""


def literals(function: Function) -> dict[str, Array]:
    """The tables of a program by the names that terms give them."""
    found: dict[str, Array] = {}
    for op in function.block:
        literal = op.attrs.get("value")
        if isinstance(literal, Literal) and len(bytes(literal.data)) > literal.dtype.bytes:
            digest = sha256(bytes(literal.data)).hexdigest()
            array = np.array(literal.values()).reshape(literal.shape)
            found[f"literal {literal.shape} {digest}"] = array
    return found


def _same(a: Number, b: Number) -> bool:
    return (isnan(a) and isnan(b)) or isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
