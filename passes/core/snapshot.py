"""What a module was, kept for the case that it is asked for: cheap to take, made anew when needed.

Passes change a module in place. A snapshot holds what the ops and values were, as tuples, which is
some ten times cheaper than a copy of the graph; the copy is made of it after something has failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, Function, Loc, Module, Op, Sharding, TensorType, Value

_Value = tuple[Value, TensorType, str | None, Sharding | None]
_Op = tuple[str, tuple[Value, ...], Attrs, Loc, Sequence[_Value]]


class Snapshot:
    """A module as it is now.

    Args:
        module: what is kept; it may be changed afterwards.
    """

    def __init__(self, module: Module) -> None:
        interface, meta = dict(module.interface), dict(module.meta)
        self._head = Module(module.name, module.level, dict(module.mesh), {}, interface, meta)
        self._functions = [_Kept(function) for function in module.functions.values()]

    def module(self) -> Module:
        """A new module, as the other was."""
        head = self._head
        made = Module(head.name, head.level, dict(head.mesh), {}, {}, dict(head.meta))
        made.interface.update(head.interface)
        for kept in self._functions:
            made.add(kept.function())
        return made


class _Kept:
    """One function as it was."""

    __slots__ = ("args", "dims", "name", "ops", "outputs", "phase")

    def __init__(self, function: Function) -> None:
        self.name, self.phase, self.dims = function.name, function.phase, dict(function.dims)
        self.args = [_value(value) for value in function.args]
        self.ops: list[_Op] = [
            (op.name, op.operands, op.attrs, op.loc, [_value(value) for value in op.results])
            for op in function.block
        ]
        self.outputs = list(function.outputs)

    def function(self) -> Function:
        made = Function(self.name, self.phase, dict(self.dims))
        mapping: dict[Value, Value] = {}
        for value, type_, name, sharding in self.args:
            mapping[value] = made.block.add_arg(type_, name or "")
            mapping[value].sharding = sharding
        for op_name, operands, attrs, where, results in self.ops:
            types, names = [kept[1] for kept in results], [kept[2] for kept in results]
            read = tuple([mapping[value] for value in operands])
            op = Op(op_name, read, types, attrs, where, names)
            made.block.append(op)
            for (old, _, _, sharding), new in zip(results, op.results, strict=True):
                mapping[old] = new
                new.sharding = sharding
        made.outputs = [(name, mapping[value]) for name, value in self.outputs]
        return made


def _value(value: Value) -> _Value:
    return value, value.type, value.name, value.sharding
