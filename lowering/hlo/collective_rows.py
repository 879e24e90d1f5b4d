"""Rows of the collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from graphgen.ir import AttrValue, Op, TensorType, Value, tensor
from graphgen.lowering.hlo.instruction_template import (
    InstructionTemplate,
    Operand,
    StepResult,
    TemplateStep,
)
from graphgen.lowering.hlo.op_builder import Tree
from graphgen.lowering.hlo.op_row import (
    DIMENSION,
    HloField,
    HloInstruction,
    HloRow,
    attribute,
    read_attrs,
    row,
    stated,
)
from graphgen.lowering.hlo.unmodelled import UnmodelledError
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.replica_groups import read_groups, write_groups
from graphgen.lowering.hlo_proto.shape import shape_of
from graphgen.lowering.hlo_proto.wire import integers

GROUPS = HloField("replica_groups", attribute("replica_groups"), read_groups)
# Collectives whose groups are of replicas, each with all of its partitions, unless they say that
# the ids are those of devices; a channel of the others makes their groups ones of partitions.
_REPLICAS = ("all_reduce", "all_gather", "reduce_scatter")


def _attrs(row: HloRow, i: HloInstruction) -> dict[str, AttrValue]:
    """The IR's attributes of a collective, whose groups list ranks.

    Raises:
        UnmodelledError: its groups are not of ranks, or it does not say how many ranks there are.
    """
    attrs = read_attrs(row, i)
    if i.to.file.counts.partitions > 1:
        _check_ids(row, i)
    if attrs.get("replica_groups") == ():
        ranks = _ranks(row, i)
        if not ranks:
            raise UnmodelledError("its group of all ranks does not say how many there are")
        attrs["replica_groups"] = (tuple(range(ranks)),)
    return attrs


def _check_ids(row: HloRow, i: HloInstruction) -> None:
    """Refuse groups whose ids are not those of devices, in a module of several partitions."""
    channel = i.message.integer(InstructionField.CHANNEL_ID) > 0
    devices = i.message.boolean(InstructionField.USE_GLOBAL_DEVICE_IDS)
    if row.op in _REPLICAS and not (channel and devices):
        raise UnmodelledError("its groups are of replicas, which have several partitions")
    if row.op not in _REPLICAS and not (channel and i.to.file.counts.replicas == 1):
        raise UnmodelledError("its groups are not of devices")


def _ranks(row: HloRow, i: HloInstruction) -> int:
    """The number of all ranks: by the sizes of the operand and the result, else of the module."""
    if row.op in ("all_gather", "reduce_scatter"):
        dims = i.message.integers(InstructionField.DIMENSIONS)
        x, leaf = i.values[0].type, i.shape.leaves[0]
        if len(dims) == 1 and dims[0] < min(x.rank, len(leaf.dims)):
            sizes = sorted((x.dims[dims[0]], leaf.dims[dims[0]]))
            return sizes[1] // sizes[0] if sizes[0] and sizes[1] % sizes[0] == 0 else 0
    return i.to.file.counts.ranks


def _read_each(row: HloRow, i: HloInstruction) -> Tree:
    """One op per operand; what torch-xla and Neuron pass along as a token has nothing to move."""
    x, attrs = i.values, _attrs(row, i)
    if len(x) == 1 and not i.shape.is_tuple:
        return i.to.emit(row.op, x, **attrs)
    made: list[Value] = []
    for index, operand in enumerate(x):
        i.to.part(str(index))
        moves = operand.type.rank or row.op == "all_reduce"
        if operand.dtype.is_token:
            made.append(operand)
        elif moves:
            made.append(i.to.emit(row.op, [operand], **attrs))
        else:
            made.append(_scalar_token(row, i, operand, attrs))
    i.to.part("")
    return tuple(made)


def _scalar_token(
    row: HloRow, i: HloInstruction, operand: Value, attrs: Mapping[str, AttrValue]
) -> Value:
    """A scalar among arrays that are gathered stays as it is; with scattered ones it is reduced.

    It has no dimension to gather or to scatter: torch-xla and Neuron order collectives by it.
    """
    i.to.file.drop(f"scalar tokens of {row.name}")
    if row.op != "reduce_scatter":
        return operand
    kept = {key: attrs[key] for key in ("kind", "replica_groups")}
    return i.to.emit("all_reduce", [operand], **kept)


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
    if i.shape.is_tuple:
        return _read_all_to_all_of_parts(row, i)
    if len(x) != 1:
        raise UnmodelledError(f"it exchanges {len(x)} operands, one a rank")
    attrs = _attrs(row, i)
    dimension = attrs.pop("dimension")
    return i.to.emit(row.op, x, split_dimension=dimension, concat_dimension=dimension, **attrs)


def _read_all_to_all_of_parts(row: HloRow, i: HloInstruction) -> Tree:
    """One exchange of the parts for all ranks together, as XLA's optimized modules have it.

    Operand ``k`` goes to rank ``k`` of the group; result ``k`` comes from there.
    """
    x, to = i.values, i.to
    groups = _attrs(replace(row, fields=(GROUPS,)), i).get("replica_groups", ())
    sizes = {len(group) for group in cast("Sequence[Sequence[int]]", groups)}
    if len({value.type for value in x}) != 1 or sizes != {len(x)}:
        raise UnmodelledError(f"it exchanges {len(x)} operands, not one of a type for each rank")
    shape = x[0].type.dims
    parts: list[Value] = []
    for place, value in enumerate(x):
        to.part(f"operand{place}")
        parts.append(to.emit("reshape", [value], shape=(1, *shape)))
    to.part("joined")
    joined = to.emit("concatenate", parts, dimension=0) if len(parts) > 1 else parts[0]
    to.part("exchanged")
    moved = to.emit(row.op, [joined], split_dimension=0, concat_dimension=0, replica_groups=groups)
    made: list[Value] = []
    for place in range(len(x)):
        to.part(f"part{place}")
        low, high = (place, *(0 for _ in shape)), (place + 1, *shape)
        one = to.emit("slice", [moved], start_indices=low, limit_indices=high)
        to.part(str(place))
        made.append(to.emit("reshape", [one], shape=shape))
    to.part("")
    return tuple(made)


COLLECTIVE_ROWS: tuple[HloRow, ...] = (
    row("all_reduce", GROUPS, reduces=True, read=_read_each),
    row("all_gather", DIMENSION, GROUPS, read=_read_each),
    row("reduce_scatter", GROUPS, DIMENSION, reduces=True, read=_read_each),
    row("all_to_all", DIMENSION, GROUPS, emit=_write_all_to_all, read=_read_all_to_all),
    row("collective_permute", "source_target_pairs", read=_read_each),
)
