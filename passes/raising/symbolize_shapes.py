"""Replace the sizes that a program was traced with by symbols.

In a program that was traced twice, with two sets of sizes, the numbers that differ are sizes, and
each must be the same expression of the symbols both times. In a program that was traced once, each
number equal to a size is that size, in types and in attributes; an integer constant, such as an
index that counts from the end, is lifted where its use shows its meaning, and refused otherwise.
The types of every op are inferred again, and must equal the traced ones when the symbols are bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations, zip_longest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import (
    AttrValue,
    Dim,
    Domain,
    Function,
    Literal,
    Module,
    Op,
    Role,
    TensorType,
    Value,
    symbol,
)
from graphgen.ir import tensor as tensor_of
from graphgen.ir.dims import bind, product
from graphgen.ir.dtype import s32
from graphgen.ops import OPS, Trait, has_trait
from graphgen.ops.attr_types import DIM, DIMS
from graphgen.passes.raising.index_analysis import wrapped


def lift_sizes(
    module: Module,
    sizes: Mapping[str, int],
    other: Module | None = None,
    second: Mapping[str, int] | None = None,
) -> None:
    """Replace sizes by symbols in every program of a module.

    Args:
        module: changed in place; inputs, states and outputs have the sizes, weights do not.
        sizes: the number that each symbol was traced with.
        other: the same program, traced with other sizes.
        second: those sizes.

    Raises:
        GraphgenError: GG0304 where a size equals another number, the type of an op changes, or the
            two programs differ, naming the op.
    """
    once = other is None or second is None
    lifted = _Once(sizes) if second is None or once else _Twice(sizes, second)
    _check(module, sizes, once=once)
    weights = {row.name for row in module.entries(Role.WEIGHT)}
    for name, function in list(module.functions.items()):
        again = other.function(name) if other is not None else function
        module.functions[name] = _Function(function, again, lifted, weights).lifted()
    for row in list(module.interface.values()):
        if row.role is not Role.WEIGHT:
            beside = other.interface[row.name] if other is not None else row
            type_ = lifted.type(row.logical, beside.logical)
            domain = row.domain if _stays(row.domain, sizes) else None
            module.interface[row.name] = replace(row, logical=type_, physical=type_, domain=domain)


def _stays(domain: Domain | None, sizes: Mapping[str, int]) -> bool:
    """True for a domain that does not end with one of the sizes that become symbols."""
    numbers = domain.numbers if domain is not None else None
    return numbers is None or not {numbers[1], numbers[1] + 1} & {*sizes.values()}


def other_sizes(modules: Sequence[Module], sizes: Mapping[str, int]) -> dict[str, int]:
    """Choose larger sizes to trace with, none of which occurs in the programs."""
    taken = set(sizes.values())
    for module in modules:
        for function in module.functions.values():
            shapes = [value.type.shape for value in function.args]
            shapes += [result.type.shape for op in function.block for result in op.results]
            taken |= {dim for shape in shapes for dim in shape if isinstance(dim, int)}
    found: dict[str, int] = {}
    for name, size in sizes.items():
        found[name] = next(n for n in range(size + 1, size + 2 + len(taken)) if n not in taken)
        taken.add(found[name])
    return found


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _check(module: Module, sizes: Mapping[str, int], *, once: bool) -> None:
    """Check that each size is a number of its own (GG0304)."""
    if len(set(sizes.values())) < len(sizes) or min(sizes.values()) < 2:
        raise GraphgenError(
            "GG0304",
            f"{_text(sizes)} cannot be distinguished",
            help="trace with sizes above 1 that differ, such as B=3, S=61",
        )
    for row in module.entries(Role.WEIGHT) if once else ():
        for name, size in sizes.items():
            if size in row.logical.shape:
                raise GraphgenError(
                    "GG0304",
                    f"{size} is the size {name} and one of the weight {row.name} "
                    f"{row.logical.text}",
                    help="trace with a size that no weight has",
                )


class _SizeSymbols:
    """Mapping of numbers to sizes.

    Args:
        sizes: the number of each symbol.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.products: list[Dim] = [
            product([symbol(name) for name in names])
            for count in range(1, len(sizes) + 1)
            for names in combinations(sizes, count)
        ]

    def dim(self, dim: Dim, beside: Dim) -> Dim:
        """Map ``dim`` to a size, or to itself; ``beside`` is its value in the second trace."""
        raise AssertionError

    def type(self, type_: TensorType, beside: TensorType) -> TensorType:
        """The type with its sizes lifted."""
        pairs = zip(type_.shape, beside.shape, strict=True)
        return tensor_of(type_.dtype, [self.dim(*pair) for pair in pairs])


class _Once(_SizeSymbols):
    """A number equal to a size or a product of sizes is that size."""

    def dim(self, dim: Dim, beside: Dim) -> Dim:
        found = (item for item in self.products if bind(item, self.sizes) == dim)
        return next(found, dim)


