"""Elements of values at symbolic indices: the walk over a program, and the table of rules.

A rule gives one element of an op's result from elements of its operands. An op without a rule is a
function of its whole operands: two such ops are equal where their operands are, element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from graphgen.composites import DECOMPOSITIONS, decompose
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, DType, Function, Op, TensorType, Value
from graphgen.ir.dims import Poly
from graphgen.ir.dtype import Kind
from graphgen.ops import OPS
from graphgen.ops.traits import Trait
from graphgen.passes.proof.integers import fit, range_of
from graphgen.passes.proof.terms import Node, Term, Terms

Index = tuple[Dim, ...]
# (elements, op, index of the result's element) -> the element, or None for an op whose attributes
# or sizes the rule does not cover.
Rule = Callable[["Elements", Op, Index], Term | None]
RULES: dict[str, Rule] = {}


def element_rule(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule of some ops."""

    def wrap(rule: Rule) -> Rule:
        for name in names:
            RULES[name] = rule
        return rule

    return wrap


@dataclass(slots=True)
class Elements:
    """Elements of the values of one program.

    Attributes:
        terms: shared by the programs that are compared.
        args: name of each argument; values of one name are equal in all of them.
        made: for arguments that another function makes, such as prepared weights, its value there.
        expand: whether composites are replaced by their decompositions.
        ranges: lowest and highest element of arguments by name, if known.
    """

    terms: Terms
    args: Mapping[Value, str]
    made: Mapping[Value, Value] = field(default_factory=dict[Value, Value])
    expand: bool = False
    ranges: Mapping[str, tuple[Dim, Dim]] = field(default_factory=dict[str, tuple[Dim, Dim]])
    _known: dict[tuple[Value, Index], Term] = field(default_factory=dict[tuple[Value, Index], Term])
    # Of expanded composites: what each result is, and what each argument of the body stands for.
    _bodies: dict[Value, Value] = field(default_factory=dict[Value, Value])
    _inner: dict[Value, Value] = field(default_factory=dict[Value, Value])
    _kept: list[Function] = field(default_factory=list[Function])
    _heights: dict[Value, int] = field(default_factory=dict[Value, int])

    def at(self, value: Value, index: Index) -> Term:
        """The element of ``value`` at ``index``."""
        value = self._meaning(value)
        key = (value, index)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._element(value, index)
        return found

    def integer(self, value: Value, index: Index) -> Dim:
        """The element of a value of an integer type."""
        found = self.at(value, index)
        assert isinstance(found, int | Poly), found
        return found

    def whole(self, value: Value) -> Node:
        """A value as a whole: its element at the index variables of its shape."""
        index = tuple(
            self.terms.variable(f"dim{axis}_{self._size(size)}", size)
            for axis, size in enumerate(value.shape)
        )
        return self.terms.node("whole", value.type.shape, self.at(value, index))

    def height(self, value: Value) -> int:
        """Number of nested sums that a value is computed by; it names their variables."""
        value = self._meaning(value)
        source = self._inner.get(value) or self.made.get(value)
        if source is not None:
            return self.height(source)
        found = self._heights.get(value)
        if found is None:
            op, below = value.op, 0
            for operand in op.operands if op is not None else ():
                below = max(below, self.height(operand))
            found = below + (op is not None and op.name in ("dot_general", "reduce"))
            self._heights[value] = found
        return found

    def summed(self, op: Op, axis: int, size: Dim) -> Dim:
        """The variable of a sum over dimension ``axis`` of the op's sum."""
        name = f"sum{self.height(op.results[0])}_{axis}_{self._size(size)}"
        return self.terms.variable(name, size)

    def _size(self, size: Dim) -> str:
        """A size as a part of a name."""
        return str(size) if isinstance(size, int) else f"p{id(size)}"

    def _meaning(self, value: Value) -> Value:
        """The value, or what it is in the decomposition of its composite."""
        op = value.op
        if op is None or not self.expand or not OPS[op.name].composite:
            return value
        if value not in self._bodies:
            self._decompose(op)
        return self._meaning(self._bodies[value])

    def _decompose(self, op: Op) -> None:
        body = decompose(op, DECOMPOSITIONS[op.name])
        self._kept.append(body)
        for result, (_, made) in zip(op.results, body.outputs, strict=True):
            self._bodies[result] = made
        for arg, operand in zip(body.args, op.operands, strict=True):
            self._inner[arg] = operand

    def _element(self, value: Value, index: Index) -> Term:
        op = value.op
        if op is None:
            operand = self._inner.get(value) or self.made.get(value)
            return self._argument(value, index) if operand is None else self.at(operand, index)
        rule = RULES.get(op.name)
        found = rule(self, op, index) if rule is not None else None
        return self._opaque(op, value, index) if found is None else found

    def _argument(self, value: Value, index: Index) -> Term:
        name = self.args.get(value)
        if name is None:
            raise GraphgenError("GG0302", f"{value!r} is not an argument of the programs compared")
        node = self.terms.node("at", name, value.type, *index)
        if name in self.ranges:
            return self.terms.atom(node, *self.ranges[name])
        return self.of_type(node, value.dtype)

    def _opaque(self, op: Op, value: Value, index: Index) -> Term:
        """An element of an op without a rule."""
        if OPS[op.name].has(Trait.ELEMENTWISE):
            parts = [self.at(x, index if x.type.rank else ()) for x in op.operands]
            return self.of_type(self.apply(op, parts), value.dtype)
        operands = [self.whole(operand) for operand in op.operands]
        node = self.terms.node("op", op.name, op.attrs, value.index, *operands, *index)
        return self.of_type(node, value.dtype)

    def apply(self, op: Op, parts: list[Term]) -> Node:
        """An elementwise op on elements."""
        if OPS[op.name].has(Trait.COMMUTATIVE):
            parts = sorted(parts, key=self.terms.order)
        return self.terms.node("fn", op.name, op.attrs, *parts)

    def of_type(self, node: Node, dtype: DType) -> Term:
        """A node as an element of this type: an integer becomes an atom in the type's range."""
        if is_truth(dtype):
            return self.terms.node("truth", node)
        return self.terms.atom(node, *range_of(dtype)) if dtype.is_integer else node

    def fitted(self, value: Dim, type_: TensorType) -> Dim:
        """An integer result as its type holds it."""
        return fit(self.terms, value, type_.dtype)


def is_truth(dtype: DType) -> bool:
    """True for ``pred``."""
    return dtype.kind is Kind.PRED
