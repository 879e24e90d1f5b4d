"""Verify control ops: callees exist, and their signatures agree with the op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.ir import Function, Op, TensorType, tensor
from graphgen.ir.dtype import pred
from graphgen.ops.control import SCALAR, branch_operands, callees, scalar_signature
from graphgen.ops.verifier.diagnostics import verification_error


def verify_control(op: Op, function: Function, before: Mapping[str, Function]) -> None:
    """Check a call, a loop or a choice, which stands in ``function``.

    Its callees are among the functions ``before`` this one, so that there is no recursion.

    Raises:
        GraphgenError: GG0202 no such function, GG0203 other types, GG0204 an entry program.
    """
    results = [value.type for value in op.results]
    if op.name == "conditional":
        given = [[value.type for value in part] for part in branch_operands(op)]
        for name, types in zip(callees(op), given, strict=True):
            _agrees(op, function, before, name, types, results)
        return
    if op.name in SCALAR:
        takes, gives = scalar_signature(op)
        _agrees(op, function, before, op.attrs.text("to_apply"), takes, gives)
        return
    types = [value.type for value in op.operands]
    if op.name == "while":
        _agrees(op, function, before, op.attrs.text("condition"), types, [tensor(pred)])
        _agrees(op, function, before, op.attrs.text("body"), types, results)
        return
    _agrees(op, function, before, op.attrs.text("to_apply"), types, results)


def _agrees(
    op: Op,
    function: Function,
    before: Mapping[str, Function],
    name: str,
    takes: Sequence[TensorType],
    gives: Sequence[TensorType],
) -> None:
    """The function called ``name`` is there, and takes and gives these types."""
    callee = before.get(name)
    if callee is None:
        raise verification_error(
            "GG0202", op, function, f"no function @{name} stands before this one"
        )
    if callee.phase:
        raise verification_error("GG0204", op, function, f"@{name} is an entry program")
    for what, given, values in (
        ("operands", takes, callee.args),
        ("results", gives, [value for _, value in callee.outputs]),
    ):
        if list(given) != [value.type for value in values]:
            texts = ", ".join([value.type.text for value in values])
            raise verification_error("GG0203", op, function, f"the {what} of @{name} are {texts}")
