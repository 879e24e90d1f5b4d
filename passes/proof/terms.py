"""Terms: the elements of values at symbolic indices, in a normal form.

An integer is a polynomial (:data:`graphgen.ir.dims.Dim`) over the sizes of the program, index
variables, and *atoms*: other integers, such as an element of an argument, a
quotient, or a choice. Every other term is a :class:`Node`. Nodes are interned, so equal terms are
one object, and most proofs end with ``is``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from graphgen.ir import Dim, DType
from graphgen.ir.dims import Poly, bind, symbol, symbols

# Kind of an integer that is missing from a table of distinct integers.
ABSENT = "absent"
# Sizes of a program are assumed to be in this range, so that products of two fit into s64.
LARGEST_SIZE = 1 << 20
# Kinds of nodes that bind variables.
BINDING = ("sort", "sum", "total", "write")
# The sum of an integer, and an integer that is a place of ``block_places``.
TOTAL, PLACE = "total", "place"
# Names of atoms begin with it; no size does.
ATOM = "atom_"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A term other than a polynomial.

    Attributes:
        kind: ``at`` (an element of an argument), ``if``, ``le0`` and ``eq0`` (of one integer),
            ``and``, ``not``, ``div`` (rounding down, by a positive number), ``const``, ``fn`` (an
            elementwise op), ``op`` (any other op on ``whole`` values), ``sum`` (over variables),
            ``total`` (a sum of integers), ``place`` (of a token in a block, as ``block_places``),
            ``absent`` (an integer that a table does not hold),
            ``truth`` (a node of one of these kinds that is true or false).
        args: integers, nodes, and static data; of ``fn``, ``op`` and ``sum`` first the name of the
            op, what it rounds to (``None`` for an op that does not round), and its attributes.
    """

    kind: str
    args: tuple[object, ...]

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.args))})"


# An element: an integer, a truth value, or anything else.
Term = int | Poly | bool | Node


@dataclass(frozen=True, slots=True)
class Bounds:
    """Inclusive bounds of an integer, themselves polynomials of sizes; ``None`` for unknown."""

    low: Dim | None
    high: Dim | None


class TooManySteps(Exception):  # noqa: N818
    """A proof takes more steps than it is given."""


