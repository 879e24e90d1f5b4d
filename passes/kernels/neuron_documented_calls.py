"""Match ops that Neuron's compiler has custom calls of: norms and activations.

Targets are those of the compiler's own list (error NCC_EVRF015); operands and configurations are
those that transformers-neuronx and NxD Inference write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from graphgen.build import Builder
from graphgen.ir import Literal, Op, Value
from graphgen.ir.dtype import bf16, f16, f32
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.kernel_call import KernelCalls, KernelRule
from graphgen.passes.weights.derived import PreparedValues

_FLOATS: Final = (bf16, f16, f32)
# Targets of gelu by its attribute ``approximate``.
_GELU: Final[Mapping[str, str]] = {"none": "AwsNeuronGelu", "tanh": "AwsNeuronGeluApprxTanh"}


@dataclass(frozen=True, slots=True)
class DocumentedMatch:
    """One op, and the custom call that computes it.

    Attributes:
        op: the op.
        target: the name that the compiler knows the call by.
        config: as its emitters write it: a dimension in decimal digits, or nothing.
    """

    op: Op
    target: str
    config: str = ""

    @property
    def ops(self) -> list[Op]:
        """The op alone."""
        return [self.op]

    def call(self, b: Builder, calls: KernelCalls) -> Sequence[Value]:
        """Insert the call; a norm has an f32 operand and its epsilon as a constant."""
        given = list(self.op.operands)
        if self.op.name == "rms_norm":
            epsilon = Literal.of(f32, self.op.attrs.number("epsilon"))
            constant = b.emit("constant", (), {"value": epsilon}).result
            given = [b.convert(given[0], f32), given[1], constant]
        return b.custom_call(self.target, given, [self.op.result.type], self.config)


def _rms_norm(op: Op, prepared: PreparedValues) -> DocumentedMatch | NoMatch:
    x, weight = op.operands
    if x.dtype not in _FLOATS or weight.dtype not in _FLOATS:
        return no_match(f"the call has no norm of {x.dtype} by {weight.dtype}", x)
    if x.type.dims[-1] == 1:
        return no_match("a norm of one element is written as plain ops", x, depth=2)
    if not all(x.type.dims):
        return no_match("it has no elements", x, depth=3)
    return DocumentedMatch(op, "AwsNeuronRmsNorm", str(x.type.rank - 1))


def _activation(op: Op, prepared: PreparedValues) -> DocumentedMatch | NoMatch:
    (x,) = op.operands
    target = "AwsNeuronSilu" if op.name == "silu" else _GELU.get(op.attrs.text("approximate"))
    if target is None:
        return no_match(f"there is no call of gelu by {op.attrs.text('approximate')}", x)
    if x.dtype not in _FLOATS:
        return no_match(f"the call has no {op.name} of {x.dtype}", x, depth=2)
    if not all(x.type.dims):
        return no_match("it has no elements", x, depth=3)
    return DocumentedMatch(op, target)


DOCUMENTED: Final = (
    KernelRule("rms_norm", "rms_norm", _rms_norm),
    KernelRule("silu", "silu", _activation),
    KernelRule("gelu", "gelu", _activation),
)
