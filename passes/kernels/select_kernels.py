"""Kernels of a target for products with weights, for norms and for attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from graphgen.build import Builder
from graphgen.ir import WHOLE_PROMPTS, Function, Module, Op, Value
from graphgen.ir.dtype import bf16, f16, f32
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.kernels.cpu_attention import match_attention
from graphgen.passes.kernels.cpu_linear import match_linear
from graphgen.passes.kernels.cpu_rotation import match_cache_write, match_rope
from graphgen.passes.kernels.kernel_call import KernelCalls, KernelRule
from graphgen.passes.kernels.neuron_rules import neuron_rules
from graphgen.passes.weights.derived import PreparedValues, WeightNumbers

_FLOATS = (bf16, f16, f32)
_OPERANDS = ("x", "norm", "offset")


@dataclass(frozen=True, slots=True)
class RowMatch:
    """One op, and the kernel that computes it.

    Attributes:
        op: ``rms_norm``, ``layer_norm`` or ``top_k``.
        kernel: the name.
        config: settings of the kernel.
    """

    op: Op
    kernel: str
    config: dict[str, object]

    @property
    def ops(self) -> list[Op]:
        """The op alone."""
        return [self.op]

    def call(self, b: Builder, calls: KernelCalls) -> Sequence[Value]:
        """Insert the call; ``b`` has nothing to add."""
        operands: dict[str, Value] = dict(zip(_OPERANDS, self.op.operands, strict=False))
        body, cloner = calls.body(operands)
        return calls.call(self.kernel, self.config, body, cloner, operands, self.ops)


def match_norm(op: Op, prepared: PreparedValues) -> RowMatch | NoMatch:
    """A norm that stands alone, as before a rotation or after a product.

    Args:
        op: ``rms_norm`` or ``layer_norm``.
        prepared: of no use here: no operand has to be made of weights.
    """
    x, *vectors = op.operands
    if x.dtype not in _FLOATS or {vector.dtype for vector in vectors} != {op.result.dtype}:
        return no_match(f"the kernel has no norm of {x.dtype} to {op.result.dtype}", x)
    if op.result.dtype not in _FLOATS:
        return no_match(f"the kernel rounds to no {op.result.dtype}", op.result)
    if not all(x.type.dims):
        return no_match("it has no elements", x, depth=2)
    config: dict[str, object] = {
        "offset": len(vectors) == 2,
        "epsilon": op.attrs.number("epsilon"),
    }
    return RowMatch(op, "norm", config)


def match_top_k(op: Op, prepared: PreparedValues) -> RowMatch | NoMatch:
    """The largest elements of rows, as of logits that a token is chosen from.

    Args:
        op: ``top_k``.
        prepared: of no use here: no operand has to be made of weights.
    """
    (x,) = op.operands
    if x.dtype not in _FLOATS:
        return no_match(f"the kernel does not order {x.dtype}", x)
    if not all(x.type.dims):
        return no_match("it has no elements", x, depth=1)
    if not op.attrs.integer("k"):
        return no_match("it takes no element", x, depth=2)
    return RowMatch(op, "top_k", {"k": op.attrs.integer("k")})


# In the order in which they are looked for: a kernel takes in no op that an earlier one has taken.
RULES: Final = (
    KernelRule("linear", "dot_general", match_linear),
    KernelRule("attention", "attention", match_attention),
    KernelRule("cache_write", "kv_update", match_cache_write),
    KernelRule("rope", "rope", match_rope),
    KernelRule("norm", "rms_norm", match_norm),
    KernelRule("norm", "layer_norm", match_norm),
    KernelRule("top_k", "top_k", match_top_k),
)


@register
@dataclass(frozen=True)
class SelectKernels(Pass):
    """Replace products with weights, and attention, by kernel calls; pack the weights.

    A call names a function, which is its meaning: the ops that it stands for. NumPy, another
    compiler, or this CPU without the kernels run the function; the kernel is run where it is there.
    The kernel ``linear`` is a product with the ``rms_norm`` or ``layer_norm`` before it, the
    additions of a bias and a residual, an activation or a gated one after it. Weights in 8 and 4
    bits are widened inside of it, also those with a scale a group, or multiplied with integers that
    the rows become. It reads its weight in tiles of 16 columns; packing is ops in the program,
    which ``lift-weights`` moves out, so this runs before it. The kernel ``attention`` reads keys
    and values where they lie in the caches, ``cache_write`` rotates and rounds them and writes them
    there in place, and ``rope`` rotates queries. Norms that no product takes in are calls of
    ``norm``, and choices among logits are calls of ``top_k``.

    For Neuron, norms and activations become custom calls that its compiler documents, and the
    kernels in NKI among ``native`` calls of the artifacts that the file ``artifacts`` lists; see
    :mod:`graphgen.passes.kernels`.

    Options:
        target: ``cpu`` or an accelerator, which has kernels of its own.
        documented: on an accelerator, select the custom calls that its compiler documents.
        native: names of kernels in NKI to select there.
        artifacts: a file that lists the artifacts of these.
        lnc: physical cores per logical core; 0 for the target's default.

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
config="{\\"columns\\":16,\\"norm\\":false,\\"offset\\":false,\\"epsilon\\":0.0,\\"scale\\":false,\
\\"group\\":0,\\"x_group\\":0,\\"zero\\":false,\\"bias\\":false,\\"residual\\":false,\
\\"activation\\":\\"none\\",\\"gated\\":false}" : f32[2,16]
          return y = %y
        }
    """

    name: ClassVar[str] = "select-kernels"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned", "raw-weights")
    # A kernel sums in another order, which 16-bit floats then magnify.
    rounding: ClassVar[float] = 2e-2

    target: str = "cpu"
    documented: bool = True
    native: tuple[str, ...] = ()
    artifacts: str = ""
    lnc: int = 0

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Select in every program; equal calls of two programs share a function."""
        calls = KernelCalls(module, rewriter.pass_name)
        numbers: WeightNumbers = {}
        rules = self._rules()
        for function in module.programs():
            prepared = PreparedValues(module, function, numbers)
            for rule in rules:
                _select(rule, function, prepared, calls, rewriter)
        calls.put_first()

    def _rules(self) -> tuple[KernelRule, ...]:
        """The kernels of the target, in the order in which they are looked for."""
        if self.target == "cpu":
            return RULES
        return neuron_rules(self.target, self.documented, self.native, self.artifacts, self.lnc)


def _select(
    rule: KernelRule,
    function: Function,
    prepared: PreparedValues,
    calls: KernelCalls,
    rewriter: Rewriter,
) -> None:
    """Select one kind of kernel in a program."""
    for op in [op for op in function.block if op.name == rule.root]:
        if op.block is None:
            continue
        found = rule.match(op, prepared)
        if isinstance(found, NoMatch):
            rewriter.decline(function, rule.kernel, op, found)
        elif rewriter.exhausted:
            return
        elif not rewriter.declines(function, found.ops[-1], rule.kernel):
            values = found.call(rewriter.before(function, found.ops[-1]), calls)
            if rule.whole_prompts:
                calls.module.meta[WHOLE_PROMPTS] = rule.kernel
            _replace(rule.kernel, found.ops, values, function, rewriter)


def _replace(
    kernel: str, ops: list[Op], values: Sequence[Value], function: Function, rewriter: Rewriter
) -> None:
    makers = dict.fromkeys([value.op for value in values if value.op is not None])
    rewriter.replace(function, ops[-1], values, kernel, created=tuple(makers))
    for op in reversed(ops[:-1]):
        if op.block is not None and not function.uses(op):
            function.block.erase(op)
