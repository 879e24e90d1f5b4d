"""Marks of layers for Neuron's compiler, in the form that NxD Inference gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.ir import Block, Function, Module, Op, Value, loc
from graphgen.ops import make_attrs
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.outline.layer_signature import LayerOps, find_layers, portable

_START, _END = "AwsNeuronModuleMarkerStart-Forward", "AwsNeuronModuleMarkerEnd-Forward"


@register
@dataclass(frozen=True)
class MarkLayers(Pass):
    """Mark the begin and the end of each layer by a custom call that returns its operands.

    Computed values that a layer reads go through one call at its start, and values that others read
    of it through one at its end; weights and caches are left as they are. The compiler takes the
    calls as the borders of layers, given ``--recursive-layer-det=false``. To be run last, for
    Neuron alone.

    Given:
        module @m level=target {
          input %x : f32[4]
          weight %w : f32[4]
          output %y : f32[4]
        }

        func @f phase=decode {
          arg %x : f32[4]
          arg %w : f32[4]
          %h = negate(%x) : f32[4]  # m.py:1
          %a = multiply(%h, %w) : f32[4]  # m.py:2 layers.0
          %y = exponential(%a) : f32[4]  # m.py:3
          return y = %y
        }

    Result:
        module @m level=target {
          input %x : f32[4]
          weight %w : f32[4]
          output %y : f32[4]
        }

        func @f phase=decode {
          arg %x : f32[4]
          arg %w : f32[4]
          %h = negate(%x) : f32[4]
          %0 = custom_call(%h) target="AwsNeuronModuleMarkerStart-Forward" results=[f32[4]] : f32[4]
          %a = multiply(%0, %w) : f32[4]
          %1 = custom_call(%a) target="AwsNeuronModuleMarkerEnd-Forward" results=[f32[4]] : f32[4]
          %y = exponential(%1) : f32[4]
          return y = %y
        }
    """

    name: ClassVar[str] = "mark-layers"
    input_stages: ClassVar[tuple[str, ...]] = ("target",)

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Mark the layers of every program."""
        for function in module.programs():
            marked = False
            constants = portable(function)
            for layer in find_layers(module, function, constants):
                if rewriter.exhausted:
                    break
                marked |= _mark(function, layer, {*constants}, rewriter)
            if marked:
                _put_in_order(function.block)


def is_marked(function: Function) -> bool:
    """True for a program whose layers are marked."""
    return any(
        op.name == "custom_call" and op.attrs.text("target") == _START for op in function.block
    )


def _mark(function: Function, layer: LayerOps, constants: set[Value], rewriter: Rewriter) -> bool:
    """Put both calls at the end of the block, where they are not in order yet."""
    inside, first = {*layer.ops}, layer.ops[0]
    # Of layers before this one, what is read now comes from their marks.
    read = dict.fromkeys(v for op in layer.ops for v in op.operands if v.op not in inside)
    inputs = [value for value in read if value.op is not None and value not in constants]
    outputs = [v for v in layer.outputs if any(user not in inside for user in v.users)]
    if not inputs or not outputs or rewriter.declines(function, first, "mark"):
        return False
    start = _call(function, _START, inputs, layer, rewriter)
    now = dict(zip(inputs, start.results, strict=True))
    for op in layer.ops:
        _read(op, now)
    end = _call(function, _END, outputs, layer, rewriter)
    after = dict(zip(outputs, end.results, strict=True))
    for op in _readers(outputs, {*inside, end}):
        _read(op, after)
    pairs = tuple((old, new, EQUAL) for old, new in (*now.items(), *after.items()))
    rewriter.note(function, "mark", first, [start, end], pairs)
    return True


def _call(
    function: Function, target: str, values: Sequence[Value], layer: LayerOps, rewriter: Rewriter
) -> Op:
    types = tuple([value.type for value in values])
    place = layer.ops[0 if target == _START else -1].loc
    where = loc(place.file, place.line, "", place.via).through(rewriter.pass_name)
    attrs = make_attrs("custom_call", {"target": target, "results": types})
    call = Op("custom_call", tuple(values), types, attrs, where)
    for value, result in zip(values, call.results, strict=True):
        result.sharding = value.sharding
    function.block.append(call)
    return call


def _read(op: Op, now: Mapping[Value, Value]) -> None:
    """Let an op read the new values."""
    if any(value in now for value in op.operands):
        op.set_operands(tuple([now.get(value, value) for value in op.operands]))


def _readers(values: Sequence[Value], without: set[Op]) -> Iterator[Op]:
    """Each op that reads one of the values, once."""
    yield from dict.fromkeys(
        user for value in values for user in [*value.users] if user not in without
    )


def _put_in_order(block: Block) -> None:
    """Move each op after what it reads; others keep their order."""
    placed = dict[Op, None]()
    for op in [*block]:
        waiting = [op]
        while waiting:
            top = waiting[-1]
            missing = [v.op for v in top.operands if v.op is not None and v.op not in placed]
            waiting += missing
            if not missing:
                placed[waiting.pop()] = None
    last, *others = placed
    for op in others:
        block.move_after(op, last)
        last = op