@dataclass(slots=True)
class Terms:
    """The terms of one proof.

    Attributes:
        bounds: of index variables and atoms, by name.
        atoms: the node of each atom.
        fitting: whether elements are values of a float type, or within its range.
        converted: elements converted to a float type, or to its range.
        makers: text and place of the op that first made a node.
        conditional: terms where a condition holds.
        rules: names of the rules that were used.
        steps: terms made so far, those included that had been made before.
        limit: of the steps; 0 for none.
        quotients: whether a quotient is a product with an inverse, a factor of a sum as any other.
            Tiles of attention divide after the sum; elsewhere terms only grow by it.
        narrow: types of which real arithmetic leaves out the range, too: see ``narrow_numbers``.
        assumed: what is assumed of numbers in these, in words.
        nonzero: names of tables of numbers that are not zero.
        distinct: names of tables of integers of which no two elements are equal.
    """

    bounds: dict[str, Bounds] = field(default_factory=dict[str, Bounds])
    atoms: dict[str, Node] = field(default_factory=dict[str, Node])
    fitting: dict[tuple[Node, DType, object], bool] = field(
        default_factory=dict[tuple[Node, DType, object], bool]
    )
    converted: dict[tuple[Node, DType, object], Term] = field(
        default_factory=dict[tuple[Node, DType, object], "Term"]
    )
    makers: dict[Node, str] = field(default_factory=dict[Node, str])
    conditional: dict[tuple[object, Node], object] = field(
        default_factory=dict[tuple[object, Node], object]
    )
    rules: set[str] = field(default_factory=set[str])
    steps: int = 0
    limit: int = 0
    quotients: bool = False
    narrow: frozenset[DType] = frozenset()
    assumed: set[str] = field(default_factory=set[str])
    nonzero: set[str] = field(default_factory=set[str])
    distinct: frozenset[str] = frozenset()
    _nodes: dict[tuple[object, ...], Node] = field(default_factory=dict[tuple[object, ...], Node])
    _names: dict[Node, str] = field(default_factory=dict[Node, str])
    _numbers: dict[Node, int] = field(default_factory=dict[Node, int])
    _symbols: dict[Node, frozenset[str]] = field(default_factory=dict[Node, frozenset[str]])
    _leaves: dict[Node, frozenset[str]] = field(default_factory=dict[Node, frozenset[str]])
    _depths: dict[Node, int] = field(default_factory=dict[Node, int])

    def node(self, kind: str, *args: object) -> Node:
        """The interned node."""
        self.count(1)
        # True equals 1 in Python, and is another term.
        key = (kind, *args, *map(type, args))
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(kind, args)
            self._numbers[found] = len(self._numbers)
        return found

    def order(self, term: Term) -> tuple[int, int, str]:
        """A key that sorts terms, the same for all programs of the proof."""
        return (1, self._numbers[term], "") if isinstance(term, Node) else (0, 0, str(term))

    def atom(self, node: Node, low: Dim | None = None, high: Dim | None = None) -> Poly:
        """A node as an integer."""
        name = self._names.get(node)
        if name is None:
            name = self._names[node] = f"{ATOM}{len(self._names)}"
            self.atoms[name] = node
            self.bounds[name] = Bounds(low, high)
        return symbol(name)

    def variable(self, name: str, size: Dim) -> Dim:
        """An index variable, 0 <= variable < size; 0 where that is the only one."""
        if size == 1:
            return 0
        self.bounds[name] = Bounds(0, size + -1)
        return symbol(name)

    # ---- what a term is made of ------------------------------------------------------------------

    def symbols_of(self, term: object) -> frozenset[str]:
        """The sizes, variables and atoms in a term, those within atoms included."""
        if isinstance(term, Poly):
            out: set[str] = set()
            for name in symbols([term]):
                out.add(name)
                if name in self.atoms:
                    out |= self.symbols_of(self.atoms[name])
            return frozenset(out)
        if not isinstance(term, Node):
            return frozenset()
        found = self._symbols.get(term)
        if found is None:
            parts = [x for x in term.args if isinstance(x, Node | Poly)]
            found = frozenset([name for part in parts for name in self.symbols_of(part)])
            self._symbols[term] = found
        return found

    def leaves_of(self, term: object) -> frozenset[str]:
        """The names of arguments and the constants in a term."""
        if isinstance(term, Poly):
            inner = [self.atoms[name] for name in symbols([term]) if name in self.atoms]
            return frozenset[str]().union(*map(self.leaves_of, inner))
        if not isinstance(term, Node):
            return frozenset()
        found = self._leaves.get(term)
        if found is None:
            parts = [self.leaves_of(x) for x in term.args if isinstance(x, Node | Poly)]
            own = frozenset((str(term.args[0]),) if term.kind in ("at", "const") else ())
            found = self._leaves[term] = own.union(*parts)
        return found

    def count(self, steps: int) -> None:
        """Count steps that make no terms."""
        self.steps += steps
        if self.limit and self.steps > self.limit:
            raise TooManySteps

    def depth(self, term: object) -> int:
        """The number of sums within each other in a term."""
        if isinstance(term, Poly):
            inner = [self.atoms[name] for name in symbols([term]) if name in self.atoms]
            return max(map(self.depth, inner), default=0)
        if not isinstance(term, Node):
            return 0
        found = self._depths.get(term)
        if found is None:
            found = max([self.depth(x) for x in term.args if isinstance(x, Node | Poly)], default=0)
            found = self._depths[term] = found + (term.kind in BINDING)
        return found

    # ---- bounds ----------------------------------------------------------------------------------

    def highest(self, value: Dim) -> Dim | None:
        """An upper bound of an integer as a polynomial of sizes alone."""
        plain, rest = self._highest(value), self._without_rest(value)
        found = None if rest is None else self.highest(rest)
        if plain is None or found is None:
            return found if plain is None else plain
        return found if most(found + plain * -1) <= 0 else plain

    def _highest(self, value: Dim) -> Dim | None:
        """The same, of variables and atoms one by one."""
        for _ in range(16):
            name = next((n for n in sorted(symbols([value])) if n in self.bounds), None)
            if name is None:
                return value
            replaced = self._without(value, name)
            if replaced is None:
                return None
            value = replaced
        return None

    def lowest(self, value: Dim) -> Dim | None:
        """A lower bound of an integer as a polynomial of sizes alone."""
        highest = self.highest(value * -1)
        return None if highest is None else highest * -1

    def _without_rest(self, value: Dim) -> Dim | None:
        """``value`` with a rest of a division, ``a - by * (a div by)``, at its largest."""
        if not isinstance(value, Poly):
            return None
        for monomial, coefficient in value.terms:
            node = self.atoms.get(monomial[0]) if len(monomial) == 1 else None
            if node is None or node.kind != "div":
                continue
            inside, by = node.args
            assert isinstance(inside, int | Poly)
            assert isinstance(by, int)
            of_quotient = self._without_rest_of_quotient(value, (monomial[0], coefficient))
            if of_quotient is not None:
                return of_quotient
            if coefficient % by or not isinstance(inside, Poly):
                continue
            times = -coefficient // by
            # value = times * (inside - by * quotient) + left
            left = value + (inside + symbol(monomial[0]) * -by) * -times
            # Only where the rest itself is in the sum, not a part of it.
            if len(_monomials(left)) < len(value.terms):
                return left + (times * (by - 1) if times > 0 else 0)
        return None

    def _without_rest_of_quotient(self, value: Poly, part: tuple[str, int]) -> Dim | None:
        """The same for the rest of a quotient, ``a div n - by * (a div (n * by))``."""
        name, coefficient = part
        inside, whole = self.atoms[name].args
        assert isinstance(whole, int)
        for monomial, times in value.terms:
            other = self.atoms.get(monomial[0]) if len(monomial) == 1 else None
            if other is None or other.kind != "div" or other.args[0] != inside:
                continue
            inner = other.args[1]
            assert isinstance(inner, int)
            by = whole // inner
            if by < 2 or whole % inner or coefficient != -times * by:
                continue
            left = value + symbol(monomial[0]) * -times + symbol(name) * -coefficient
            return left + (times * (by - 1) if times > 0 else 0)
        return None

    def _without(self, value: Dim, name: str) -> Dim | None:
        """``value`` with a variable at the end of its range that makes it largest."""
        assert isinstance(value, Poly)
        signs = {c > 0 for monomial, c in value.terms if name in monomial}
        products = any(name in m and len(m) > 1 and self._signed(m) for m, _ in value.terms)
        if len(signs) != 1 or products:
            return None
        bounds = self.bounds[name]
        end = bounds.high if signs.pop() else bounds.low
        return None if end is None else bind(value, {name: end})

    def _signed(self, monomial: tuple[str, ...]) -> bool:
        """True if a factor may be negative."""
        lows = [self.bounds[name].low for name in monomial if name in self.bounds]
        return any(low is None or not isinstance(low, int) or low < 0 for low in lows)

    def at_most(self, value: Dim, limit: Dim) -> bool:
        """True if ``value <= limit`` is known for all sizes."""
        highest = self.highest(value + limit * -1)
        return highest is not None and most(highest) <= 0

    def at_least(self, value: Dim, limit: Dim) -> bool:
        """True if ``value >= limit`` is known for all sizes."""
        return self.at_most(value * -1, limit * -1)

    def within(self, value: Dim, low: int, high: int) -> bool:
        """True if ``low <= value <= high`` is known for all sizes."""
        return self.at_least(value, low) and self.at_most(value, high)


