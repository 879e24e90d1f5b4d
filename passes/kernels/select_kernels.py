"""Kernels of the CPU for products with weights and for attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, Pass, Rewriter, register
from graphgen.passes.kernels.attention_match import AttentionMatch, match_attention
from graphgen.passes.kernels.kernel_call import KernelCalls, appending
from graphgen.passes.kernels.linear_match import LinearMatch, match_linear
from graphgen.passes.kernels.packed_weight import pack, unpack
from graphgen.passes.weights.derived import PreparedValues, WeightNumbers


@register
@dataclass(frozen=True)
class SelectKernels(Pass):
    """Products with weights, and attention, become calls of kernels; weights are packed.

    A call names a function, which is its meaning: the ops that it stands for. NumPy, another
    compiler, or this CPU without the kernels run the function; the kernel is run where it is there.
    The kernel ``linear`` is a product with the ``rms_norm`` before it, the addition of a residual
    or the gated activation after it. It reads its weight in tiles of 16 columns; packing is ops in
    the program, which ``lift-weights`` moves out, so this runs before it. The kernel ``attention``
    reads keys and values where they lie in the caches.

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
            prepared = PreparedValues(module, function, numbers)
            selection = _Selection(function, rewriter, calls)
            selection.run("linear", "dot_general", lambda op, p=prepared: match_linear(op, p))
            selection.run("attention", "attention", match_attention)
        calls.put_first()


@dataclass(slots=True)
class _Selection:
    """The kernels of one program."""

    function: Function
    rewriter: Rewriter
    calls: KernelCalls

    def run(
        self, kernel: str, root: str, match: Callable[[Op], LinearMatch | AttentionMatch | NoMatch]
    ) -> None:
        """Select one kind of kernel.

        Args:
            kernel: its name.
            root: name of the ops that it is looked for at.
            match: finds the ops around such an op, or says what the kernel lacks.
        """
        for op in [op for op in self.function.block if op.name == root]:
            found = match(op)
            if isinstance(found, NoMatch):
                self.rewriter.decline(self.function, kernel, op, found)
            elif self.rewriter.exhausted:
                return
            elif not self.rewriter.leaves_out(self.function, found.ops[-1], kernel):
                made = (
                    self._linear(found)
                    if isinstance(found, LinearMatch)
                    else self._attention(found)
                )
                self._replace(kernel, found.ops, made)

    def _linear(self, found: LinearMatch) -> Op:
        b = self.rewriter.before(self.function, found.end)
        weight = found.weight
        (axis,) = found.dot.attrs.integers("rhs_contracting_dims")
        columns, depth = weight.type.dims if axis == 1 else reversed(weight.type.dims)
        packed = pack(b, weight if axis == 1 else b.transpose(weight, (1, 0)))
        norm = found.norm
        operands = _present(
            x=found.x,
            weight=packed,
            norm=norm.operands[1] if norm else None,
            residual=found.residual,
        )
        body, cloner = self.calls.body(operands)
        inner = appending(body)
        whole = unpack(inner, cloner.mapping[packed], columns, depth)
        cloner.mapping[weight] = whole if axis == 1 else inner.transpose(whole, (1, 0))
        config = {
            "columns": found.end.result.type.dims[-1],
            "norm": norm is not None,
            "epsilon": norm.attrs.number("epsilon") if norm else 0.0,
            "bias": False,
            "residual": found.residual is not None,
            "activation": found.activation,
        }
        return self.calls.call("linear", config, body, cloner, operands, found.ops)

    def _attention(self, found: AttentionMatch) -> Op:
        attention = found.attention
        operands = _present(
            query=attention.operands[0],
            key=found.key,
            value=found.value,
            mask=attention.operands[3],
            rows=found.rows,
            sinks=found.sinks,
        )
        body, cloner = self.calls.body(operands)
        if found.before and found.rows is None:
            _same_rows(body, cloner.mapping, found)
        config = {
            "scale": attention.attrs.number("scale"),
            "softcap": attention.attrs.number("softcap"),
            "attended": found.attended,
            "rows": found.rows is not None,
            "sinks": found.sinks is not None,
        }
        return self.calls.call("attention", config, body, cloner, operands, found.ops)

    def _replace(self, kernel: str, ops: list[Op], call: Op) -> None:
        end = ops[-1]
        self.rewriter.replace(self.function, end, call.results, kernel, created=(call,))
        for op in reversed(ops[:-1]):
            unread = not any(value.users or self.function.returns(value) for value in op.results)
            if unread and op.block is not None:
                self.function.block.erase(op)


def _present(**operands: Value | None) -> Mapping[str, Value]:
    """The operands that a call has, by name."""
    return {name: value for name, value in operands.items() if value is not None}


def _same_rows(body: Function, mapping: dict[Value, Value], found: AttentionMatch) -> None:
    """Reads of the rows of the call itself need no numbers of rows: let the meaning count them."""
    seq_ids = found.before[0].operands[1]
    mapping[seq_ids] = appending(body).iota(s32, seq_ids.shape, 0)
