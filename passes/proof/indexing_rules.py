"""Element rules of gathers, scatters and of the bits of numbers."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import Dim, DType, Op
from graphgen.ir.dims import Poly
from graphgen.ir.dtype import s32
from graphgen.passes.proof.block_places import written_in_block, written_in_buffer
from graphgen.passes.proof.elements import Elements, Index, element_rule, is_truth
from graphgen.passes.proof.first_places import first_of_parts, order_of_parts
from graphgen.passes.proof.floats import PLAIN, ProofLevel
from graphgen.passes.proof.integers import at_most_zero, both, choose, is_zero, larger, smaller
from graphgen.passes.proof.rebuild import by_each_other, node_rule, renamed, replaced, where
from graphgen.passes.proof.sums import (
    in_place_of,
    only_block,
    only_value,
    replaced_truth,
    size_name,
    summed,
    variable_name,
    without_padding,
)
from graphgen.passes.proof.terms import Node, Term, Terms, atom_node, free_depth


def _vector(e: Elements, op: Op, batch: Index, place: int) -> Dim:
    """A component of an index vector."""
    indices, axis = op.operands[1], op.attrs.integer("index_vector_dim")
    where_ = list(batch)
    if axis < indices.type.rank:
        where_.insert(axis, place)
    return e.integer(indices, tuple(where_))


@element_rule("gather", deep=True)
def _gather(e: Elements, op: Op, index: Index) -> Term | None:
    operand = op.operands[0]
    if op.operands[1].dtype.is_float:
        return None
    offset, sizes = op.attrs.integers("offset_dims"), op.attrs.dims("slice_sizes")
    collapsed = op.attrs.integers("collapsed_slice_dims")
    batch = tuple([i for axis, i in enumerate(index) if axis not in offset])
    window = iter([index[axis] for axis in offset])
    found: list[Dim] = [
        0 if axis in collapsed else next(window) for axis in range(operand.type.rank)
    ]
    starts = [
        (axis, _vector(e, op, batch, place))
        for place, axis in enumerate(op.attrs.integers("start_index_map"))
    ]

    def element(starts: list[tuple[int, Dim]]) -> Term:
        at = list(found)
        for axis, start in starts:
            room = operand.shape[axis] + sizes[axis] * -1
            at[axis] = at[axis] + smaller(e.terms, larger(e.terms, start, 0), room)
        return e.at(operand, tuple(at))

    choice = atom_node(e.terms, starts[0][1]) if len(starts) == 1 else None
    if isinstance(choice, Node) and choice.kind == "if" and isinstance(choice.args[2], int):
        # A number in the place of an index marks what is missing.
        which, (axis, _) = choice.args[0], starts[0]
        assert isinstance(which, Node)
        index_there = where(e.terms, _term(choice.args[1]), which)
        there, missing = element([(axis, _dim(index_there))]), element([(axis, choice.args[2])])
        return choose(e.terms, which, where(e.terms, there, which), missing)
    return element(starts)


@element_rule("scatter", deep=True)
def _scatter(e: Elements, op: Op, index: Index) -> Term | None:
    """The update that is written last at an index, or what was there."""
    if len(op.operands) != 3 or op.attrs.text("kind") != "assign":
        return None
    operand, _, updates = op.operands
    window = op.attrs.integers("update_window_dims")
    inserted = op.attrs.integers("inserted_window_dims")
    mapped = op.attrs.integers("scatter_dims_to_operand_dims")
    free = [axis for axis in range(operand.type.rank) if axis not in inserted]
    if any(axis in mapped for axis in free) or any(
        updates.shape[w] != operand.shape[axis] for w, axis in zip(window, free, strict=True)
    ):
        return None
    batch_axes = [axis for axis in range(updates.type.rank) if axis not in window]
    sums = [e.summed(op, n, updates.shape[axis]) for n, axis in enumerate(batch_axes)]
    here: bool | Node = True
    for place, axis in enumerate(mapped):
        target = _vector(e, op, tuple(sums), place)
        here = both(e.terms, here, is_zero(e.terms, target + index[axis] * -1))
    at: dict[int, Dim] = dict(zip(batch_axes, sums, strict=True))
    at |= {w: index[axis] for w, axis in zip(window, free, strict=True)}
    new = e.at(updates, tuple([at[axis] for axis in range(updates.type.rank)]))
    ranges = [
        (variable_name(v), updates.shape[axis])
        for v, axis in zip(sums, batch_axes, strict=True)
        if isinstance(v, Poly)
    ]
    made = written(e.terms, ranges, here, new, e.at(operand, index))
    dtype = op.results[0].dtype
    if e.is_payload(op.results[0]):
        return made
    return e.of_type(made, dtype) if isinstance(made, Node) and made.kind == "write" else made


def written(
    terms: Terms, ranges: list[tuple[str, Dim]], here: bool | Node, new: Term, old: Term
) -> Term:
    """``new`` for the last value of the variables for which ``here`` holds; ``old`` for none."""
    in_block = written_in_block(terms, ranges, here, new)
    if in_block is not None:
        return in_block
    here = by_each_other(terms, here)
    in_buffer = written_in_buffer(terms, ranges, here, new)
    if in_buffer is not None:
        known, found = in_buffer
        rest = old if known is True else _written(terms, ranges, here, new, old)
        return choose(terms, known, found, rest)
    return _written(terms, ranges, here, new, old)


def _written(
    terms: Terms, ranges: list[tuple[str, Dim]], here: bool | Node, new: Term, old: Term
) -> Term:
    """The same, by the values of variables that a condition leaves."""
    ranges, here, new = _fewer(terms, ranges, here, new)
    if here is False:
        return old
    new = where(terms, new, here)
    if not ranges:
        return choose(terms, here, new, old)
    suffixes = [f"{n}_{size_name(size)}" for n, (_, size) in enumerate(ranges)]
    depth = max(terms.depth(x) for x in (here, new, old))
    if [f"w{depth}_{suffix}" for suffix in suffixes] != [name for name, _ in ranges]:
        depth = free_depth(terms, "w", suffixes, here, new, old)
    names = {name: f"w{depth}_{n}_{size_name(size)}" for n, (name, size) in enumerate(ranges)}
    variables = [terms.variable(names[name], size) for name, size in ranges]
    changed = {old: made for old, made in names.items() if old != made}
    here, new = _condition(renamed(terms, here, changed)), renamed(terms, new, changed)
    sizes = [size for _, size in ranges]
    return terms.node("write", len(sizes), *variables, *sizes, here, new, old)


def _fewer(
    terms: Terms, ranges: list[tuple[str, Dim]], here: bool | Node, new: Term
) -> tuple[list[tuple[str, Dim]], bool | Node, Term]:
    """A write without variables of which a condition leaves one value, or of one block of them."""
    changed = True
    while changed and isinstance(here, Node):
        changed = False
        for place, (name, size) in enumerate(ranges):
            found = only_value(terms, here, name)
            block = None if found is not None else only_block(terms, here, name)
            left: list[tuple[str, Dim]] = []
            if found is not None:
                value, here = found
            elif block is not None and isinstance(size, int) and size % block[1] == 0:
                number, by = block
                left = [(f"{name}_of_{by}", by)] if by > 1 else []
                value = number * by + terms.variable(f"{name}_of_{by}", by)
                here = replaced_truth(terms, here, {name: value})
            else:
                continue
            inside = both(
                terms, at_most_zero(terms, value * -1), at_most_zero(terms, value + size * -1 + 1)
            )
            here = both(terms, inside, here)
            new = replaced(terms, new, {name: value})
            # The order of the others stays: the last one counts.
            ranges = [*ranges[:place], *left, *ranges[place + 1 :]]
            changed = True
            break
    return ranges, here, new


def _condition(term: Term) -> bool | Node:
    assert isinstance(term, bool | Node)
    return term


@node_rule("write")
def _written_again(terms: Terms, args: tuple[object, ...]) -> Term:
    count = args[0]
    assert isinstance(count, int)
    variables, sizes = args[1 : 1 + count], args[1 + count : 1 + 2 * count]
    ranges: list[tuple[str, Dim]] = []
    for variable, size in zip(variables, sizes, strict=True):
        assert isinstance(variable, int | Poly)
        assert isinstance(size, int | Poly)
        ranges.append((variable_name(variable), size))
    here, new, old = args[-3:]
    assert isinstance(here, bool | Node)
    assert isinstance(new, bool | int | Poly | Node)
    assert isinstance(old, bool | int | Poly | Node)
    return written(terms, ranges, here, new, old)


# ---- bits ----------------------------------------------------------------------------------------


@element_rule("bitcast_convert", deep=True)
def _bitcast_convert(e: Elements, op: Op, index: Index) -> Term | None:
    source, target = op.operands[0].dtype, op.results[0].dtype
    if is_truth(source) or is_truth(target):
        return None
    if source.bits < target.bits:
        size = op.operands[0].shape[-1]
        part = e.terms.variable(f"part_{size_name(size)}", size)
        return _joined(e, e.at(op.operands[0], (*index, part)), op, part)
    if source.bits > target.bits:
        return bits(e, e.at(op.operands[0], index[:-1]), op, (index[-1],))
    term = e.at(op.operands[0], index)
    if source is target:
        return term
    return bits(e, term, op)


def _joined(e: Elements, term: Term, op: Op, part: Dim) -> Term | None:
    """The number whose parts, such as bytes, are an element at a variable; ``None`` if unknown."""
    terms, node = e.terms, atom_node(e.terms, term)
    if not isinstance(node, Node):
        return None
    name = variable_name(part)
    if node.kind in ("if", "write") and name not in terms.symbols_of(node.args[-3]):
        new, old = [_joined(e, _term(x), op, part) for x in node.args[-2:]]
        if new is None or old is None:
            return None
        if node.kind == "if":
            which = node.args[0]
            assert isinstance(which, bool | Node)
            return choose(terms, which, new, old)
        return e.of_type(terms.node("write", *node.args[:-2], new, old), op.results[0].dtype)
    whole = "bitcast_convert", op.operands[0].dtype, op.results[0].dtype
    if node.kind == "fn" and node.args[:3] == whole and node.args[4:] == (part,):
        return _term(node.args[3])
    return None


def _term(value: object) -> Term:
    assert isinstance(value, bool | int | Poly | Node)
    return value


def bits(e: Elements, term: Term, op: Op, part: Index = ()) -> Term:
    """A number whose bits are those of an element of another type, or a part of these."""
    terms, source, target = e.terms, op.operands[0].dtype, op.results[0].dtype
    node = atom_node(terms, term)
    if isinstance(node, Node) and node.kind == "if":
        which, yes, no = node.args
        assert isinstance(which, bool | Node)
        return choose(terms, which, *[bits(e, _term(x), op, part) for x in (yes, no)])
    if isinstance(node, Node) and node.kind == "write":
        *head, here, new, old = node.args
        made = [bits(e, _term(x), op, part) for x in (new, old)]
        return e.of_type(terms.node("write", *head, here, *made), target)
    whole = "bitcast_convert", source, target
    if isinstance(node, Node) and node.args[:3] == whole and len(node.args) == 4:
        return _term(node.args[3])
    return e.of_type(terms.node("fn", "bitcast_convert", target, source, term, *part), target)


# ---- sorting -------------------------------------------------------------------------------------


@element_rule("sort", deep=True)
def _sort(e: Elements, op: Op, index: Index) -> Term | None:
    """The element that comes at a place, by the first operand; equal ones keep their order."""
    dim, shown = op.attrs.integer("dimension"), e.result
    size = op.operands[0].shape[dim]
    variable = e.summed(op, 0, size)
    place = (*index[:dim], variable, *index[dim + 1 :])
    key, moved = e.at(op.operands[0], place), e.at(op.operands[shown], place)
    down = op.attrs.get("descending") is True
    order = _Order(variable, size, key, moved)
    return _in_place(e, order, index[dim], op.results[shown].dtype, down=down)


@dataclass(frozen=True, slots=True)
class _Order:
    """Elements that are sorted by their keys.

    Attributes:
        variable: the place before.
        size: number of elements.
        key: of the element at the variable.
        moved: the element there.
    """

    variable: Dim
    size: Dim
    key: Term
    moved: Term


def _in_place(e: Elements, order: _Order, place: Dim, dtype: DType, *, down: bool) -> Term:
    """The element that comes at a place."""
    if down and place == 0 and e.level is not ProofLevel.EXACT:
        order = _without_parts(e.terms, order)
    if e.level is not ProofLevel.EXACT:
        order = _of_all_parts(e.terms, order, down=down)
    if down and e.level is not ProofLevel.EXACT:
        order = _without_padding(e.terms, order, place)
    moved, over = order.moved, (order.variable, order.size)
    if moved is order.key and place == 0 and dtype in PLAIN and e.level is not ProofLevel.EXACT:
        # The first one is the largest, or the smallest. Which of two zeros counts for rounding.
        ranges = [(variable_name(order.variable), order.size)] if over[0] != 0 else []
        return summed(e.terms, "maximum" if down else "minimum", None, ranges, moved)
    made = in_place_of(e.terms, down, over, order.key, moved, place)
    if isinstance(moved, int | Poly):
        return e.terms.atom(made, e.terms.lowest(moved), e.terms.highest(moved))
    return e.of_type(made, dtype)


def _without_parts(terms: Terms, order: _Order) -> _Order:
    """The elements of all parts of which the largest ones are in order, for the first place."""
    found = first_of_parts(terms, (order.variable, order.size), order.key, order.moved)
    return order if found is None else _Order(*found[0], *found[1:])


def _of_all_parts(terms: Terms, order: _Order, *, down: bool) -> _Order:
    """The elements of all parts, where those of each part are in order."""
    over = order.variable, order.size
    found = order_of_parts(terms, down, over, order.key, order.moved)
    return order if found is None else _Order(*over, *found)


def _without_padding(terms: Terms, order: _Order, place: Dim) -> _Order:
    over = order.variable, order.size
    variable, size, *parts = without_padding(terms, over, order.key, order.moved, place)
    return _Order(variable, size, *parts)


def _dim(value: object) -> Dim:
    assert isinstance(value, int | Poly)
    return value


@element_rule("custom_call", deep=True)
def _top_k_call(e: Elements, op: Op, index: Index) -> Term | None:
    """``AwsNeuronTopK``: the first elements of a sort, largest first, and their places."""
    if op.attrs.text("target") != "AwsNeuronTopK" or len(op.operands) != 1:
        return None
    (x,), last, shown = op.operands, op.operands[0].type.rank - 1, e.result
    variable = e.summed(op, 0, x.shape[last])
    key = e.at(x, (*index[:last], variable))
    order = _Order(variable, x.shape[last], key, key if shown == 0 else variable)
    return _in_place(e, order, index[last], s32 if shown else op.results[0].dtype, down=True)
