"""Elements in an order that is taken part by part, as ranks take the best tokens together.

Each part has its largest element, and where that is first found in it. The first part with the
largest of these has the first of all elements that are largest, so the place found there is the
place in the whole, where the parts stand one after another. An order of the elements of ordered
parts is that of all elements: equal ones keep their order in a part, and that of the parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import Dim
from graphgen.ir.dims import Poly, bind, symbol
from graphgen.passes.proof.integers import div
from graphgen.passes.proof.rebuild import renamed, replaced
from graphgen.passes.proof.sums import ranges_of, variable_name
from graphgen.passes.proof.terms import Node, Term, Terms


def first_of_parts(
    terms: Terms, over: tuple[Dim, Dim], key: Term, moved: Term
) -> tuple[tuple[Dim, Dim], Term, Term] | None:
    """The order of the elements of all parts, of which the first is that of the largest parts.

    Args:
        terms: of the proof.
        over: the variable that counts parts, with their number.
        key: the largest element of a part.
        moved: what is taken of the first part whose key is the largest: an integer that depends on
            the place of that element in its part.

    Returns:
        A variable that counts the elements of all parts with its size, the key of an element, and
        what is taken of the first largest one. ``None`` for any other order.
    """
    (variable, count), inner = over, _largest(key)
    if inner is None or not isinstance(variable, Poly) or not isinstance(moved, Poly):
        return None
    (name, size), body = inner
    if not isinstance(count, int) or not isinstance(size, int):
        return None
    part, both = variable_name(variable), f"p{count}x{size}_{variable_name(variable)}"
    found = _first_place(terms, moved, (name, size), body)
    if found is None or both in terms.symbols_of(body) | terms.symbols_of(moved):
        return None
    atom, place = found
    joined = terms.variable(both, count * size)
    quotient = terms.atom(terms.node("div", joined, size), 0, count - 1)
    where: dict[str, Dim] = {part: quotient, name: joined + quotient * -size}
    terms.rules.add("the first of parts in order")
    taken = replaced(terms, bind(moved, {atom: place}), where)
    return (joined, count * size), replaced(terms, body, where), taken


def _largest(key: Term) -> tuple[tuple[str, Dim], Term] | None:
    """The variable and the elements of a maximum over one variable."""
    if not isinstance(key, Node) or key.kind != "sum" or key.args[0] != "maximum":
        return None
    if key.args[1] is not None or key.args[2] is not None:
        return None
    ranges, body = ranges_of(key)
    return (ranges[0], body) if len(ranges) == 1 else None


def _first_place(
    terms: Terms, moved: Poly, over: tuple[str, Dim], body: Term
) -> tuple[str, Dim] | None:
    """The atom of the place of the largest element in its part, and that place as a variable."""
    name, size = over
    for atom in sorted({factor for monomial, _ in moved.terms for factor in monomial}):
        node = terms.atoms.get(atom)
        if node is None or node.kind != "sort" or node.args[0] is not True or node.args[5] != 0:
            continue
        variable, many, key, place = node.args[1:5]
        if many != size or place != variable or not isinstance(variable, Poly):
            continue
        own = variable_name(variable)
        if name in terms.symbols_of(key) or not isinstance(key, Node):
            continue
        if renamed(terms, key, {own: name}) is body:
            return atom, symbol(name)
    return None


def order_of_parts(
    terms: Terms, down: bool, over: tuple[Dim, Dim], key: Term, moved: Term
) -> tuple[Term, Term] | None:
    """The key and what is moved of the order of all elements, for the order of ordered parts.

    Args:
        terms: of the proof.
        down: whether the order descends; that of the parts has to do so, too.
        over: the variable that counts the elements of all parts, with their number.
        key: the element at a place in the order of its part.
        moved: what is moved; it depends on the variable by the part, and by what is at that place.

    Returns:
        Both at the same variable, with the elements of each part as they were. ``None`` for others.
    """
    variable, count = over
    if not isinstance(key, Node) or key.kind != "sort" or not isinstance(variable, Poly):
        return None
    size = key.args[2]
    if not isinstance(size, int) or not isinstance(count, int) or size < 2 or count % size:
        return None
    if count == size:
        return None
    parts = _Parts(terms, down, variable_name(variable), count, size)
    element = parts.element(key)
    if element is None or element[1] is not element[0]:
        return None
    taken = element[0] if moved is key else parts.taken(moved, element[0])
    if taken is None:
        return None
    terms.rules.add("the order of parts in order")
    return parts.joined(element[0]), parts.joined(taken)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Elements of parts, by the number of the part and the place in it.

    Attributes:
        terms: of the proof.
        down: whether orders descend.
        name: of the variable that counts all elements.
        count: number of all elements.
        size: number of those of a part.
    """

    terms: Terms
    down: bool
    name: str
    count: int
    size: int

    @property
    def place(self) -> str:
        """The name of a variable for the place in a part, which no term has."""
        return f"{self.name}_within_{self.size}"

    def split(self, term: Term) -> Term:
        """A term where the variable is a part and a place."""
        part = self.terms.variable(f"{self.name}_part_{self.count}", self.count // self.size)
        place = self.terms.variable(self.place, self.size)
        return replaced(self.terms, term, {self.name: part * self.size + place})

    def joined(self, term: Term) -> Term:
        """A term of a part and a place at the variable again."""
        joined = symbol(self.name)
        part = div(self.terms, joined, self.size)
        where = {f"{self.name}_part_{self.count}": part, self.place: joined + part * -self.size}
        return replaced(self.terms, term, where)

    def element(self, node: Node) -> tuple[Term, Term] | None:
        """The key and what is moved, at a place in its part, of what is at a place in its order."""
        down, variable, many, key, moved, at = node.args
        if down is not self.down or many != self.size or not isinstance(variable, Poly):
            return None
        if not isinstance(at, int | Poly) or self.split(at) != symbol(self.place):
            return None
        found: list[Term] = []
        for given in (key, moved):
            assert isinstance(given, bool | int | Poly | Node)
            split = self.split(given)
            if self.place in self.terms.symbols_of(split):
                return None
            own = {variable_name(variable): self.place}
            found.append(renamed(self.terms, split, own))
        return found[0], found[1]

    def taken(self, moved: Term, key: Term) -> Term | None:
        """The integer that is moved with an element."""
        if not isinstance(moved, Poly):
            return None
        values: dict[str, Dim] = {}
        names: dict[str, Dim] = {}
        for atom in sorted({factor for monomial, _ in moved.terms for factor in monomial}):
            node = self.terms.atoms.get(atom)
            found = self.element(node) if node is not None and node.kind == "sort" else None
            if found is not None and found[0] is key and isinstance(found[1], int | Poly):
                names[atom] = symbol(f"{self.name}_taken_{len(names)}")
                values[f"{self.name}_taken_{len(values)}"] = found[1]
        split = self.split(bind(moved, names))
        if self.place in self.terms.symbols_of(split) or not isinstance(split, Poly):
            return None
        return bind(split, values)
