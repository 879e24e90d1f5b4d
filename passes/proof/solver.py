"""Decide terms with z3: linear integers, quotients by numbers, uninterpreted functions.

z3 is optional (``pip install z3-solver``): without it, and where it finds nothing within its steps,
a term is undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from graphgen.ir import Dim, TensorType
from graphgen.ir.dims import Poly
from graphgen.passes.proof.pass_proof import ModelElement
from graphgen.passes.proof.terms import LARGEST_SIZE, Bounds, Node, Term, Terms

INSTALL = "pip install z3-solver"
# Steps of the solver for each question, at most: as it counts them, the same on every machine. For
# the many questions on a pass fewer.
STEPS = 2_000_000
PASS_STEPS = 1_000_000
# Limits of the sizes of a model, the first that is enough.
_SIZES = (8, 64, 1024)
# Kinds of nodes that are true or false.
_TRUTHS = frozenset(("le0", "eq0", "and", "not", "truth"))


@cache
def has_solver() -> bool:
    """True if z3 is installed."""
    return find_spec("z3") is not None


@dataclass(slots=True)
class Solver:
    """One question to z3.

    Args:
        terms: the terms.
        facts: integers that are at least 0, such as ``M - C``.
    """

    terms: Terms
    facts: Sequence[Dim] = ()
    _z3: Any = field(default_factory=lambda: import_module("z3"))
    _names: dict[str, Any] = field(default_factory=dict[str, Any])
    _nodes: dict[Node, Any] = field(default_factory=dict[Node, Any])
    _functions: dict[object, Any] = field(default_factory=dict[object, Any])
    _constraints: list[Any] = field(default_factory=list[Any])
    _model: Any = None

    def find(self, claim: Term, other: Term, steps: int) -> dict[str, int] | str | None:
        """Find sizes and indices for which two elements differ.

        Returns:
            The sizes and indices by name; ``None`` if there are none; the solver's reason where it
            does not know.
        """
        z3 = self._z3
        solver = z3.Solver()
        solver.set("rlimit", steps)
        differ = self._term(claim) != self._term(other)
        for fact in self.facts:
            self._constraints.append(self._integer(fact) >= 0)
        # Numbers that differ are different elements; -0 is another one than 0.
        constants = [x for node, x in self._nodes.items() if node.kind == "const"]
        solver.add(differ, *self._constraints, *([z3.Distinct(*constants)] if constants else []))
        found = solver.check()
        if found == z3.unsat:
            return None
        if found == z3.unknown:
            return str(solver.reason_unknown())
        model = self._model = self._small_model(solver)
        names = [n for n in self._names if n not in self.terms.atoms]
        return {n: model.eval(self._names[n], model_completion=True).as_long() for n in names}

    def _small_model(self, solver: Any) -> Any:
        """The model of a question that has one, with small sizes if these are enough."""
        model = solver.model()
        sizes = [self._names[n] for n in self._names if n not in self.terms.bounds]
        for limit in _SIZES if sizes else ():
            solver.push()
            solver.add(*[size <= limit for size in sizes])
            if solver.check() == self._z3.sat:
                return solver.model()
            solver.pop()
        return model

    def elements(self) -> tuple[ModelElement, ...]:
        """The elements of arguments in the model that :meth:`find` has found."""
        out: list[ModelElement] = []
        numbers = self._numbers()
        for node, expression in self._read():
            name, type_, *index = node.args
            if not isinstance(name, str) or not isinstance(type_, TensorType):
                continue
            places = [self._value(self._term(at)) for at in index if isinstance(at, int | Poly)]
            value = self._value(expression)
            number = value if isinstance(value, int) else numbers.setdefault(value, _new(numbers))
            if all(isinstance(place, int) for place in places):
                where = tuple([place for place in places if isinstance(place, int)])
                out.append(ModelElement(name, where, number))
        return tuple(out)

    def _read(self) -> list[tuple[Node, Any]]:
        """The elements of arguments that the question is about, as nodes and expressions."""
        atoms = [(self.terms.atoms[n], x) for n, x in self._names.items() if n in self.terms.atoms]
        found: list[tuple[Node, Any]] = []
        for node, expression in [*atoms, *self._nodes.items()]:
            inner = node.args[0] if node.kind == "truth" else node
            if isinstance(inner, Node) and inner.kind == "at":
                found.append((inner, expression))
        return found

    def _numbers(self) -> dict[object, float]:
        """The numbers of elements without a kind that are constants."""
        constants = [(node, x) for node, x in self._nodes.items() if node.kind == "const"]
        return {self._value(x): float(str(node.args[0])) for node, x in constants}

    def _value(self, expression: Any) -> int | str:
        """The value of an expression in the model: a number, or the name of an element."""
        found = self._model.eval(expression, model_completion=True)
        if self._z3.is_int_value(found):
            return int(found.as_long())
        if self._z3.is_true(found) or self._z3.is_false(found):
            return int(self._z3.is_true(found))
        return str(found)

    # ---- translation -----------------------------------------------------------------------------

    def _term(self, term: Term) -> Any:
        if isinstance(term, bool):
            return self._z3.BoolVal(term)
        if isinstance(term, int | Poly):
            return self._integer(term)
        return self._node(term)

    def _integer(self, value: Dim) -> Any:
        z3 = self._z3
        if isinstance(value, int):
            return z3.IntVal(value)
        total = z3.IntVal(0)
        for monomial, coefficient in value.terms:
            product = z3.IntVal(coefficient)
            for name in monomial:
                product = product * self._name(name)
            total = total + product
        return total

    def _name(self, name: str) -> Any:
        """A size, an index variable, or an atom."""
        found = self._names.get(name)
        if found is not None:
            return found
        z3 = self._z3
        found = self._names[name] = z3.Int(name)
        bounds = self.terms.bounds.get(name, Bounds(1, LARGEST_SIZE))
        if bounds.low is not None:
            self._constraints.append(found >= self._integer(bounds.low))
        if bounds.high is not None:
            self._constraints.append(found <= self._integer(bounds.high))
        node = self.terms.atoms.get(name)
        if node is not None:
            self._constraints.append(found == self._defined(node, z3.IntSort()))
        return found

    def _node(self, node: Node) -> Any:
        found = self._nodes.get(node)
        if found is None:
            sort = self._z3.BoolSort() if node.kind in _TRUTHS else self._element_sort()
            found = self._nodes[node] = self._defined(node, sort)
        return found

    def _element_sort(self) -> Any:
        return self._functions.setdefault("element", self._z3.DeclareSort("Element"))

    def _defined(self, node: Node, sort: Any) -> Any:
        """A node as an expression of a sort."""
        z3, args = self._z3, [self._arg(arg) for arg in node.args]
        match node.kind:
            case "le0" | "eq0":
                return args[0] <= 0 if node.kind == "le0" else args[0] == 0
            case "and":
                return z3.And(*args)
            case "not":
                return z3.Not(args[0])
            case "if":
                return z3.If(*args)
            case "div":
                return args[0] / args[1]
            case "min" | "max":
                ends = args if node.kind == "min" else args[::-1]
                return z3.If(args[0] <= args[1], *ends)
            case "place":
                return args[0]
            case "truth":
                inner = node.args[0]
                assert isinstance(inner, Node)
                return self._defined(inner, sort)
            case "sum" | "total" | "whole":
                return self._constant(node, sort)
            case _:
                return self._applied(node, args, sort)

    def _arg(self, arg: object) -> Any:
        if isinstance(arg, bool | int | Poly | Node):
            return self._term(arg)
        return arg

    def _constant(self, node: Node, sort: Any) -> Any:
        key = ("constant", node, str(sort))
        if key not in self._functions:
            self._functions[key] = self._z3.Const(f"value_{len(self._functions)}", sort)
        return self._functions[key]

    def _applied(self, node: Node, args: list[Any], sort: Any) -> Any:
        """An uninterpreted function of the arguments that are terms."""
        terms = [(x, a) for x, a in zip(args, node.args, strict=True) if self._is_term(a)]
        static = tuple(a for a in node.args if not self._is_term(a))
        sorts = [x.sort() for x, _ in terms]
        key = (node.kind, static, tuple(map(str, sorts)), str(sort))
        if key not in self._functions:
            name = f"function_{len(self._functions)}"
            self._functions[key] = self._z3.Function(name, *sorts, sort)
        return self._functions[key](*[x for x, _ in terms])

    @staticmethod
    def _is_term(arg: object) -> bool:
        return isinstance(arg, bool | int | Poly | Node)


def _new(numbers: dict[object, float]) -> float:
    """A number that no element has."""
    number = 1.0
    while number in numbers.values():
        number += 1.0
    return number
