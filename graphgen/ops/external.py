"""External ops: custom calls of the target's kernels, and HLO instructions without an op here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Op, TensorType, Value, tensor
from graphgen.ir.dtype import u8
from graphgen.ops.attr_types import BOOLEAN, STRING, TYPES
from graphgen.ops.opdef import OPS, attr, define, require
from graphgen.ops.traits import Chooses, Trait, Types

# Opcodes with a side effect, and the field of a custom call that declares one (HLO field 65).
HOST_OPCODES = frozenset(("infeed", "outfeed", "send", "send-done", "recv", "recv-done"))
_SAYS_SO = "880401"


# Instructions that give the rank: one program is loaded once per rank, so that both are it.
_RANK_OPCODES = ("partition-id", "replica-id")


def shown_name(op: Op) -> str:
    """The name of an op for people: of an opaque instruction its HLO opcode."""
    return op.attrs.text("opcode") if op.name == "hlo.opaque" else op.name


def gives_rank(op: Op) -> bool:
    """True for an opaque instruction whose result is the rank."""
    return op.name == "hlo.opaque" and op.attrs.text("opcode") in _RANK_OPCODES


def has_effect(name: str, attrs: Attrs) -> bool:
    """True if an op has a side effect, so that it must stay although its results are unused.

    A custom call that declares no effect has none, as in HLO.
    """
    if not OPS[name].has(Trait.EXTERNAL):
        return False
    return (
        attrs.get("silent") is True
        or attrs.get("opcode") in HOST_OPCODES
        or (name == "hlo.opaque" and _gives_nothing(attrs.text("form")))
        or (bool(attrs.get("text")) and _text_has_effect(attrs))
        or _SAYS_SO in str(attrs.get("more"))
    )


def _text_has_effect(attrs: Attrs) -> bool:
    """True for an op kept as its text that StableHLO or its own attribute gives an effect."""
    opcode = attrs.text("opcode").removeprefix("stablehlo.")
    return (
        opcode in HOST_OPCODES
        or attrs["results"] == (SILENT,)
        or re.search(r"has_side_effect ?= ?true", attrs.text("text")) is not None
    )


def _gives_nothing(form: str) -> bool:
    """True for the form of an instruction whose result is a tuple without arrays."""
    return "->" in form and "x" not in form.partition("->")[2]


DEQUANTIZE: Final = (
    "make it integer arithmetic first: stablehlo-opt --stablehlo-legalize-quant-to-math"
)


def refusal(op: Op) -> GraphgenError | None:
    """The error (GG0403) for running an op on types that nothing here computes with.

    These are quantized elements, sizes that are open or only bounded, and what a host sends;
    ``None`` for any other op.
    """
    inner = op.attrs.get("opcode", op.attrs.get("target", op.name))
    values = (*op.results, *op.operands)
    quantized = next((value for value in values if value.dtype.is_quantized), None)
    bounded = next((shape for value in values if (shape := bounded_shape(value))), "")
    if quantized is not None:
        what, help = f"{inner} on {quantized.type.text}: no op here computes with it", DEQUANTIZE
    elif bounded:
        what = f"{inner} on {bounded}: sizes that are only bounded have no values here"
        help = "trace the program with fixed sizes; inspect, diff and lower work with bounded ones"
    elif any(not isinstance(size, int) for value in values for size in value.type.shape):
        what = f"{inner}: its text leaves sizes open"
        help = "run, lower, memory and equiv bind them; --dims says which"
    elif op.attrs.get("opcode") == "stablehlo.get_dimension_size":
        what = f"{inner} reads a size that its text leaves open"
        help = "run, lower, memory and equiv bind it; --dims says which"
    elif op.attrs.get("text") or inner in HOST_OPCODES:
        what, help = f"{inner} needs a host that sends or receives, which is not here", ""
    else:
        return None
    return GraphgenError("GG0403", what, where=repr(op.loc), help=help)


def bounded_shape(value: Value) -> str:
    """The shape that a value was read with if a size of it is only bounded; else empty."""
    op = value.op
    if op is None:
        found = value.annotations.get("hlo.shape", "")
    elif len(op.results) == 1:
        found = op.annotations.get("hlo.shape", "")
    else:
        found = op.annotations.get(f"hlo.element{value.index}.shape", "")
    return str(found) if "<=" in str(found) else ""


def shown_type(value: Value) -> str:
    """The type of a value as text, with its bounds: ``f32[<=8,4]``."""
    return bounded_shape(value).partition("{")[0] or value.type.text


# The placeholder result of a call without results.
SILENT = tensor(u8, (0,))
RESULTS = attr("results", TYPES)


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
        require(legal, f"{key} are not bytes in hexadecimal")


def _is_top_k(operands: Types, results: Types, attrs: Attrs) -> bool:
    """True for the kernel that gives the largest elements of the last dimension, as ``top_k``."""
    return attrs.text("target") == "AwsNeuronTopK" and len(results) == 2


@define(
    "custom_call",
    "*operands",
    attr("target", STRING),
    attr("config", STRING, ""),
    attr("fields", STRING, ""),
    attr("more", STRING, ""),
    attr("silent", BOOLEAN, False),
    RESULTS,
    traits=(Trait.EXTERNAL, Chooses(places=1, values=0, when=_is_top_k)),
)
def _custom_call(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """A function that the target's compiler knows by name; result types are as stated.

    A ``silent`` call has no results and is made for its effect: what stands for them here is an
    empty array, which is not written. ``fields`` and ``more`` are what else a read instruction
    says, as in ``hlo.opaque``. It is written into HLO, and into StableHLO where that has words for
    all of it. Targets that Neuron's compiler documents, such as AwsNeuronSoftmax, are evaluated;
    any other cannot be.

    Example:
        %y = custom_call(%x) target="AwsNeuronGelu" results=[f32[B,4]] : f32[B,4]
    """
    require(bool(attrs.text("target")), "needs the name of a target")
    _bytes(attrs, "fields", "more")
    results = stated(attrs)
    empty = len(results) == 1 and results[0] is SILENT
    require(empty or attrs["silent"] is not True, f"a silent call states {SILENT.text}")
    return results


@define(
    "hlo.opaque",
    "*operands",
    attr("opcode", STRING),
    attr("fields", STRING, ""),
    attr("more", STRING, ""),
    attr("form", STRING, ""),
    attr("regions", STRING, ""),
    attr("text", STRING, ""),
    RESULTS,
    traits=(Trait.EXTERNAL,),
)
def _opaque(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """An HLO instruction that has no op here; the result types are as stated.

    ``fields`` and ``more`` are its own fields of the protobuf, before and after the ids, in
    hexadecimal. ``regions`` are the computations it calls, each with those that it calls, without
    names and places. ``form`` says which operands and results are in tuples: ``x(xx)->(x)``; left
    out, no operand is, and several results are one tuple; ``x->()`` gives nothing, and an empty
    array stands for its result here. It is printed, and written into HLO as it was. An op of
    StableHLO on quantized elements, bounded sizes or tokens has its ``text`` instead, with operands
    by number, and is written into StableHLO as it was. Of these, only what gives the rank or its
    own operands can be evaluated: ``replica-id``, ``partition-id``, ``after-all``,
    ``add-dependency``, ``opt-barrier``, ``domain``.

    Example:
        %y = hlo.opaque(%x) opcode="erf-inv" results=[f32[B,4]] : f32[B,4]
    """
    require(bool(attrs.text("opcode")), "needs an opcode")
    _bytes(attrs, "fields", "more")
    require(
        re.fullmatch(r"((([0-9a-f]{2})+,)*([0-9a-f]{2})+)?", attrs.text("regions")) is not None,
        "regions are not bytes in hexadecimal",
    )
    results = stated(attrs)
    form = attrs.text("form")
    other = [key for key in ("fields", "more", "form", "regions") if attrs.text(key)]
    require(not (attrs.text("text") and other), "has a text, and what only HLO's ops have")
    silent = _gives_nothing(form) and results == (SILENT,)
    _check_form(form, len(types), 0 if silent else len(results))
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
