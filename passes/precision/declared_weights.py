"""Weights in element types of their own, as a checkpoint declares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.option_words import DTYPES
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Function, Module, Op, Role, Value, dtype, tensor
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, rule
from graphgen.passes.core.relation import EQUAL

# Ops that compute in the type of a weight, their second operand.
_NORMS = ("rms_norm", "layer_norm")
# Ops that read elements of a weight, their first operand.
_READS = ("gather", "take", "broadcast_in_dim")


@dataclass(frozen=True)
class DeclaredWeights(Pass):
    """Keep some weights in another element type than the model's.

    AWS's ``cast_type=as-declared``: of a checkpoint in bf16, norms, routers or single layers may be
    in f32. A norm is applied in the type of its weight, a product with a wider weight is computed
    in that type, and the results are rounded to the model's type; a bias is added in f32 anyhow,
    and looked-up rows are rounded after they are read. Where another op reads a weight, the weight
    is rounded to the model's type, and a remark names it.

    The runtime runs it on a model that was just built; it is in no registry, because it has nothing
    to do without a checkpoint's names.

    Options:
        types: ``TYPE:PATTERN`` of names, the first that matches counts.

    Given:
        module @m level=logical {
          input %x : f32[2,4]
          weight %norm : bf16[4]
          output %y : bf16[2,4]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %norm : bf16[4]
          %y = rms_norm(%x, %norm) epsilon=1e-05 : bf16[2,4]
          return y = %y
        }

    Result (``declared-weights{types=[f32:*norm]}``):
        module @m level=logical {
          input %x : f32[2,4]
          weight %norm : f32[4]
          output %y : bf16[2,4]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %norm : f32[4]
          %0 = rms_norm(%x, %norm) epsilon=1e-05 : f32[2,4]
          %y = convert(%0) dtype=bf16 : bf16[2,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "declared-weights"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    types: tuple[str, ...] = ()

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Change the interface, then what reads the weights.

        Raises:
            GraphgenError: GG0302 for a type that weights cannot have.
        """
        given = [_parsed(text) for text in self.types]
        found: dict[str, DType] = {}
        for row in module.entries(Role.WEIGHT):
            kind = next((kind for kind, name in given if fnmatchcase(row.name, name)), None)
            if kind is not None and row.logical.dtype.is_float and kind is not row.logical.dtype:
                found[row.name] = kind
                types = {
                    "logical": tensor(kind, row.logical.shape),
                    "physical": tensor(kind, row.physical.shape),
                }
                module.interface[row.name] = replace(row, **types)
        for function in module.programs():
            for name, kind in found.items():
                _retype(function, name, kind, rewriter)
            rewriter.apply_rules(function, (norm_in_type_of_weight, product_in_type_of_weight))
            rewriter.apply_rules(function, (rounded_rows, widened_again))
            function.erase_unread("convert")
        rounded = sorted(_rounded(module, found))
        if rounded:
            rewriter.remark(f"rounded to {module.meta['dtype']} as they are read: {_few(rounded)}")


def _parsed(text: str) -> tuple[DType, str]:
    kind, _, pattern = text.partition(":")
    if kind not in DTYPES or not pattern:
        raise GraphgenError(
            "GG0302",
            f"declared-weights: '{text}' is not a type and a pattern of names",
            help=f"write TYPE:PATTERN, with {', '.join(DTYPES)} for TYPE",
        )
    return dtype(kind), pattern


def _retype(function: Function, name: str, kind: DType, rewriter: Rewriter) -> None:
    """Let one program take a weight in another type, converted before its first reader."""
    old = function.arg(name)
    if old is None or old.dtype is kind:
        return
    first = next((op for op in function.block if old in op.operands), None)
    kept = [value for value in function.args if value is not old]
    function.block.keep_args(kept)
    new = function.block.add_arg(tensor(kind, old.shape), name)
    place = first or function.block.first
    b = Builder(
        function, before=place, loc=place.loc.through(rewriter.pass_name) if place else None
    )
    b.made = list[Op]()
    made = b.convert(new, old.dtype)
    rewriter.note(function, f"{name} is {kind}", place, b.made, ((old, made, EQUAL),))
    function.replace_uses(old, made)


def _wider(value: Value) -> Value | None:
    """The weight that a conversion rounds, if ``value`` is such a one."""
    made = value.producer("convert")
    source = made.operands[0] if made is not None else None
    if source is None or source.op is not None or source.dtype.bits <= value.dtype.bits:
        return None
    return source if source.dtype.is_float and value.dtype.is_float else None


def _in_type_of_weight(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``norm(x, narrow(w))`` is ``narrow(norm(x, w))``."""
    weight = _wider(op.operands[1])
    if weight is None:
        return no_match("its weight is as narrow as the model", op.operands[1])
    rest = [_wider(value) or value for value in op.operands[2:]]
    rest = [b.convert(value, weight.dtype) for value in rest]
    x = op.operands[0]
    x = b.convert(x, weight.dtype) if x.dtype.bits < weight.dtype.bits else x
    made = b.emit(op.name, (x, weight, *rest), dict(op.attrs)).result
    return [b.convert(made, op.result.dtype)]


norm_in_type_of_weight = rule(*_NORMS)(_in_type_of_weight)


@rule("dot_general")
def product_in_type_of_weight(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``x @ narrow(w)`` is ``narrow(wide(x) @ w)``."""
    weight = _wider(op.operands[1])
    if weight is None:
        return no_match("its weight is as narrow as the model", op.operands[1])
    x = b.convert(op.operands[0], weight.dtype)
    wide = weight.dtype if op.result.dtype.bits < weight.dtype.bits else op.result.dtype
    made = b.emit("dot_general", (x, weight), {**op.attrs, "dtype": wide}).result
    return [b.convert(made, op.result.dtype)]


@rule(*_READS)
def rounded_rows(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``read(narrow(w))`` is ``narrow(read(w))``."""
    weight = _wider(op.operands[0])
    if weight is None:
        return no_match("it reads no wider weight", op.operands[0])
    made = b.emit(op.name, (weight, *op.operands[1:]), dict(op.attrs)).result
    return [b.convert(made, op.result.dtype)]


@rule("convert")
def widened_again(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``wide(narrow(w))`` is ``w``: nothing is rounded between."""
    made = op.operands[0].producer("convert")
    if made is None or made.operands[0].dtype is not op.result.dtype:
        return no_match("it does not undo a conversion", op.operands[0])
    if _weight(made.operands[0]).op is not None:
        return no_match("the rounded value is not a weight", made.operands[0], depth=2)
    return [made.operands[0]]


def _weight(value: Value) -> Value:
    """The weight that elements are read of, or the value itself."""
    while value.op is not None and value.op.name in _READS:
        value = value.op.operands[0]
    return value


def _rounded(module: Module, found: Iterable[str]) -> set[str]:
    """Names of the weights that some op reads rounded."""
    ops = [op for each in module.programs() for op in each.block if op.name == "convert"]
    narrowed = [op.operands[0] for op in ops if op.result.dtype.bits < op.operands[0].dtype.bits]
    return {_weight(value).name or "" for value in narrowed} & {*found}


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
