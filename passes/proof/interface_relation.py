"""The relation of the arguments and results of two modules, as their interface tables state it.

Both modules take the inputs, weights and states of one model, which are the variables of a proof.
An argument of a program is one of them as it is, what ``pack`` makes of it for a rank, or what
``@weights.global`` and ``@weights.rank`` prepare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, prod

from graphgen.ir import RANK, Dim, Function, Module, Op, Role, TensorType, Value
from graphgen.ir.clone import bind_function, clone_function
from graphgen.ir.dims import symbol
from graphgen.ir.interface import Entry
from graphgen.passes.proof.elements import Elements, Index, Ranks
from graphgen.passes.proof.integers import choose
from graphgen.passes.proof.rebuild import replaced
from graphgen.passes.proof.terms import Node, Term, Terms

_ADAPTER = "adapter.rank"
_MAKERS = ("weights.global", "weights.rank", _ADAPTER)
# The variable that stands for the slot of an adapter.
_SLOT = "slot_of_adapter"
ACTIVE = "active row"
# In terms that depend on which rows are active.
MENTIONS_ROWS = "rows_of_call"


@dataclass(slots=True)
class ProgramSide:
    """One of two programs with all that its arguments are made of.

    Attributes:
        module: has the program.
        function: the program, of known sizes.
        elements: the elements of its values.
        packed: of each state and input, the function that makes an argument of it.
    """

    module: Module
    function: Function
    elements: Elements
    packed: dict[str, Function] = field(default_factory=dict[str, Function])


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise of callers about the rows of a program.

    Attributes:
        rows: R where row b of a call is row b of the cache, or idle, which is ``seq_ids[b] == R``;
            0 where any row may be any.
    """

    rows: int = 0


def side_of(
    terms: Terms,
    module: Module,
    function: Function,
    ranges: Mapping[str, tuple[Dim, Dim]],
    promise: Promise,
    prefix: str,
    bodies: Mapping[str, str],
) -> ProgramSide:
    """A program, with its arguments related to the inputs, weights and states of the model."""
    rank: Dim = symbol(RANK) if module.ranks > 1 else 0
    if module.ranks > 1:
        terms.variable(RANK, module.ranks)
    ranks = Ranks(module.ranks, rank, prefix=prefix)
    made: dict[Value, Value] = {}
    names: dict[Value, str] = {}
    elements = Elements(terms, names, made, True, ranges, ranks=ranks, deep=True)
    elements.bodies, elements.functions = bodies, module.functions
    elements.returned.update(value for _, value in function.outputs)
    side = ProgramSide(module, function, elements)
    known: dict[str, Value] = {}
    for name in _MAKERS:
        maker = module.functions.get(name)
        if maker is None:
            continue
        sizes = {k: v for k, v in function.dims.items() if isinstance(v, int)}
        maker = bind_function(maker, sizes)
        for arg in maker.args:
            if not _relate_adapter(side, arg, name):
                _relate(side, arg, known, names, made, promise)
        known |= dict(maker.outputs)
        elements.returned.update(value for _, value in maker.outputs)
    for arg in function.args:
        _relate(side, arg, known, names, made, promise)
    return side


def _relate(
    side: ProgramSide,
    arg: Value,
    known: Mapping[str, Value],
    names: dict[Value, str],
    made: dict[Value, Value],
    promise: Promise,
) -> None:
    """Relate an argument to the inputs, weights and states of the model."""
    name, ranks = arg.name or "", side.elements.ranks
    row = side.module.interface.get(name)
    if name == RANK and arg.type.rank == 1 and (row is None or row.role is Role.INPUT):
        ranks.related[arg] = lambda e, index, rank: rank
    elif name in known and known[name].type is arg.type:
        made[arg] = known[name]
    elif row is not None and row.role is Role.SLOTTED and _has_one_slot(known.get(name), arg):
        out = known[name]
        ranks.related[arg] = lambda e, index, rank: _in_slot(e, out, index, rank)
        ranks.sources[arg] = out
    elif row is not None and row.pack and row.role in (Role.STATE, Role.INPUT, Role.WEIGHT):
        pack = packing(side, row)
        names[pack.args[0]] = name
        out = pack.outputs[0][1]
        ranks.related[arg] = lambda e, index, rank: e.on_rank(out, index, rank)
        ranks.sources[arg] = out
    else:
        names[arg] = name
        if name == "seq_ids" and promise.rows:
            ranks.related[arg] = lambda e, index, rank: _row(e, index, promise.rows)


