"""Parameters of a model, and those that compute a token: all but the experts not chosen."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import Dim, Module, Role


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
            for weight in op.operands[3:]:
                experts = _fixed(weight.shape[0])
                idle += _fixed(weight.type.size) // experts * max(experts - chosen, 0)
    return ParameterCounts(total, total - idle)


def _fixed(size: Dim) -> int:
    assert isinstance(size, int), f"a weight of {size} elements"
    return size