class _Twice(_SizeSymbols):
    """A number that differs is the expression of sizes with its value in both traces.

    Args:
        sizes: the number of each symbol in the first trace.
        second: that in the second.
    """

    def __init__(self, sizes: Mapping[str, int], second: Mapping[str, int]) -> None:
        super().__init__(sizes)
        self.second = second
        pairs = [(symbol(a), symbol(b)) for a, b in permutations(sizes, 2)]
        self.known = [*self.products, *(a - b for a, b in pairs), *(a + b for a, b in pairs)]

    def dim(self, dim: Dim, beside: Dim) -> Dim:
        if dim == beside or not isinstance(dim, int) or not isinstance(beside, int):
            return dim
        best: tuple[int, Dim] | None = None
        for item in self.known:
            first, second = bind(item, self.sizes), bind(item, self.second)
            assert isinstance(first, int)
            assert isinstance(second, int)
            rest = dim - first
            if rest == beside - second and (best is None or abs(rest) < best[0]):
                best = abs(rest), item + rest
        if best is None:
            raise GraphgenError(
                "GG0304",
                f"a number is {dim} with {_text(self.sizes)} and {beside} with "
                f"{_text(self.second)}: no sum or product of them",
            )
        return best[1]


@dataclass(slots=True)
class _Function:
    """One function, rebuilt with symbols.

    Attributes:
        source: its first trace.
        again: its second trace, or the first again.
        rule: the mapping of numbers.
        weights: arguments whose sizes stay.
        values: old to new values.
        counts: sizes as values of the program.
    """

    source: Function
    again: Function
    rule: _SizeSymbols
    weights: set[str]
    values: dict[Value, Value] = field(default_factory=dict[Value, Value])
    counts: dict[str, Value] = field(default_factory=dict[str, Value])

    def lifted(self) -> Function:
        """The function with its sizes lifted."""
        made = Function(self.source.name, self.source.phase, dict(self.source.dims))
        if len(self.source.args) != len(self.again.args):
            raise GraphgenError("GG0304", f"@{made.name} takes other arguments with other sizes")
        for value, beside in zip(self.source.args, self.again.args, strict=True):
            weight = value.name in self.weights
            type_ = value.type if weight else self.rule.type(value.type, beside.type)
            self.values[value] = made.block.add_arg(type_, value.name or "")
        b = Builder(made)
        ops, others = list(self.source.block), list(self.again.block)
        for op, beside in zip_longest(ops, others):
            self._write(b, op, beside)
        made.outputs = [(name, self.values[value]) for name, value in self.source.outputs]
        return made

    def _write(self, b: Builder, op: Op | None, beside: Op | None) -> None:
        """Rebuild an op from both traces."""
        if op is None or beside is None or op.name != beside.name:
            known = op or beside
            assert known is not None
            raise self._refused(known, "with other sizes it is another program")
        b.loc = op.loc
        for old, new in zip(op.results, self._op(b, op, beside), strict=True):
            if new.type.bind(self.rule.sizes) is not old.type:
                raise self._refused(op, f"it would be {new.type.text}")
            new.name = new.name or old.name
            self.values[old] = new

    def _op(self, b: Builder, op: Op, beside: Op) -> tuple[Value, ...]:
        operands = [self.values[value] for value in op.operands]
        changed = any(
            new.type is not old.type for new, old in zip(operands, op.operands, strict=True)
        )
        if changed and (has_trait(op, Trait.CONTROL) or has_trait(op, Trait.EXTERNAL)):
            raise self._refused(op, "its result types are stated, and not known for other sizes")
        try:
            if op.name == "constant":
                return (self._constant(b, op, beside),)
            return b.emit(op.name, operands, self._attrs(op, beside)).results
        except GraphgenError as error:
            if error.where:
                raise
            raise self._refused(op, error.what) from error

    def _attrs(self, op: Op, beside: Op) -> dict[str, AttrValue]:
        attrs = dict(op.attrs)
        for item in OPS[op.name].attrs:
            value, second = attrs.get(item.name), beside.attrs.get(item.name)
            if item.type is DIM and isinstance(value, int) and isinstance(second, int):
                attrs[item.name] = self.rule.dim(value, second)
            elif item.type is DIMS:
                pairs = zip(op.attrs.dims(item.name), beside.attrs.dims(item.name), strict=True)
                attrs[item.name] = tuple(self.rule.dim(*pair) for pair in pairs)
            elif value != second:
                raise self._refused(op, f"with other sizes {item.name} is another")
        if op.name == "slice" and op is beside:
            attrs["start_indices"] = self._starts(op)
        return attrs

    def _starts(self, op: Op) -> tuple[Dim, ...]:
        """Map the starts of a slice up to the end: one nearer to the end counts from there."""
        starts, limits = op.attrs.dims("start_indices"), op.attrs.dims("limit_indices")
        found: list[Dim] = []
        for start, limit in zip(starts, limits, strict=True):
            whole = self.rule.dim(limit, limit)
            from_end = isinstance(limit, int) and isinstance(start, int) and 2 * start > limit
            found.append(whole - (limit - start) if from_end and whole is not limit else start)
        return tuple(found)

    def _constant(self, b: Builder, op: Op, beside: Op) -> Value:
        literal, second = op.attrs.literal("value"), beside.attrs.literal("value")
        kind, shape = literal.dtype, self.rule.type(op.result.type, beside.result.type).shape
        if shape != literal.shape:
            if not (kind.is_integer and len(shape) == 1 and _counts(literal) and _counts(second)):
                text = op.result.type.text
                raise self._refused(op, f"a constant of {text} has one size only")
            return b.iota(kind, shape, 0)
        if not kind.is_integer and literal != second:
            raise self._refused(op, "a number that is not an integer differs with the sizes")
        if not kind.is_integer or (literal == second and (literal.shape or op is not beside)):
            return b.emit("constant", (), dict(op.attrs)).result
        pairs = [(int(a), int(c)) for a, c in zip(literal.values(), second.values(), strict=True)]
        if len(set(pairs)) > 1 and len(shape) > 1:
            raise self._refused(op, "its numbers differ with the sizes")
        found = [
            self.rule.dim(*pair) if op is not beside else self._known(op, pair[0])
            for pair in (pairs if len(set(pairs)) > 1 else pairs[:1])
        ]
        numbers = [b.convert(self._size(b, number), kind) for number in found]
        if len(numbers) == 1:
            return numbers[0] if not shape else b.broadcast_in_dim(numbers[0], shape, [])
        return b.concatenate([b.reshape(number, (1,)) for number in numbers], 0)

    def _known(self, op: Op, value: int) -> Dim:
        """Map an integer constant of a program that was traced once."""
        exact = self.rule.dim(value, value)
        if bounds_index(op.result):
            symbols = {name: symbol(name) for name in self.rule.sizes}
            last = [d - 1 for name, d in symbols.items() if self.rule.sizes[name] - 1 == value]
            room = [
                symbols[a] - symbols[b]
                for a, b in permutations(symbols, 2)
                if self.rule.sizes[a] - self.rule.sizes[b] == value
            ]
            return exact if exact != value else next(iter((*last, *room)), value)
        if exact != value:
            help_ = "import a function that takes the sizes: it is then traced twice"
            raise self._refused(op, f"it may be the size {exact}, or a number of its own", help_)
        return value

    def _size(self, b: Builder, dim: Dim) -> Value:
        """Build a size as a value: the sum of that many ones."""
        if isinstance(dim, int):
            return b.literal(dim, s32)
        found = self.counts.get(str(dim))
        if found is None:
            total: Value | None = None
            for monomial, factor in dim.terms:
                ones = b.full(factor, tensor_of(s32, [product(map(symbol, monomial))]))
                term = b.reduce(ones, [0], "add") if monomial else b.literal(factor, s32)
                total = term if total is None else b.binary("add", total, term)
            assert total is not None
            found = self.counts[str(dim)] = total
        return found

    def _refused(self, op: Op, why: str, help: str = "") -> GraphgenError:
        result = op.results[0]
        name = f" %{result.name}" if result.name else ""
        return GraphgenError(
            "GG0304",
            f"{_text(self.rule.sizes)} cannot be lifted through {op.name}{name} "
            f"{result.type.text}: {why}",
            where=repr(op.loc),
            help=help,
        )


def bounds_index(value: Value) -> bool:
    """Test whether a constant is only used to wrap or to clamp indices."""
    for user in value.users:
        if user.name == "broadcast_in_dim":
            if not bounds_index(user.result):
                return False
        elif user.name == "add":
            if not any(_wraps(select, user) for select in user.result.users):
                return False
        elif user.name != "clamp" or user.operands[2] is not value or not _indexes(user.result):
            return False
    return bool(value.users)


def _wraps(select: Op, total: Op) -> bool:
    return wrapped(select.results[0]) is not None and select.operands[1] is total.result


def _indexes(value: Value) -> bool:
    """Test whether ``value`` is used as an index only."""
    for user in value.users:
        if user.name in ("add", "broadcast_in_dim", "reshape", "concatenate"):
            if not _indexes(user.result):
                return False
        elif user.name not in ("kv_update", "gather", "scatter", "dynamic_slice"):
            return False
    return bool(value.users)


def _counts(literal: Literal) -> bool:
    """Test whether a vector is 0, 1, 2, ..."""
    return [*map(int, literal.values())] == [*range(literal.shape[0])]
