"""How each collective is written in HLO."""

from __future__ import annotations

from graphgen.ir import Op, TensorType, tensor
from graphgen.lowering.hlo.dialect.instruction_template import (
    InstructionTemplate,
    Operand,
    Reducer,
    StepResult,
    TemplateStep,
    one,
)
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.replica_groups import write_groups, write_pairs
from graphgen.lowering.hlo.proto.shape import shape_of
from graphgen.lowering.hlo.proto.wire import integers


def _dimension(dim: int) -> bytes:
    return integers(InstructionField.DIMENSIONS, [dim])


def _groups(op: Op) -> bytes:
    return write_groups(op.attrs.groups("replica_groups"))


def _reducer(op: Op) -> tuple[Reducer, ...]:
    return (Reducer(op.attrs.text("kind"), op.operands[0].dtype),)


def _all_reduce(op: Op) -> InstructionTemplate:
    return one("all-reduce", op.results[0].type, (0,), more=_groups(op), calls=_reducer(op))


def _all_gather(op: Op) -> InstructionTemplate:
    dim = _dimension(op.attrs.integer("dimension"))
    return one("all-gather", op.results[0].type, (0,), dim, _groups(op))


def _reduce_scatter(op: Op) -> InstructionTemplate:
    dim = _dimension(op.attrs.integer("dimension"))
    return one("reduce-scatter", op.results[0].type, (0,), dim, _groups(op), _reducer(op))


def _collective_permute(op: Op) -> InstructionTemplate:
    pairs = write_pairs(op.attrs.groups("source_target_pairs"))
    return one("collective-permute", op.results[0].type, (0,), more=pairs)


def _all_to_all(op: Op) -> InstructionTemplate:
    """HLO cuts and joins along one dimension, so with two, the parts go to the front and back."""
    split, concat = op.attrs.integer("split_dimension"), op.attrs.integer("concat_dimension")
    if split == concat:
        return one("all-to-all", op.results[0].type, (0,), _dimension(split), _groups(op))
    ranks = len(op.attrs.groups("replica_groups")[0])
    shape, kind = op.operands[0].type.dims, op.operands[0].dtype
    cut = [*shape[:split], ranks, shape[split] // ranks, *shape[split + 1 :]]
    front = [split, *[dim for dim in range(len(cut)) if dim != split]]
    parts = [cut[dim] for dim in front]
    # Behind the rank the dimensions are those of the operand: join just before the joined one.
    back = [*range(1, concat + 1), 0, *range(concat + 1, len(parts))]
    chain = _Chain()
    chain.add("reshape", tensor(kind, cut))
    chain.add("transpose", tensor(kind, parts), integers(InstructionField.DIMENSIONS, front))
    chain.add("all-to-all", tensor(kind, parts), _dimension(0), _groups(op))
    joined = tensor(kind, [parts[dim] for dim in back])
    chain.add("transpose", joined, integers(InstructionField.DIMENSIONS, back))
    chain.add("reshape", op.results[0].type)
    return InstructionTemplate(tuple(chain.steps), (len(chain.steps) - 1,))


class _Chain:
    """Steps that each work on what the one before made."""

    def __init__(self) -> None:
        self.steps: list[TemplateStep] = []

    def add(self, opcode: str, type_: TensorType, fields: bytes = b"", more: bytes = b"") -> None:
        """Append a step."""
        source: Operand = StepResult(len(self.steps) - 1) if self.steps else 0
        self.steps.append(TemplateStep(opcode, shape_of(type_), (source,), fields, more))


COLLECTIVES = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "collective_permute": _collective_permute,
}
