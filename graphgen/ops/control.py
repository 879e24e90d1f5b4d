"""Ops that run other functions of the module."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, TensorType
from graphgen.ops.foreign import RESULTS, stated
from graphgen.ops.opdef import Attr, define, require


@define("call", "*operands", Attr("to_apply", "text"), RESULTS)
def _call(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The outputs of another function of the module, given its arguments in order.

    The function is no entry program and stands before those that call it; its types are those of
    the operands and of the results.

    Example:
        %y = call(%x) to_apply=layers results=[f32[B,4]] : f32[B,4]
    """
    require(bool(attrs.text("to_apply")), "needs the name of a function")
    return stated(attrs)
