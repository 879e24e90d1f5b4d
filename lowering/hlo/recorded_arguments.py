"""Arguments that XLA recorded beside a module: an HloSnapshot, or an HloUnoptimizedSnapshot."""

from __future__ import annotations

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import NATIVE, Array
from graphgen.ir import Module, Value
from graphgen.lowering.hlo_proto.fields import LiteralField, SnapshotField, WrapperField
from graphgen.lowering.hlo_proto.literal import read_literal
from graphgen.lowering.hlo_proto.proto_module import is_module
from graphgen.lowering.hlo_proto.wire import Message, Source


def recorded_arguments(source: Source, module: Module) -> dict[str, Array]:
    """The recorded arguments by the names of the program's arguments; empty without any.

    Of several partitions each argument has one more dimension in front, for each its own.

    Raises:
        GraphgenError: GG0801 for other arguments than the program takes.
    """
    recorded, optimized = _of_ranks(Message(source))
    if not recorded:
        return {}
    try:
        return _named(recorded, module)
    except GraphgenError:
        if optimized:
            raise
        # Old dumps have an order of instructions in the place of arguments.
        return {}


def _named(recorded: list[list[Message]], module: Module) -> dict[str, Array]:
    (program,) = module.programs()
    if any(len(arguments) != len(program.args) for arguments in recorded):
        counts = ", ".join(sorted({str(len(arguments)) for arguments in recorded}))
        what = f"{counts} arguments are recorded, and the program takes {len(program.args)}"
        raise GraphgenError("GG0801", what)
    found: dict[str, Array] = {}
    for place, value in enumerate(program.args):
        arrays = [_array(arguments[place], value) for arguments in recorded]
        found[value.name or ""] = arrays[0] if len(arrays) == 1 else np.stack(arrays)
    return found


def _array(literal: Message, value: Value) -> Array:
    """An argument as an array of the type that the program states (GG0801 for another)."""
    read = read_literal(literal)
    if len(read.shape.leaves) != 1:
        raise GraphgenError("GG0801", f"the recorded %{value.name} is a tuple or a token")
    kind = read.shape.leaves[0].type
    if kind is not value.type:
        what = f"recorded is {kind.text}, and the program takes %{value.name} : {value.type.text}"
        raise GraphgenError("GG0801", what)
    return NATIVE.literal(read.literal(kind.dtype))


def _of_ranks(message: Message) -> tuple[list[list[Message]], bool]:
    """The arrays of each partition, those of tuples one by one, and whether of an HloSnapshot."""
    inner = None if is_module(message) else message.message(WrapperField.MODULE)
    if inner is None:
        return [], False
    given = message.messages(SnapshotField.ARGUMENTS)
    if not is_module(inner):
        return [_leaves(given)] if given else [], True
    return [_leaves(each.messages(SnapshotField.OF_PARTITION)) for each in given], False


def _leaves(literals: list[Message]) -> list[Message]:
    found: list[Message] = []
    for literal in literals:
        inner = literal.messages(LiteralField.TUPLE_LITERALS)
        found += _leaves(inner) if inner else [literal]
    return found