def _monomials(value: Dim) -> tuple[tuple[str, ...], ...]:
    return tuple([m for m, _ in value.terms if m]) if isinstance(value, Poly) else ()


def atom_node(terms: Terms, term: Term) -> Term:
    """The node of an integer that is one atom; any other term itself."""
    if isinstance(term, Poly) and len(term.terms) == 1 and term.terms[0][1] == 1:
        names = term.terms[0][0]
        return terms.atoms.get(names[0], term) if len(names) == 1 else term
    return term


def bound_names(node: Node) -> list[str]:
    """The names of the variables that a node binds."""
    match node.kind:
        case "sum" | "total":
            places = node.args[3 : 3 + (len(node.args) - 4) // 2]
        case "write":
            count = node.args[0]
            assert isinstance(count, int)
            places = node.args[1 : 1 + count]
        case "sort":
            places = node.args[1:2]
        case _:
            places = ()
    return [name for place in places if isinstance(place, Poly) for name in symbols([place])]


def free_depth(terms: Terms, prefix: str, suffixes: Sequence[str], *bodies: Term) -> int:
    """The least depth of which names are not in terms: no variable there becomes a bound one."""
    depth = max(map(terms.depth, bodies))
    held = frozenset[str]().union(*map(terms.symbols_of, bodies))
    while any(f"{prefix}{depth}_{suffix}" in held for suffix in suffixes):
        depth += 1
    return depth


def most(value: Dim) -> int:
    """An upper bound of a polynomial of sizes, each in [1, :data:`LARGEST_SIZE`].

    With each size written as 1 + s, s >= 0: a term with a negative coefficient is at most 0.
    """
    if isinstance(value, int):
        return value
    shifted = bind(value, {name: symbol(name) + 1 for name in symbols([value])})
    terms = shifted.terms if isinstance(shifted, Poly) else (((), shifted),)
    return sum(c * (LARGEST_SIZE ** len(m)) if m and c > 0 else 0 if m else c for m, c in terms)


def nodes_of(terms: Terms, *roots: object) -> Iterator[Node]:
    """Every node of some terms, also those inside integers, each once."""
    seen: set[Node] = set()
    work = list(roots)
    while work:
        item = work.pop()
        if isinstance(item, Poly):
            work.extend(terms.atoms[name] for name in symbols([item]) if name in terms.atoms)
        elif isinstance(item, Node) and item not in seen:
            seen.add(item)
            yield item
            work.extend(item.args)
        elif isinstance(item, tuple):
            work.extend(item)  # pyright: ignore[reportUnknownArgumentType]


def walked(terms: Terms, root: Term) -> Iterator[Node]:
    """Every node of a term, counted as steps."""
    for node in nodes_of(terms, root):
        terms.count(1)
        yield node


def size_name(size: Dim) -> str:
    """A size as a part of a name: the same for equal sizes, in every process."""
    if isinstance(size, int):
        return str(size)
    return f"p{hashlib.sha256(str(size).encode()).hexdigest()[:12]}"
