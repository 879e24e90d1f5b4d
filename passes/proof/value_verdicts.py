"""Verdicts on the values of a program: which value of the model each is related to, and how.

A value that the model has, too, has a verdict of its own. One that only the second program has is
on the way to others: its verdict is the worst of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.ir import Dim, Function, Value
from graphgen.ir.interface import Entry
from graphgen.passes.proof.elements import place_of
from graphgen.passes.proof.pass_proof import Status

# From the best to the worst.
ORDER = (Status.PROVED, Status.REAL, Status.NARROW, Status.UNDECIDED, Status.REFUTED)


@dataclass(frozen=True, slots=True)
class ValueVerdict:
    """The verdict on a value of the second program.

    Attributes:
        status: proved, in real arithmetic, but for narrow numbers, or undecided.
        relation: to the model, in words.
    """

    status: Status
    relation: str


def relation_text(model: Value, offsets: Sequence[Dim], rows: int, ranks: int) -> str:
    """The relation of a value to one of the model.

    Args:
        model: the value of the model.
        offsets: the places in it at which the part of a rank begins.
        rows: of values that are equal in active rows, the elements of dimension 0 of one row.
        ranks: that run the program.
    """
    what = place_of(model.op) if model.op is not None else f"%{model.name}"
    cut = [f"dimension {n} from {x}" for n, x in enumerate(offsets) if x != 0]
    if cut:
        text = f"the slice of a rank of {what}: {', '.join(cut)}"
    else:
        text = f"equal to {what}" + (", on every rank" if ranks > 1 else "")
    return f"{text}, in rows that are not idle" if rows else text


def argument_text(name: str, row: Entry | None, prepared: bool) -> str:
    """The relation of an argument to the values of the model."""
    if row is not None and row.pack:
        return f"what @{row.pack} makes of {name} of the model"
    if prepared:
        return "what the weight program makes of weights of the model"
    return f"{name} of the model"


def with_all_values(
    function: Function,
    found: Mapping[Value, ValueVerdict],
    outputs: Mapping[str, Status],
    arguments: Mapping[Value, str],
) -> dict[Value, ValueVerdict]:
    """Verdicts on all values of a program.

    Args:
        function: the program.
        found: those on values that the model has.
        outputs: those on outputs, by name.
        arguments: relations of arguments.
    """
    held = dict(found)
    results: dict[Value, list[str]] = {}
    for name, value in function.outputs:
        results.setdefault(value, []).append(name)
    for op in reversed(list(function.block)):
        for value in op.results:
            held[value] = _verdict(value, held, outputs, results.get(value, []))
    for value in function.args:
        verdict = _verdict(value, held, outputs, results.get(value, []))
        text = arguments.get(value, verdict.relation)
        held[value] = ValueVerdict(verdict.status, text)
    return held


def _verdict(
    value: Value,
    held: Mapping[Value, ValueVerdict],
    outputs: Mapping[str, Status],
    names: Sequence[str],
) -> ValueVerdict:
    """The verdict on a value of which those on all later ones are known."""
    if value in held:
        return held[value]
    if names:
        status = max((outputs[name] for name in names), key=ORDER.index)
        return ValueVerdict(status, f"the output {', '.join(names)} of the model")
    later = [(x, held[x]) for user in value.users for x in user.results if x in held]
    if not later:
        return ValueVerdict(Status.UNDECIDED, "no value that is compared comes from it")
    target, verdict = max(later, key=lambda pair: ORDER.index(pair[1].status))
    assert target.op is not None
    return ValueVerdict(verdict.status, f"on the way to {place_of(target.op)}")
