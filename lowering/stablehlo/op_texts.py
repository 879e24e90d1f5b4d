"""Texts of the ops of a function: one is made for each kind of op, and filled in with names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphgen.ir import Attrs, Function, Op, TensorType, Value
from graphgen.ir.attrs import EMPTY
from graphgen.lowering.stablehlo.dialect import emit_op
from graphgen.lowering.stablehlo.manual_computation import written_operands
from graphgen.ops import OPS, Trait

_Signature = tuple[str, Attrs, tuple[TensorType, ...]]
# The place of a name in a text; no text of an op has the character.
_PLACE = re.compile("\0([0-9]+)\0")


class OpTexts:
    """Writes ops, without locations and annotations; layers repeat.

    The text of a pure op follows from its name, its attributes, and the types and names of its
    operands. In a function with annotations, which bound sizes, the dialect writes each op.

    Args:
        function: has the ops.
        names: of its values.
    """

    def __init__(self, function: Function, names: Mapping[Value, str]) -> None:
        self.names = names
        owners = (*function.args, *function.block)
        self._plain = all(owner.annotations is EMPTY for owner in owners)
        self._forms: dict[_Signature, str] = {}

    def text(self, op: Op) -> str:
        """The text of an op that has a row in the dialect."""
        names = self.names
        if not self._plain or Trait.PURE not in OPS[op.name].traits:
            out = ", ".join([names[value] for value in op.results])
            return emit_op(op, out, [names[value] for value in written_operands(op)])
        key = (op.name, op.attrs, tuple([value.type for value in op.operands]))
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = _form(op)
        return form.format(*[names[value][1:] for value in (*op.results, *op.operands)])


def _form(op: Op) -> str:
    """The text of an op as a format of the names of its results and operands, without their %."""
    results = len(op.results)
    marks = [f"%\0{place}\0" for place in range(results + len(op.operands))]
    text = emit_op(op, ", ".join(marks[:results]), marks[results:])
    return _PLACE.sub(r"{\1}", text.replace("{", "{{").replace("}", "}}"))
