"""Divergence: the first value that disagrees with its counterpart while its operands agree."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from graphgen.eval import Array
from graphgen.eval.element_kinds import Number, element
from graphgen.ir import Loc, Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.passes.equiv.value_matching import ValueMatching, ancestors
from graphgen.passes.equiv.value_trace import ValueTrace, close, views, worst_index
from graphgen.report.units import short
from graphgen.text.grammar import format_attr
from graphgen.text.printer import value_names


@dataclass(frozen=True, slots=True)
class Maker:
    """The op that computes a value in one of the programs.

    Attributes:
        text: its op, as the program's text has it.
        loc: where that comes from.
        number: its element at the index of the difference.
    """

    text: str
    loc: Loc
    number: Number


@dataclass(frozen=True, slots=True)
class Divergence:
    """First diverging value of two programs.

    Attributes:
        left, right: the value in each.
        index: where the two are farthest apart, in the shape they are compared in.
        shape: that shape.
        between: ops between this one and the values that agree which have no counterpart; 0 where
            everything it reads agrees.
        joined: put together or summed over the ranks the two agree, but not rank by rank.
        crossed: for operands of ``right`` that agree with another value than the one ``left`` reads
            in their place: the operand, what it agrees with, what ``left`` reads.
    """

    left: Maker
    right: Maker
    index: tuple[int, ...]
    shape: tuple[int, ...]
    between: int
    joined: bool = False
    crossed: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DifferingOutput:
    """An output that differs and should not.

    Attributes:
        ours: the left program's.
        arrays: the two as they were compared.
    """

    ours: Value
    arrays: tuple[Array, Array]


@dataclass(slots=True)
class _Search:
    """State of one search: agreeing pairs, and values whose counterpart differs."""

    twins: ValueMatching
    outputs: Mapping[Value, DifferingOutput]
    agrees: dict[Value, Value] = field(default_factory=dict[Value, Value])
    differs: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def look(self, value: Value) -> None:
        """Find out about one value; what it reads has been looked at."""
        twins = self.twins
        if value in self.differs:
            return
        known = twins.by_origin(value)
        if known is not None:
            same = twins.same(known, value)
            if same is not None:
                (self.agrees if same else self.differs)[value] = known
                return
        found = twins.by_numbers(value)
        if found is not None:
            self.agrees[value] = found

    def guess(self, guilty: Collection[Value]) -> None:
        """Pair unmatched values among ``guilty`` by their operands."""
        taken = {*self.agrees.values(), *self.differs.values()}
        for value in self.twins.right.parts:
            if value in guilty and value not in self.differs:
                found = self.twins.by_operands(value, self.agrees, taken)
                if found is not None:
                    self.differs[value] = found
                    taken.add(found)


def find_divergence(
    left: ValueTrace,
    right: ValueTrace,
    given: Mapping[Value, Value],
    outputs: Mapping[Value, DifferingOutput],
    within: float,
) -> Divergence | None:
    """The divergence that the search found.

    Args:
        left: one program, run.
        right: the other, run on what belongs together.
        given: arguments that go together, right to left.
        outputs: by the right program's value.
        within: relative difference up to which values agree.

    Returns:
        The first value of ``right`` in program order that disagrees, that a differing output is
        computed from by values which disagree too, and whose operands agree or have no counterpart.
        ``None`` where everything agrees op by op.
    """
    search = _Search(ValueMatching(left, right, given, within), outputs)
    behind = ancestors(list(outputs))
    for value in right.parts:
        if value in outputs:
            search.differs[value] = outputs[value].ours
        if value in behind:
            search.look(value)
    guilty = _reaching(search, [value for value in outputs if value in search.differs])
    search.guess(guilty)
    for value in right.parts:
        if value in guilty and value in search.differs:
            return _described(search, *_operand_at_fault(search, search.differs[value], value))
    return None


def _reaching(search: _Search, outputs: list[Value]) -> set[Value]:
    """Values that the outputs depend on through values that do not agree."""
    found: set[Value] = set()
    work = list(outputs)
    while work:
        value = work.pop()
        if value in found or value in search.agrees:
            continue
        found.add(value)
        if value.op is not None:
            work.extend(value.op.operands)
    return found


def _operand_at_fault(search: _Search, ours: Value, theirs: Value) -> tuple[Value, Value]:
    """The operand that makes the difference, where both ops are of one kind and it was unpaired."""
    while ours.op is not None and theirs.op is not None and ours.op.name == theirs.op.name:
        pairs = zip(ours.op.operands, theirs.op.operands, strict=False)
        fault = next(
            (
                (a, b)
                for a, b in pairs
                if b not in search.agrees
                and a.op is not None
                and b.op is not None
                and a.op.name == b.op.name
                and search.twins.same(a, b) is False
            ),
            None,
        )
        if fault is None:
            break
        ours, theirs = fault
    return ours, theirs


def _described(search: _Search, ours: Value, theirs: Value) -> Divergence | None:
    twins = search.twins
    found = views(twins.left.parts[ours], twins.right.parts[theirs])
    joined = found is not None and close(*found, twins.tolerance)
    found = search.outputs[theirs].arrays if theirs in search.outputs else found
    if found is None or found[0].shape != found[1].shape:
        return None
    index = worst_index(*found, twins.tolerance)
    unpaired = _reaching(search, list(theirs.op.operands) if theirs.op is not None else [])
    return Divergence(
        Maker(_text(twins.left, ours, theirs), _loc(ours), element(found[0][index])),
        Maker(_text(twins.right, theirs, ours), _loc(theirs), element(found[1][index])),
        index,
        found[0].shape,
        len(unpaired),
        joined,
        _crossed(search, ours, theirs),
    )


def _crossed(search: _Search, ours: Value, theirs: Value) -> tuple[tuple[str, str, str], ...]:
    """Operands of ``theirs`` that are another value of the left program than ``ours`` reads."""
    if ours.op is None or theirs.op is None or len(ours.op.operands) != len(theirs.op.operands):
        return ()
    mine, other = value_names(search.twins.left.function), value_names(search.twins.right.function)
    return tuple(
        (other[b], mine[search.agrees[b]], mine[a])
        for a, b in zip(ours.op.operands, theirs.op.operands, strict=True)
        if b in search.agrees and search.twins.same(a, b) is not True
    )


def _loc(value: Value) -> Loc:
    return value.op.loc if value.op is not None else UNKNOWN


def _text(run: ValueTrace, value: Value, other: Value) -> str:
    """``%y = rms_norm(%x, %w) eps=1e-05``, with the names of the program's text.

    Of the attributes those that differ from the ones of ``other``, where both are made by one kind
    of op; where none differs, the types of the results if they do.
    """
    names = value_names(run.function)
    if value.op is None:
        return f"arg {names[value]}"
    op = value.op
    results = ", ".join(names[result] for result in op.results)
    operands = ", ".join(names[operand] for operand in op.operands)
    return f"{results} = {op.name}({operands}){_apart(op, other.op)}"


# Characters of an attribute that are shown.
_WIDTH = 60


def _apart(op: Op, other: Op | None) -> str:
    """The attributes, or else types, in which an op differs from another one of its kind."""
    if other is None or other.name != op.name:
        return ""
    both = dict.fromkeys((*op.attrs, *other.attrs))
    keys = [key for key in both if op.attrs.get(key) != other.attrs.get(key)]
    shown = "".join(f" {key}={short(_attribute(op, key), _WIDTH)}" for key in keys)
    types, others = ([result.type.text for result in one.results] for one in (op, other))
    return shown or ("" if types == others else f" : {', '.join(types)}")


def _attribute(op: Op, key: str) -> str:
    value = op.attrs.get(key)
    if value is None:
        return "none"
    return value if isinstance(value, str) else format_attr(value)
