"""Rows of the collectives."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Op, TensorType, tensor
from graphgen.lowering.hlo.dialect.instruction_template import (
    InstructionTemplate,
    Operand,
    StepResult,
    TemplateStep,
)
from graphgen.lowering.hlo.dialect.op_builder import Tree
from graphgen.lowering.hlo.dialect.op_row import (
    DIMENSION,
    HloField,
    HloInstruction,
    HloRow,
    attribute,
    read_attrs,
    row,
    stated,
)
from graphgen.lowering.hlo.dialect.unmodelled import UnmodelledError
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.replica_groups import ReplicaGroups, read_groups, write_groups
from graphgen.lowering.hlo.proto.shape import shape_of
from graphgen.lowering.hlo.proto.wire import Message, integers


def _listed_groups(i: Message) -> ReplicaGroups:
    groups = read_groups(i)
    if not groups:
        raise UnmodelledError("its group of all ranks does not say how many there are")
    return groups


GROUPS = HloField("replica_groups", attribute("replica_groups"), _listed_groups)


def _dimensions(dims: Sequence[int]) -> bytes:
    return integers(InstructionField.DIMENSIONS, dims)


def _write_all_to_all(row: HloRow, op: Op) -> InstructionTemplate:
    """HLO cuts and joins along one dimension, so with two, the parts go to the front and back."""
    split, concat = op.attrs.integer("split_dimension"), op.attrs.integer("concat_dimension")
    replica_groups = op.attrs.groups("replica_groups")
    groups = write_groups(replica_groups)
    if split == concat:
        return stated(op, row.name, _dimensions([split]), groups)
    ranks = len(replica_groups[0])
    shape, kind = op.operands[0].type.dims, op.operands[0].dtype
    cut = [*shape[:split], ranks, shape[split] // ranks, *shape[split + 1 :]]
    front = [split, *[dim for dim in range(len(cut)) if dim != split]]
    parts = [cut[dim] for dim in front]
    # After the rank the dimensions are those of the operand: join just before the joined one.
    back = [*range(1, concat + 1), 0, *range(concat + 1, len(parts))]
    joined = [parts[dim] for dim in back]
    steps: list[TemplateStep] = []

    def add(opcode: str, type_: TensorType, fields: bytes = b"", more: bytes = b"") -> None:
        source: Operand = StepResult(len(steps) - 1) if steps else 0
        steps.append(TemplateStep(opcode, shape_of(type_), (source,), fields, more))

    add("reshape", tensor(kind, cut))
    add("transpose", tensor(kind, parts), _dimensions(front))
    add(row.name, tensor(kind, parts), _dimensions([0]), groups)
    add("transpose", tensor(kind, joined), _dimensions(back))
    add("reshape", op.results[0].type)
    return InstructionTemplate(tuple(steps), (len(steps) - 1,))


def _read_all_to_all(row: HloRow, i: HloInstruction) -> Tree:
    x = i.values
    if len(x) != 1:
        raise UnmodelledError(f"it exchanges {len(x)} operands, one a rank")
    attrs = read_attrs(row, i)
    dimension = attrs.pop("dimension")
    return i.to.emit(row.op, x, split_dimension=dimension, concat_dimension=dimension, **attrs)


COLLECTIVE_ROWS: tuple[HloRow, ...] = (
    row("all_reduce", GROUPS, reduces=True, each=True),
    row("all_gather", DIMENSION, GROUPS, each=True),
    row("reduce_scatter", GROUPS, DIMENSION, reduces=True, each=True),
    row("all_to_all", DIMENSION, GROUPS, emit=_write_all_to_all, read=_read_all_to_all),
    row("collective_permute", "source_target_pairs", each=True),
)
