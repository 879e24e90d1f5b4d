"""Matching of the arguments and outputs of two programs whose names differ.

The rule: values of one name go together; what is left is taken in order among those of one type. A
value that is described by a relation may be of another type: it needs its name, or to be the only
one left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import RANK, Dim, Function, Module, TensorType, tensor
from graphgen.ir.dims import Poly, symbols
from graphgen.ir.dtype import s32

# Names and types, in order.
Values = Sequence[tuple[str, TensorType]]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two programs whose values have been paired.

    Attributes:
        left, right: the programs.
        inputs: name of each argument of ``right`` to that of ``left``.
        outputs: the same for outputs.
        dims: sizes of the symbols of ``left``, so that its types are those of ``right``.
    """

    left: Function
    right: Function
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    dims: Mapping[str, Dim]


def pair_programs(
    left: Module, right: Module, related: Collection[str], program: str | None = None
) -> Pairing:
    """The programs of two modules that go together, with their values.

    Args:
        left, right: each has one program that fits the other's, or ``program`` names it.
        related: names, of either side, of values that a relation describes.
        program: which, of the module that has several.

    Raises:
        GraphgenError: GG0205 when nothing fits, naming what does not, GG0705 when several do.
    """
    found: list[Pairing] = []
    reasons: list[GraphgenError] = []
    for ours in _chosen(left, program):
        for theirs in _chosen(right, program):
            try:
                found.append(_pair(left, ours, right, theirs, related))
            except GraphgenError as error:
                reasons.append(error)
    if len(found) == 1:
        return found[0]
    if not found:
        raise reasons[0] if reasons else GraphgenError("GG0705", "a module has no program")
    names = ", ".join(f"@{pair.left.name} with @{pair.right.name}" for pair in found)
    raise GraphgenError("GG0705", f"several programs fit: {names}", help="choose one: --program")


def _chosen(module: Module, program: str | None) -> list[Function]:
    programs = module.programs()
    named = [function for function in programs if function.name == program]
    return named or programs


def _pair(
    left: Module, ours: Function, right: Module, theirs: Function, related: Collection[str]
) -> Pairing:
    mine, others = arguments(left, ours), arguments(right, theirs)
    dims = _unified(mine, others)
    bound = [(name, type_.bind(dims)) for name, type_ in mine]
    inputs = pair_values(bound, others, "inputs", related, spare=True)
    results = [(name, value.type.bind(dims)) for name, value in ours.outputs]
    given = [(name, value.type) for name, value in theirs.outputs]
    outputs = pair_values(results, given, "outputs", related)
    return Pairing(ours, theirs, inputs, outputs, dims)


def arguments(module: Module, function: Function) -> Values:
    """Names and types of what a program is given; its rank, if it takes one, is not."""
    return [
        (value.name or "", value.type)
        for value in function.args
        if not is_rank(module, value.name or "", value.type)
    ]


def is_rank(module: Module, name: str, type_: TensorType) -> bool:
    """True for an argument that is the number of the rank."""
    return name == RANK and name not in module.interface and type_ is tensor(s32, (1,))


def _unified(left: Values, right: Values) -> dict[str, Dim]:
    """Sizes of the left side's symbols, from values of one name."""
    types = dict(right)
    dims: dict[str, Dim] = {}
    for name, type_ in left:
        other = types.get(name)
        if other is None or other.rank != type_.rank:
            continue
        for dim, size in zip(type_.shape, other.shape, strict=True):
            if isinstance(dim, Poly) and symbols([dim]) == {dim.text} and isinstance(size, int):
                dims.setdefault(dim.text, size)
    return dims


def pair_values(
    left: Values, right: Values, what: str, related: Collection[str], *, spare: bool = False
) -> dict[str, str]:
    """Name on the right to name on the left.

    Args:
        left, right: what is paired.
        what: what to call them in errors.
        related: names that a relation describes, whose types may differ.
        spare: whether the left may have more, which the right then does not look at.

    Raises:
        GraphgenError: GG0205 naming what has no counterpart, or another type.
    """
    known = dict(left)
    found = {name: name for name, _ in right if name in known}
    for name, type_ in right:
        if name in found and name not in related and known[name] is not type_:
            raise GraphgenError(
                "GG0205",
                f"{name} is {known[name].text} in one module and {type_.text} in the other",
                help=f"say how they relate: --relation '{name}=shard{{-,tp}}'",
            )
    mine = [item for item in left if item[0] not in found.values()]
    theirs = [item for item in right if item[0] not in found]
    if Counter(t for _, t in mine) == Counter(t for _, t in theirs):
        found |= _by_type(mine, theirs)
    elif len(mine) == len(theirs) == 1 and {mine[0][0], theirs[0][0]} & set(related):
        found[theirs[0][0]] = mine[0][0]
    elif theirs or (mine and not spare):
        raise _unpaired(mine, theirs, what)
    return found


def _by_type(mine: Values, theirs: Values) -> dict[str, str]:
    """In order among those of one type."""
    waiting: dict[TensorType, list[str]] = {}
    for name, type_ in mine:
        waiting.setdefault(type_, []).append(name)
    return {name: waiting[type_].pop(0) for name, type_ in theirs}


def _unpaired(mine: Values, theirs: Values, what: str) -> GraphgenError:
    def listed(values: Values) -> str:
        more = f" and {len(values) - 6} more" if len(values) > 6 else ""
        return ", ".join(f"{name} {type_.text}" for name, type_ in values[:6]) + more or "none"

    return GraphgenError(
        "GG0205",
        f"the modules differ in {what}",
        note=f"only in the first: {listed(mine)}\nonly in the second: {listed(theirs)}",
        help="values of one name go together, the rest in order among those of one type",
    )
