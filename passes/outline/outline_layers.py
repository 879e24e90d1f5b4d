"""Depth: layers that compute the same become one function, and each of them a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from graphgen.analysis.calls import called, outside
from graphgen.ir import Block, Function, Loc, Module, Op, Value, loc
from graphgen.ir.clone import Cloner
from graphgen.ir.names import claim_name
from graphgen.ops import make_attrs
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.outline.layer_signature import Key, LayerOps, find_layers, portable


@register
@dataclass(frozen=True)
class OutlineLayers(Pass):
    """Outline equal layers into one function, which is emitted and compiled once.

    A layer is what was written in one numbered scope, such as ``model.layers.17``. Layers whose ops
    are the same up to where their inputs come from become calls of one function; its arguments are
    those inputs. Constants are copied into its body; values that layers share, such as a mask, stay
    outside. To be run last: a later pass sees calls.

    Options:
        min_layers: how many equal layers are worth a function.

    Given:
        module @m level=target {
          input %x : f32[4]
          weight %v : f32[4]
          weight %w : f32[4]
          output %y : f32[4]
        }

        func @f phase=decode {
          arg %x : f32[4]
          arg %v : f32[4]
          arg %w : f32[4]
          %a = multiply(%x, %v) : f32[4]  # m.py:1 layers.0
          %b = exponential(%a) : f32[4]  # m.py:2 layers.0
          %c = multiply(%b, %w) : f32[4]  # m.py:1 layers.1
          %y = exponential(%c) : f32[4]  # m.py:2 layers.1
          return y = %y
        }

    Result:
        module @m level=target {
          input %x : f32[4]
          weight %v : f32[4]
          weight %w : f32[4]
          output %y : f32[4]
        }

        func @layers {
          arg %0 : f32[4]
          arg %1 : f32[4]
          %a = multiply(%0, %1) : f32[4]
          %b = exponential(%a) : f32[4]
          return 0 = %b
        }

        func @f phase=decode {
          arg %x : f32[4]
          arg %v : f32[4]
          arg %w : f32[4]
          %b = call(%x, %v) to_apply=layers results=[f32[4]] : f32[4]
          %y = call(%b, %w) to_apply=layers results=[f32[4]] : f32[4]
          return y = %y
        }
    """

    name: ClassVar[str] = "outline-layers"
    input_stages: ClassVar[tuple[str, ...]] = ("target",)
    min_layers: int = 2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Outline every program; equal layers of two programs share a function."""
        bodies: dict[Key, _Body] = {}
        for function in module.programs():
            _Outliner(module, function, rewriter, bodies).run(self.min_layers)
        made = {body.function.name: body.function for body in bodies.values()}
        # Functions that layers run stand before them.
        run = {item.name for body in made.values() for item in called(module, body)}
        first = {name: f for name, f in module.functions.items() if name in run}
        module.functions = {**first, **made, **module.functions}


@dataclass(frozen=True, slots=True)
class _Body:
    """A function that layers became, and its ops in the order of theirs."""

    function: Function
    copies: Sequence[Op]


