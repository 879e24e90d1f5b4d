"""Count all parameters of a model, and its active ones: without the experts not chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.ir import Dim, Module, Role, Value
from graphgen.ops.mixtures.experts_op import expert_operands


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Numbers of a model.

    Attributes:
        total: elements of all weights.
        active: of them, those that compute one token: K of the E experts of each mixture.
    """

    total: int
    active: int


def parameter_counts(module: Module) -> ParameterCounts:
    """Count the elements of the weights of a model, as it is built.

    The weights of ``experts`` must be tensors of the interface, or made of such alone.
    """
    total = sum(_fixed(row.logical.size) for row in module.entries(Role.WEIGHT))
    idle = 0
    programs = list(module.programs())
    # Programs share their weights: one has all mixtures.
    for op in programs[0].block if programs else ():
        if op.name == "experts":
            chosen = _fixed(op.operands[1].shape[-1])
            for weight in expert_operands(op.operands)[0][3:]:
                experts = _fixed(weight.shape[0])
                idle += _fixed(weight.type.size) // experts * max(experts - chosen, 0)
    return ParameterCounts(total, total - idle)


def active_bytes(module: Module) -> int:
    """Bytes of the weights that one token needs, as they are stored: K of the E experts.

    Args:
        module: reads the tensors of a checkpoint, which may be narrow.
    """
    total = sum(row.logical.nbytes for row in module.entries(Role.WEIGHT))
    programs = list(module.programs())
    idle: dict[str, int] = {}
    for op in programs[0].block if programs else ():
        if op.name == "experts":
            experts, chosen = _fixed(op.operands[3].shape[0]), _fixed(op.operands[1].shape[-1])
            for value in _sources(expert_operands(op.operands)[0][3:]):
                share = value.type.nbytes * max(experts - chosen, 0) // experts
                idle[value.name or ""] = share
    return total - sum(idle.values())


def _sources(values: Sequence[Value]) -> set[Value]:
    """The arguments that values are made of."""
    work, seen = list(values), set(values)
    while work:
        op = work.pop().op
        for operand in op.operands if op is not None else ():
            if operand not in seen:
                seen.add(operand)
                work.append(operand)
    return {value for value in seen if value.op is None}


def _fixed(size: Dim) -> int:
    assert isinstance(size, int), f"a weight of {size} elements"
    return size
