"""Kernels of the CPU for products with weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.ir import Function, Module
from graphgen.ir.clone import Cloner
from graphgen.passes.core import NoMatch, Pass, Rewriter, register
from graphgen.passes.kernels.kernel_call import KernelCalls, appending
from graphgen.passes.kernels.linear_match import LinearMatch, match_linear
from graphgen.passes.kernels.packed_weight import pack, unpack
from graphgen.passes.weights.derived import PreparedValues, WeightNumbers


@register
@dataclass(frozen=True)
class SelectKernels(Pass):
    """Products with weights become calls of kernels, with packed weights.

    A call names a function, which is its meaning: the ops that it stands for. NumPy, another
    compiler, or this CPU without the kernels run the function; the kernel is run where it is there.
    The kernel ``linear`` is a product with the ``rms_norm`` before it, the addition of a residual
    or the gated activation after it. It reads its weight in tiles of 16 columns; packing is ops in
    the program, which ``lift-weights`` moves out, so this runs before it.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %w : f32[16,4]
          output %y : f32[2,16]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %w : f32[16,4]
          %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,16]
          return y = %y
        }

    Result:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %w : f32[16,4]
          output %y : f32[2,16]
        }

        func @kernel.linear {
          arg %x : f32[2,4]
          arg %weight : f32[1,4,16]
          %0 = transpose(%weight) permutation=[0,2,1] : f32[1,16,4]
          %1 = reshape(%0) shape=[16,4] : f32[16,4]
          %2 = dot_general(%x, %1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,16]
          return result = %2
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %w : f32[16,4]
          %0 = reshape(%w) shape=[1,16,4] : f32[1,16,4]
          %1 = transpose(%0) permutation=[0,2,1] : f32[1,4,16]
          %y = call(%x, %1) to_apply=kernel.linear results=[f32[2,16]] kernel="graphgen.linear" \
config="{\\"columns\\":16,\\"norm\\":false,\\"epsilon\\":0.0,\\"bias\\":false,\\"residual\\":false,\
\\"activation\\":\\"none\\"}" : f32[2,16]
          return y = %y
        }
    """

    name: ClassVar[str] = "select-kernels"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned", "raw-weights")
    # A kernel sums in another order, which 16-bit floats then magnify.
    rounding: ClassVar[float] = 2e-2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Select in every program; equal calls of two programs share a function."""
        calls = KernelCalls(module, rewriter.pass_name)
        numbers: WeightNumbers = {}
        for function in module.programs():
            _Selection(function, rewriter, calls).run(PreparedValues(module, function, numbers))
        calls.put_first()


@dataclass(slots=True)
class _Selection:
    """The kernels of one program."""

    function: Function
    rewriter: Rewriter
    calls: KernelCalls

    def run(self, prepared: PreparedValues) -> None:
        for op in [op for op in self.function.block if op.name == "dot_general"]:
            found = match_linear(op, prepared)
            if isinstance(found, NoMatch):
                self.rewriter.decline(self.function, "linear", op, found)
            elif self.rewriter.exhausted:
                return
            elif not self.rewriter.leaves_out(self.function, found.end, "linear"):
                self._replace(found)

    def _replace(self, found: LinearMatch) -> None:
        end = found.end
        b = self.rewriter.before(self.function, end)
        weight = found.weight
        (axis,) = found.dot.attrs.integers("rhs_contracting_dims")
        packed = pack(b, weight if axis == 1 else b.transpose(weight, (1, 0)))
        operands = {"x": found.x, "weight": packed}
        if found.norm is not None:
            operands["norm"] = found.norm.operands[1]
        if found.residual is not None:
            operands["residual"] = found.residual
        body, cloner = self.calls.body(operands)
        _fill(body, cloner, found, axis)
        epsilon = found.norm.attrs.number("epsilon") if found.norm else 0.0
        config = {
            "columns": end.result.type.dims[-1],
            "norm": found.norm is not None,
            "epsilon": epsilon,
            "bias": False,
            "residual": found.residual is not None,
            "activation": found.activation,
        }
        call = self.calls.call("linear", config, body, list(operands.values()), end)
        self.rewriter.replace(self.function, end, call.results, "linear", created=(call,))
        for op in reversed(found.ops[:-1]):
            if not any(value.users for value in op.results):
                self.function.block.erase(op)


def _fill(body: Function, cloner: Cloner, found: LinearMatch, axis: int) -> None:
    """Write the meaning: the ops themselves, with the weight unpacked."""
    weight = found.weight
    kept = weight.type.dims if axis == 1 else tuple(reversed(weight.type.dims))
    b = appending(body)
    packed = body.arg("weight")
    assert packed is not None
    whole = unpack(b, packed, *kept)
    cloner.mapping[weight] = whole if axis == 1 else b.transpose(whole, (1, 0))
    for op in found.ops:
        cloner.op(op, body.block)
    body.outputs = [("result", cloner.mapping[found.end.result])]
