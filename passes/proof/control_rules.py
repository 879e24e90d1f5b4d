"""Element rules of calls, branches and counting loops.

A counting loop writes one row of a value each time: row n is the update of the body where the
counter is n, if that depends on nothing else that the loop changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.ir import Dim, Function, Op, Value
from graphgen.ir.dims import Poly
from graphgen.passes.proof.elements import Elements, Index, element_rule, is_truth
from graphgen.passes.proof.integers import at_most_zero, choose
from graphgen.passes.proof.rebuild import replaced
from graphgen.passes.proof.terms import Node, Term


@element_rule("call", deep=True)
def _call(e: Elements, op: Op, index: Index) -> Term | None:
    number = e.result
    body = e.instance(op, op.attrs.text("to_apply"), op.operands)
    return None if body is None else e.at(body.outputs[number][1], index)


@element_rule("conditional", deep=True)
def _conditional(e: Elements, op: Op, index: Index) -> Term | None:
    number, which = e.result, op.operands[0]
    names, takes = op.attrs.names("branches"), op.attrs.integers("takes")
    if not is_truth(which.dtype) or len(names) != 2:
        return None
    parts: list[Sequence[Value]] = [op.operands[1 : 1 + takes[0]], op.operands[1 + takes[0] :]]
    bodies = [e.instance(op, name, part) for name, part in zip(names, parts, strict=True)]
    if bodies[0] is None or bodies[1] is None:
        return None
    condition = e.at(which, ())
    assert isinstance(condition, bool | Node)
    outputs = [body.outputs[number][1] for body in bodies if body is not None]
    if isinstance(condition, bool):
        return e.at(outputs[0 if condition else 1], index)
    return choose(e.terms, condition, e.at(outputs[0], index), e.at(outputs[1], index))


@dataclass(frozen=True, slots=True)
class _Count:
    """The counter of a loop.

    Attributes:
        place: of the counter in the loop's state.
        trips: from 0 to this number.
    """

    place: int
    trips: int


@element_rule("while", deep=True)
def _while(e: Elements, op: Op, index: Index) -> Term | None:
    number = e.result
    body = e.instance(op, op.attrs.text("body"), op.operands)
    more = e.functions.get(op.attrs.text("condition"))
    count = None if body is None or more is None else _count(more, body)
    if body is None or count is None or e.at(op.operands[count.place], ()) != 0:
        return None
    made, first = body.outputs[number][1], op.operands[number]
    if made is body.args[number]:
        return e.at(first, index)
    if number == count.place:
        return count.trips
    update = _row(body, number, count)
    if update is None:
        return None
    return _written_row(e, (count, body, update), (first, e.height(op.results[0])), index)


def _written_row(
    e: Elements, loop: tuple[_Count, Function, Value], before: tuple[Value, int], index: Index
) -> Term | None:
    """The row that a loop wrote, or the one before it; the height names the counter."""
    (count, body, update), (first, height) = loop, before
    terms, row = e.terms, index[0]
    variable = terms.variable(f"trip{height}_{count.trips}", count.trips)
    e.ranks.related[body.args[count.place]] = lambda e, index, rank: variable
    rest = index[1:]
    inside = at_most_zero(terms, row + (1 - count.trips))
    if inside is False:
        return e.at(first, index)
    found = e.at(update, (0, *rest))
    if isinstance(variable, Poly):
        ((names, _),) = variable.terms
        if any(names[0] in terms.symbols_of(i) for i in index):
            return None
        found = replaced(terms, found, {names[0]: row})
    return found if inside is True else choose(terms, inside, found, e.at(first, index))


def _count(more: Function, body: Function) -> _Count | None:
    """The counter of a loop that goes on while it is below a number, and adds one to it."""
    test = more.outputs[0][1].op
    if test is None or test.name != "compare" or test.attrs.text("direction") != "LT":
        return None
    counter, trips = test.operands[0], _number(test.operands[1])
    if counter.op is not None or counter not in more.args or trips is None or trips < 1:
        return None
    place = list(more.args).index(counter)
    step = body.outputs[place][1].op
    if step is None or step.name != "add" or step.operands[0] is not body.args[place]:
        return None
    return _Count(place, trips) if _number(step.operands[1]) == 1 else None


def _row(body: Function, number: int, count: _Count) -> Value | None:
    """The update of the counter's row; ``None`` if the body changes anything else."""
    made, carried = body.outputs[number][1].op, body.args[number]
    if made is None or made.name != "dynamic_update_slice" or made.operands[0] is not carried:
        return None
    update, first, *others = made.operands[1:]
    whole = (1, *carried.shape[1:])
    at_counter = first is body.args[count.place] and all(_number(x) == 0 for x in others)
    rows: Dim = carried.shape[0]
    if not at_counter or update.shape != whole or not isinstance(rows, int) or rows < count.trips:
        return None
    changed = {
        arg
        for n, (arg, (_, out)) in enumerate(zip(body.args, body.outputs, strict=True))
        if out is not arg and n != count.place
    }
    return update if changed.isdisjoint(_read(update)) else None


def _read(root: Value) -> set[Value]:
    """All values that a value is computed from."""
    seen: set[Value] = set()
    work = [root]
    while work:
        value = work.pop()
        if value not in seen:
            seen.add(value)
            work += value.op.operands if value.op is not None else ()
    return seen


def _number(value: Value) -> int | None:
    """The integer that a scalar constant is."""
    op = value.op
    if op is None or op.name != "constant" or value.type.rank or not value.dtype.is_integer:
        return None
    return int(op.attrs.literal("value").values()[0])
