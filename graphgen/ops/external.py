"""External ops: custom calls of the target's kernels, and HLO instructions without an op here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType
from graphgen.ops.opdef import OPS, Attr, define, require
from graphgen.ops.traits import Trait

# Opcodes with a side effect, and the field of a custom call that declares one (HLO field 65).
_EFFECTS = frozenset(("infeed", "outfeed", "send", "send-done", "recv", "recv-done"))
_SAYS_SO = "880401"


def has_effect(name: str, attrs: Attrs) -> bool:
    """True if an op has a side effect, so that it must stay although its results are unused.

    A custom call that declares no effect has none, as in HLO.
    """
    if not OPS[name].has(Trait.EXTERNAL):
        return False
    return attrs.get("opcode") in _EFFECTS or _SAYS_SO in attrs.text("more")


RESULTS = Attr("results", "types")


def stated(attrs: Attrs) -> tuple[TensorType, ...]:
    """The result types that the attributes state; at least one."""
    results = attrs.types("results")
    require(bool(results), "states no result")
    return results


def _bytes(attrs: Attrs, *keys: str) -> None:
    """Require attributes that are bytes in hexadecimal."""
    for key in keys:
        digits = attrs.text(key)
        legal = len(digits) % 2 == 0 and all(digit in "0123456789abcdef" for digit in digits)
        require(legal, f"{key} are no bytes in hexadecimal")


@define(
    "custom_call",
    "*operands",
    Attr("target", "string"),
    Attr("config", "string", ""),
    Attr("fields", "string", ""),
    Attr("more", "string", ""),
    RESULTS,
    traits=(Trait.EXTERNAL,),
)
def _custom_call(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """A function that the target's compiler knows by name; result types are as stated.

    ``fields`` and ``more`` are what else a read instruction says, as in ``hlo.opaque``. It is
    written into HLO, and into StableHLO where that has words for all of it. What Neuron's compiler
    documents, such as AwsNeuronSoftmax, is evaluated; any other cannot be.

    Example:
        %y = custom_call(%x) target="AwsNeuronGelu" results=[f32[B,4]] : f32[B,4]
    """
    require(bool(attrs.text("target")), "needs the name of a target")
    _bytes(attrs, "fields", "more")
    return stated(attrs)


@define(
    "hlo.opaque",
    "*operands",
    Attr("opcode", "string"),
    Attr("fields", "string", ""),
    Attr("more", "string", ""),
    Attr("form", "string", ""),
    Attr("regions", "string", ""),
    RESULTS,
    traits=(Trait.EXTERNAL,),
)
def _opaque(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """An HLO instruction that has no op here; the result types are as stated.

    ``fields`` and ``more`` are its own fields of the protobuf, before and behind the ids, in
    hexadecimal. ``regions`` are the computations it calls, each with those that it calls, without
    names and places. ``form`` says which operands and results are in tuples: ``x(xx)->(x)``; left
    out, no operand is, and several results are one tuple. It is printed, and written into HLO as
    it was; only ``replica-id`` and ``partition-id``, which give the rank, can be evaluated.

    Example:
        %y = hlo.opaque(%x) opcode="erf-inv" results=[f32[B,4]] : f32[B,4]
    """
    require(bool(attrs.text("opcode")), "needs an opcode")
    _bytes(attrs, "fields", "more")
    require(
        re.fullmatch(r"((([0-9a-f]{2})+,)*([0-9a-f]{2})+)?", attrs.text("regions")) is not None,
        "regions are no bytes in hexadecimal",
    )
    results = stated(attrs)
    _check_form(attrs.text("form"), len(types), len(results))
    return results


def _check_form(form: str, operands: int, results: int) -> None:
    """Require a place per operand and per result, and balanced parentheses."""
    if not form:
        return
    left, arrow, right = form.partition("->")
    require(arrow == "->", f"form '{form}' is not operands->results")
    for side, count, what in ((left, operands, "operands"), (right, results, "results")):
        require(side.count("x") == count, f"form '{form}' is not one of {count} {what}")
        bare = side.replace("x", "")
        while "()" in bare:
            bare = bare.replace("()", "")
        require(not bare, f"form '{form}' has parentheses that do not match")