def _relate_adapter(side: ProgramSide, arg: Value, maker: str) -> bool:
    """Relate an adapter that is prepared alone to that in some slot of the model's value."""
    row = side.module.interface.get(arg.name or "")
    if maker != _ADAPTER or row is None or row.role is not Role.SLOTTED:
        return False
    whole = row.logical
    if arg.shape != (1, *whole.shape[1:]) or arg.dtype is not whole.dtype:
        return False

    def in_any_slot(e: Elements, index: Index, rank: Dim) -> Term:
        slot = e.terms.variable(_SLOT, whole.shape[0])
        node = e.terms.node("at", arg.name, whole, slot, *index[1:])
        return e.of_type(node, whole.dtype)

    side.elements.ranks.related[arg] = in_any_slot
    return True


def _has_one_slot(prepared: Value | None, arg: Value) -> bool:
    """True if an argument holds in each slot what is prepared for one adapter."""
    if prepared is None or prepared.dtype is not arg.dtype:
        return False
    return prepared.shape == (1, *arg.shape[1:])


def _in_slot(e: Elements, prepared: Value, index: Index, rank: Dim) -> Term:
    """The element of a prepared adapter in a slot."""
    found = e.on_rank(prepared, (0, *index[1:]), rank)
    return replaced(e.terms, found, {_SLOT: index[0]})


def _row(e: Elements, index: Index, rows: int) -> Term:
    return choose(e.terms, active_row(e.terms, index[0]), index[0], rows)


def active_row(terms: Terms, row: Dim) -> Node:
    """The truth value that a row of a call is not idle."""
    return terms.node("truth", terms.node("at", ACTIVE, None, row, symbol(MENTIONS_ROWS)))


def mentions_rows(terms: Terms, term: Term) -> bool:
    """True if a term depends on which rows are idle."""
    return MENTIONS_ROWS in terms.symbols_of(term)


def packing(side: ProgramSide, row: Entry) -> Function:
    """A copy of the function that packs an entry for a rank, with its arguments related.

    The caller relates the first argument, the value to pack. Padding is arbitrary where
    :attr:`Ranks.arbitrary` has its op.
    """
    found = clone_function(side.module.function(row.pack))
    _relate_others(side, found)
    side.packed.setdefault(row.name, found)
    return found


def unpacking(side: ProgramSide, row: Entry) -> Function:
    """A copy of the function that unpacks the parts of all ranks, its first argument."""
    function = clone_function(side.module.function(row.unpack))
    _relate_others(side, function)
    return function


def _relate_others(side: ProgramSide, function: Function) -> None:
    ranks = side.elements.ranks
    names = side.elements.args
    assert isinstance(names, dict)
    for arg in function.args[1:]:
        if arg.name == RANK:
            ranks.related[arg] = lambda e, index, rank: rank
        else:
            names[arg] = arg.name or ""


def logical_value(side: ProgramSide, name: str, value: Value) -> tuple[TensorType, Value]:
    """A result in terms of the model: the value, or what ``unpack`` makes of all ranks' parts."""
    row = side.module.interface.get(name)
    if row is None or not row.unpack:
        return value.type, value
    function = unpacking(side, row)
    ranks = side.elements.ranks
    parts = function.args[0]
    ranks.related[parts] = lambda e, index, rank: e.on_rank(value, index[1:], index[0])
    ranks.sources[parts] = value
    whole = function.outputs[0][1]
    return whole.type, whole


def places_of(row: Entry) -> tuple[Dim, Dim] | None:
    """The range of the elements of a table of places, if there is one for each element."""
    table, domain = row.logical, row.domain
    if domain is None or not table.dtype.is_integer or not isinstance(domain.high, int):
        return None
    count = prod([size if isinstance(size, int) else inf for size in table.shape])
    return (0, domain.high) if 0 < count <= domain.high + 1 else None


def padding_ops(function: Function) -> list[Op]:
    """The ops of a packing function that pad, or take nothing for some places."""
    return [op for op in function.ops if op.name in ("pad", "take")]
