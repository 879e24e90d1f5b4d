"""Computations of scalars: reducers and comparators, written and recognized."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import TensorType, tensor
from graphgen.ir.dtype import pred
from graphgen.ir.loc import UNKNOWN
from graphgen.lowering.hlo.instruction_template import Comparator, Reducer
from graphgen.lowering.hlo.unmodelled import UnmodelledError
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.instruction import Chunk, metadata_of, program_shape
from graphgen.lowering.hlo_proto.module_writer import HloModuleWriter
from graphgen.lowering.hlo_proto.proto_module import HloComputation
from graphgen.lowering.hlo_proto.shape import shape_of
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.ops.admitted_calls import SHARDING_MARKERS

TOTAL = "TOTALORDER"
_F = InstructionField


def write_reducer(writer: HloModuleWriter, called: Reducer) -> int:
    """Write the computation of a reduction; its id.

    For ``assign`` its root is a copy of the new value, since no root is a bare parameter.
    """
    scalar = tensor(called.dtype)
    names = [writer.fresh(f"{called.name}.{side}") for side in ("lhs", "rhs")]
    body, ids = _parameters(writer, names, [scalar, scalar])
    code = "copy" if called.opcode == "assign" else called.opcode.replace("_", "-")
    name, metadata = writer.fresh(f"{called.name}.root"), metadata_of(UNKNOWN, code, called.name)
    read = ids[1:] if code == "copy" else ids
    root = writer.add(body, name, code, shape_of(scalar), operands=read, metadata=metadata)
    shape = program_shape([scalar, scalar], [scalar], names)
    return writer.finish(called.name, body, shape, root)


def write_comparator(writer: HloModuleWriter, called: Comparator) -> int:
    """Write a comparison of two scalars per operand, of which the first two count; its id."""
    types = [tensor(dtype) for dtype in called.dtypes for _ in "ab"]
    names = [writer.fresh(f"{called.name}.{'ab'[i % 2]}{i // 2}") for i in range(len(types))]
    body, ids = _parameters(writer, names, types)
    more = wire.text(_F.COMPARISON_DIRECTION, called.direction)
    if called.total and called.dtypes[0].is_float:
        more += wire.text(_F.COMPARISON_TYPE, TOTAL)
    name = writer.fresh(f"{called.name}.root")
    root = writer.add(body, name, "compare", shape_of(tensor(pred)), operands=ids[:2], more=more)
    shape = program_shape(types, [tensor(pred)], names)
    return writer.finish(writer.fresh(called.name), body, shape, root)


def _parameters(
    writer: HloModuleWriter, names: Sequence[str], types: Sequence[TensorType]
) -> tuple[list[Chunk], list[int]]:
    """The parameters of a computation, and their ids."""
    body: list[Chunk] = []
    ids: list[int] = []
    for index, (name, type_) in enumerate(zip(names, types, strict=True)):
        number = wire.integer(_F.PARAMETER_NUMBER, index)
        ids.append(writer.add(body, name, "parameter", shape_of(type_), [number]))
    return body, ids


def reducer_of(computation: HloComputation) -> str:
    """Opcode of a computation of two scalars, or ``assign`` if it gives the second.

    Raises:
        UnmodelledError: it is more than one op on both.
    """
    found = {item.integer(_F.ID): item for item in computation.instructions()}
    codes = {number: item.text(_F.OPCODE) for number, item in found.items()}

    def source(number: int) -> int:
        """The instruction that a chain of copies and statements of shardings reads."""
        for _ in codes:
            if codes.get(number) != "copy" and not _is_marker(found.get(number)):
                break
            number = next(iter(found[number].integers(_F.OPERAND_IDS)), 0)
        return number

    numbers = {
        number: item.integer(_F.PARAMETER_NUMBER)
        for number, item in found.items()
        if codes[number] == "parameter"
    }
    root = source(computation.root_id)
    if sorted(numbers.values()) == [0, 1] and root in found:
        if numbers.get(root) == 1:
            return "assign"
        read = [numbers.get(source(i)) for i in found[root].integers(_F.OPERAND_IDS)]
        shapes = {item.data(_F.SHAPE) for item in found.values()}
        if sorted(map(str, read)) == ["0", "1"] and len(shapes) == 1:
            return codes[root]
    raise UnmodelledError(f"%{computation.name} is more than one op on two scalars")


def _is_marker(item: Message | None) -> bool:
    return (
        item is not None
        and item.text(_F.OPCODE) == "custom-call"
        and item.text(_F.CUSTOM_CALL_TARGET) in SHARDING_MARKERS
    )


def _comparison(computation: HloComputation) -> tuple[str, list[int], bool]:
    """The comparison that a computation is: direction, parameters read, if in total order.

    The direction of a computation that is none is empty.
    """
    found = {item.integer(_F.ID): item for item in computation.instructions()}
    root = found.get(computation.root_id)
    if root is None or root.text(_F.OPCODE) != "compare":
        return "", [], False
    read = [found.get(number) for number in root.integers(_F.OPERAND_IDS)]
    given = [
        item.integer(_F.PARAMETER_NUMBER)
        for item in read
        if item is not None and item.text(_F.OPCODE) == "parameter"
    ]
    return root.text(_F.COMPARISON_DIRECTION), given, root.text(_F.COMPARISON_TYPE) == TOTAL


def choice_of(computation: HloComputation) -> str:
    """Direction of a comparison of both parameters, floats not in total order; else empty."""
    direction, given, total = _comparison(computation)
    if total:
        return ""
    if given == [1, 0]:
        return {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}.get(direction, "")
    return direction if given == [0, 1] else ""


def direction_of(computation: HloComputation, *, floats: bool) -> str:
    """``LT`` or ``GT`` of its first two parameters; empty where it does anything else.

    Args:
        computation: the comparator of a sort.
        floats: the elements compared are floats, whose order must be total.
    """
    direction, given, total = _comparison(computation)
    if floats and not total:
        return ""
    if direction not in ("LT", "GT") or sorted(given) != [0, 1]:
        return ""
    return direction if given == [0, 1] else {"LT": "GT", "GT": "LT"}[direction]
