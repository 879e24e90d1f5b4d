"""Appends the ops of one HLO computation to a function: names, locations, inferred types."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, AttrValue, Function, Op, TensorType, Value
from graphgen.ir.loc import UNKNOWN, Loc
from graphgen.lowering.hlo.hlo_file import HloFile, ir_name
from graphgen.lowering.hlo.unmodelled import ContradictionError, UnmodelledError
from graphgen.lowering.hlo_proto.shape import HloShape
from graphgen.ops import InferError, infer, make_attrs

# A value, or the members of a tuple.
Tree = Value | tuple["Tree", ...]


class OpBuilder:
    """Appends the ops that one instruction after the other becomes.

    Args:
        file: the file being read.
        function: receives the ops.
    """

    def __init__(self, file: HloFile, function: Function) -> None:
        self.file = file
        self.function = function
        self.taken: set[str] = set()
        self.idle: dict[Value, None] = {}
        self.unnamed: dict[Value, None] = {}
        self._name = ""
        self._part = ""
        self._loc = UNKNOWN

    def begin(self, name: str, where: Loc) -> None:
        """Name and location of the next ops."""
        self._name, self._loc, self._part = name, where, ""

    def part(self, what: str) -> None:
        """Name the next op after the instruction and ``what``: it is only a part of it."""
        self._part = what

    def forget(self, op: Op) -> None:
        """Free the names of an op that is taken back."""
        for value in op.results:
            self.taken.discard(value.name or "")
            self.unnamed.pop(value, None)

    def emit(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        """Append an op of one result; see :meth:`emit_all`."""
        return self.emit_all(name, operands, **attrs)[0]

    def emit_all(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Sequence[Value]:
        """Append an op; its results.

        Raises:
            ContradictionError: the operands do not fit.
            UnmodelledError: the op has no such attribute.
        """
        try:
            checked = make_attrs(name, attrs)
            types = infer(name, tuple([value.type for value in operands]), checked)
        except InferError as error:
            raise ContradictionError(str(error)) from error
        except GraphgenError as error:
            raise UnmodelledError(error.what) from error
        label = f"{self._name}.{self._part}" if self._part else self._name
        self._part = ""
        return self._append(name, operands, types, checked, label, single=len(types) == 1)

    def emit_stated(
        self, name: str, operands: Sequence[Value], shape: HloShape, **attrs: AttrValue
    ) -> Sequence[Value]:
        """Append an op whose results are the arrays in ``shape``.

        Raises:
            UnmodelledError: the operands do not fit.
        """
        types = tuple([leaf.type for leaf in shape.leaves])
        try:
            checked = make_attrs(name, {**attrs, "results": types})
            types = infer(name, tuple([value.type for value in operands]), checked)
        except InferError as error:
            raise UnmodelledError(str(error)) from error
        return self._append(name, operands, types, checked, self._name, single=not shape.is_tuple)

    def _append(
        self,
        name: str,
        operands: Sequence[Value],
        types: Sequence[TensorType],
        attrs: Attrs,
        label: str,
        *,
        single: bool,
    ) -> Sequence[Value]:
        labels = [label] if single else [f"{label}.{i}" for i in range(len(types))]
        names = [ir_name(each, self.taken) for each in labels]
        op = Op(name, tuple(operands), types, attrs, self._loc, names)
        self.function.block.append(op)
        if not single:
            self.unnamed.update(dict.fromkeys(op.results))
        return op.results


def leaves(tree: Tree) -> list[Value]:
    """The values in a tuple, from left to right."""
    if isinstance(tree, Value):
        return [tree]
    return [leaf for part in tree for leaf in leaves(part)]


def tree_of(shape: HloShape, made: list[Value]) -> Tree:
    """The values as the tuple that the shape is; they are used up from the left."""
    if not shape.is_tuple:
        return made.pop(0)
    return tuple([tree_of(member, made) for member in shape.members])