@dataclass(slots=True)
class _Outliner:
    module: Module
    function: Function
    rewriter: Rewriter
    # Of all programs.
    bodies: dict[Key, _Body]
    # Where things stand: each op's place in the list, and where a value can be read from.
    places: dict[Op, int] = field(default_factory=dict[Op, int])
    ready: dict[Value, float] = field(default_factory=dict[Value, float])
    # The new value for each value of an outlined layer.
    now: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def run(self, min_layers: int) -> None:
        """Find the layers, outline the repeated ones, and drop their ops."""
        constants = portable(self.function)
        groups: dict[Key, list[LayerOps]] = {}
        for layer in find_layers(self.module, self.function, constants):
            groups.setdefault(layer.key, []).append(layer)
        self._number()
        outlined: set[Op] = set()
        repeated = {
            layer for group in groups.values() if len(group) >= min_layers for layer in group
        }
        for layer in sorted(repeated, key=lambda layer: self.places[layer.ops[0]]):
            if not self.rewriter.exhausted and self._outline(layer, constants):
                outlined.update(layer.ops)
        for op in reversed(self.function.block):
            moved = op in outlined or op.results[0] in constants
            if moved and not self.function.uses(op):
                self.function.block.erase(op)

    def _number(self) -> None:
        for place, op in enumerate(self.function.block):
            self.places[op] = place
            self.ready.update(dict.fromkeys(op.results, float(place)))

    def _outline(self, layer: LayerOps, constants: dict[Value, Key]) -> bool:
        """Call instead of the layer's ops, just before the first reader of its results.

        Left as it is where something between the layer's ops both reads and feeds it.
        """
        inside = set(layer.ops)
        readers = [op for op in _readers(layer) if op not in inside and op in self.places]
        anchor = min(readers, key=self.places.__getitem__, default=None)
        place = self.places[anchor] if anchor else float(len(self.places))
        if any(self.ready.get(value, -1.0) >= place for value in layer.inputs):
            return False
        # Layers of another kind before it are calls by now.
        inputs = [self.now.get(value, value) for value in layer.inputs]
        body = self._body(layer, inputs, constants)
        first = layer.ops[0]
        via = self.rewriter.pass_name
        types = tuple([value.type for value in layer.outputs])
        call = Op(
            "call",
            tuple(inputs),
            types,
            make_attrs("call", {"to_apply": body.function.name, "results": types}),
            loc(first.loc.file, first.loc.line, layer.scope, first.loc.via).through(via),
            [value.name for value in layer.outputs],
        )
        if anchor is None:
            self.function.block.append(call)
        else:
            self.function.block.insert_before(call, anchor)
        related = zip(layer.outputs, call.results, strict=True)
        pairs = tuple((old, new, EQUAL) for old, new in related)
        self.rewriter.note(self.function, "outline", first, [call], pairs)
        for op, copy in zip(layer.ops, body.copies, strict=True):
            self.rewriter.copied(dict(zip(op.results, copy.results, strict=True)))
        for old, new in zip(layer.outputs, call.results, strict=True):
            new.sharding = old.sharding
            self.function.replace_uses(old, new)
            self.now[old], self.ready[old] = new, place - 0.5
        return True

    def _body(self, layer: LayerOps, inputs: Sequence[Value], constants: dict[Value, Key]) -> _Body:
        """The function of all layers of this key, made from the first, which reads ``inputs``."""
        found = self.bodies.get(layer.key)
        if found is None:
            taken = set(self.module.functions)
            function = Function(claim_name(layer.scope.rpartition(".")[0] or "layer", taken, 2))
            copies = _fill(function, layer, inputs, constants, self.rewriter.pass_name)
            # The calls that are made of layers run it from now on.
            self.module.add(function)
            found = self.bodies[layer.key] = _Body(function, copies)
        return found


def _readers(layer: LayerOps) -> Iterator[Op]:
    for value in layer.outputs:
        yield from value.users


class _LayerCloner(Cloner):
    """Copies ops of a layer without the layer's scope, with the constants they read."""

    def __init__(self, scope: str, constants: dict[Value, Key], via: str) -> None:
        super().__init__(via=via, shardings=False)
        self.scope = scope
        self.constants = constants

    def loc(self, where: Loc) -> Loc:
        return super().loc(outside(self.scope, where))

    def op(self, op: Op, block: Block, before: Op | None = None) -> Op:
        for value in op.operands:
            if value in self.constants and value not in self.mapping and value.op is not None:
                self.op(value.op, block)
        return super().op(op, block, before)


def _fill(
    body: Function,
    layer: LayerOps,
    inputs: Sequence[Value],
    constants: dict[Value, Key],
    via: str,
) -> list[Op]:
    """Copy the layer's ops, and the constants they read, into ``body``; the copies of the ops."""
    cloner = _LayerCloner(layer.scope, constants, via)
    for index, value in enumerate(inputs):
        cloner.argument(value, body, str(index))
    copies = [cloner.op(op, body.block) for op in layer.ops]
    outputs = enumerate(layer.outputs)
    body.outputs = [(str(index), cloner.mapping[value]) for index, value in outputs]
    return copies
