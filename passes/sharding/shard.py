"""Annotate weights, inputs and states with layouts, by logical axis or by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Role, Sharding, Value, replicated, sharding
from graphgen.ir.sharding import Axes, parse_sharding
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.sharding.spec.logical_axes import (
    EXPERTS,
    HEADS,
    INTERMEDIATE,
    KV_HEADS,
    LOGICAL,
    MOE_INTERMEDIATE,
    ROWS,
    VOCAB,
    model_axes,
)
from graphgen.passes.sharding.spec.mesh import divides
from graphgen.passes.sharding.spec.whole_weights import (
    weight_bytes,
    whole_weights,
    whole_weights_remark,
)
from graphgen.passes.weights.derived import PreparedValues

# Megatron's layout of a decoder: heads, their caches, what lies between the MLP's products, and the
# vocabulary.
DECODER_RULES: Mapping[str, str] = dict.fromkeys((HEADS, KV_HEADS, INTERMEDIATE, VOCAB), "tp")
# The same over ranks that are factored for experts: neighbors along the product are neighbors.
_FACTORED = "ep*tp"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A layout that rules assign.

    Attributes:
        place: a row of the interface, or a value that a program makes of weights.
        function: the program of a value.
        layout: how it is to lie.
        rules: as they were written, those that decided, in order.
    """

    place: str | Value
    function: Function | None
    layout: Sharding
    rules: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the row, or of the value."""
        return self.place if isinstance(self.place, str) else f"%{self.place.name or 'a value'}"


def annotations_of(module: Module, rules: Mapping[str, str]) -> list[Annotation]:
    """The layouts that rules assign; of several rules for one dimension the last wins.

    Args:
        module: where a weight is taken apart or reordered before it is used, what is made of it is
            given the layout, as a value.
        rules: either the name of an axis of the model
        (:data:`~graphgen.passes.sharding.spec.logical_axes.LOGICAL`) and
            the mesh axes that split it, such as ``heads`` and ``tp``; or a pattern (as in a shell)
            for names of inputs, weights, states and outputs, and a layout such as ``{tp,-}``.

    Raises:
        GraphgenError: GG0304 for a rule that matches nothing, or a layout of another rank.
    """
    axes: _Axes | None = None
    made: dict[str | Value, Annotation] = {}
    for name, text in rules.items():
        if name in LOGICAL:
            axes = axes or _Axes(module)
            found = axes.split(name, _mesh_axes(name, text), made)
        else:
            found = _by_name(module, name, text)
        # Not every model has all that the usual rules speak of.
        usual = name in DECODER_RULES and text in (DECODER_RULES[name], _FACTORED)
        if not found and not usual:
            raise GraphgenError("GG0304", _unmatched(name), help=axes.known if axes else "")
        for item in found:
            earlier = made[item.place].rules if name in LOGICAL and item.place in made else ()
            made[item.place] = replace(item, rules=(*earlier, f"{name}:{text}"))
    return list(made.values())


def annotate(module: Module, rules: Mapping[str, str], rewriter: Rewriter | None = None) -> None:
    """Set the layouts of :func:`annotations_of` on rows and values.

    Args:
        module: changed in place.
        rules: see there.
        rewriter: of the pass on whose behalf; each layout is a rewrite of its own.
    """
    rewriter = rewriter or Rewriter("annotate")
    for item in annotations_of(module, rules):
        if rewriter.exhausted:
            return
        if isinstance(item.place, Value):
            item.place.sharding = item.layout
            op = item.place.op
        else:
            row = module.interface[item.place]
            module.interface[item.place] = replace(row, sharding=item.layout)
            op = None
        rewriter.note(item.function, f"{item.name} {item.layout.text}", op)


def _unmatched(name: str) -> str:
    if name in LOGICAL:
        return f"the model has no axis '{name}'"
    return f"no input, weight, state or output is called '{name}'"


def _mesh_axes(name: str, text: str) -> Axes:
    """The mesh axes of a rule for an axis of the model; none for ``-``."""
    layout = parse_sharding("{" + text + "}")
    if len(layout.dims) != 1 or layout.partial:
        what = f"'{text}' names no mesh axes to split {name} by"
        raise GraphgenError("GG0304", what, help="write e.g. tp, dp*tp, or - for none")
    return layout.dims[0]


class _Axes:
    """Shards logical axes in all values of the programs."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.axes = model_axes(module)
        self.places: dict[str, dict[tuple[str | Value, int], Function | None]] = {}
        for function in module.programs():
            for value in _split_values(module, function):
                for dim in range(value.type.rank):
                    for name in self.axes.of(value, dim):
                        found = self.places.setdefault(name, {})
                        if value.op is None:
                            found[value.name or "", dim] = None
                        else:
                            found[value, dim] = function

    @property
    def known(self) -> str:
        """The names of the logical axes of the model."""
        return f"it has {', '.join(sorted(self.places))}" if self.places else ""

    def split(
        self, name: str, cut: Axes, earlier: Mapping[str | Value, Annotation]
    ) -> list[Annotation]:
        """Shard one axis everywhere, on top of earlier rules."""
        found: dict[str | Value, Annotation] = {}
        for (place, dim), function in self.places.get(name, {}).items():
            known = found.get(place) or earlier.get(place)
            if isinstance(place, Value):
                layout, rank = place.sharding, place.type.rank
            else:
                row = self.module.interface[place]
                layout, rank = row.sharding, row.logical.rank
            layout = _with(known.layout if known else layout, rank, dim, cut)
            found[place] = Annotation(place, function, layout, ())
        return list(found.values())


def _split_values(module: Module, function: Function) -> Iterator[Value]:
    """Inputs, states, and the weights or derived values that the program reads."""
    prepared = PreparedValues(module, function, {})
    made = [value for op in function.block for value in op.results if prepared.of_weights(value)]
    for value in (*function.args, *made):
        if prepared.of_weights(value):
            if prepared.readers(value):
                yield value
        elif value.op is None and value.name in module.interface:
            yield value


def _with(layout: Sharding | None, rank: int, dim: int, cut: Axes) -> Sharding:
    """The layout with one dimension resharded; the axes are removed from the others."""
    dims = [
        tuple(axis for axis in axes if axis not in cut)
        for axes in (layout or replicated(rank)).dims
    ]
    dims[dim] = cut
    return sharding(dims)


def _by_name(module: Module, pattern: str, text: str) -> list[Annotation]:
    """Yield a layout for every row whose name matches."""
    rows = [
        row
        for row in module.interface.values()
        if row.role is not Role.PARAM and fnmatchcase(row.name, pattern)
    ]
    layout = parse_sharding(text)
    for axis in (axis for axes in layout.dims for axis in axes):
        if module.mesh and axis not in module.mesh:
            has = ", ".join(module.mesh)
            raise GraphgenError(
                "GG0304",
                f"'{pattern}': {layout.text} speaks of mesh axis {axis}, and the mesh has {has}",
                help=f"module.mesh['{axis}'] = 2 before, or shard{{mesh=[{axis}:2]}}",
            )
    for row in rows:
        if len(layout.dims) != row.logical.rank:
            raise GraphgenError(
                "GG0304", f"'{pattern}': {layout.text} does not fit {row.name} {row.logical.text}"
            )
    return [Annotation(row.name, None, layout, ()) for row in rows]


@register
@dataclass(frozen=True)
class Shard(Pass):
    """Annotate how a model is sharded over a mesh: by its axes, found by their use, or by names.

    Without rules heads, their caches and the hidden layer of an MLP are split over ``tp``, and
    everything else is replicated. A rule is ``AXIS:mesh axes`` for an axis of
    the model (heads, kv_heads, intermediate, vocab, hidden, positions, batch, sequence, rows,
    slots, experts, moe_intermediate: the inner features of experts, which are ``intermediate``
    too), or ``PATTERN:{layout}`` for names; rules come after the usual ones, and the last wins.

    Options:
        tp: ranks of the mesh axis ``tp``.
        ep: groups of these ranks that have experts of their own. The mesh is then ``[ep,tp]`` with
            as many ranks in all, which split experts over ``ep``, their inner features over ``tp``,
            and everything else over both; where each rank is a group, experts lie over ``tp``.
        mesh: the axes of the mesh instead, such as ``[dp:2,tp:4]``; neighbors along the last one
            are neighbors in number.
        vocab: split the embedding and the head of the model by words, over ``tp``.
        by_rows: split the caches by rows instead, and heads only between attention and the weights:
            ``SHARD_OVER_BATCH``. Rows must be in place and divide by ``tp``.
        rules: more rules, such as ``[vocab:tp,*.down_proj.weight:{-,tp}]``.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %fc1 : f32[8,4]
          weight %fc2 : f32[4,8]
          output %y : f32[2,4]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %fc1 : f32[8,4]
          arg %fc2 : f32[4,8]
          %h = dot_general(%x, %fc1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,8]
          %g = silu(%h) : f32[2,8]
          %y = dot_general(%g, %fc2) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,4]
          return y = %y
        }

    Result (``shard{tp=2}``):
        module @m level=canonical mesh=tp:2 {
          input %x : f32[2,4]
          weight %fc1 : f32[8,4] sharding={tp,-}
          weight %fc2 : f32[4,8] sharding={-,tp}
          output %y : f32[2,4]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %fc1 : f32[8,4]
          arg %fc2 : f32[4,8]
          %h = dot_general(%x, %fc1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,8]
          %g = silu(%h) : f32[2,8]
          %y = dot_general(%g, %fc2) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "shard"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    invalidates: ClassVar[tuple[str, ...]] = ("partitioned",)
    tp: int = 2
    ep: int = 1
    mesh: tuple[str, ...] = ()
    vocab: bool = False
    by_rows: bool = False
    rules: tuple[str, ...] = ()

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Set the mesh and annotate."""
        axes = self.axes
        rules = self.all_rules(module)
        module.mesh.clear()
        module.mesh.update(axes)
        annotate(module, rules, rewriter)
        if not rewriter.exhausted and math.prod(axes.values()) > 1:
            left = whole_weights_remark(
                whole_weights(module), weight_bytes(module), next(iter(axes))
            )
            if left:
                rewriter.remark(left)
        if not rewriter.applications and not rewriter.exhausted:
            rewriter.note(None, "mesh")

    @property
    def axes(self) -> Mapping[str, int]:
        """The mesh (GG0302 for one that cannot be)."""
        axes = dict(map(_axis, self.mesh)) if self.mesh else self._factored
        for axis, size in axes.items():
            if size < 1:
                raise GraphgenError("GG0302", f"shard: {axis}={size} must be at least 1")
        return axes

    @property
    def _factored(self) -> Mapping[str, int]:
        """The ranks as one axis, or as groups with experts of their own."""
        if self.ep in (1, self.tp):
            return {"tp": self.tp}
        if self.ep < 1 or self.tp % self.ep:
            raise GraphgenError(
                "GG0302",
                f"shard: tp={self.tp} ranks are not {self.ep} groups of as many",
                help="ep is a divisor of tp",
            )
        return {"ep": self.ep, "tp": self.tp // self.ep}

    def all_rules(self, module: Module) -> Mapping[str, str]:
        """The usual rules and those given, in order (GG0302 for what is none)."""
        every = _FACTORED if "ep" in self.axes and not self.mesh else "tp"
        rules = dict.fromkeys(DECODER_RULES, every) if "tp" in self.axes else {}
        if self.ep != 1 and not self.mesh:
            _check_experts(module, self.ep)
            whole = every == "tp"
            rules[EXPERTS], rules[MOE_INTERMEDIATE] = ("tp", "-") if whole else ("ep", "tp")
        if self.by_rows:
            rules |= _by_rows(module, self.tp, every)
        if self.vocab:
            rules[VOCAB] = every
        for rule in self.rules:
            name, text = _rule(rule)
            rules.pop(name, None)
            rules[name] = text
        return rules


def _check_experts(module: Module, groups: int) -> None:
    """Require experts to divide (GG0302)."""
    if not any(op.name == "experts" for function in module.programs() for op in function.block):
        raise GraphgenError(
            "GG0302",
            f"shard: ep={groups} groups of ranks have experts of their own, and no program has an "
            "op experts",
            help="leave out ep (--moe-ep-degree): the model is not a mixture of experts",
        )


def _by_rows(module: Module, tp: int, every: str) -> Mapping[str, str]:
    """Caches by rows; projections by heads where ranks divide these, else as is cheapest."""
    whole: dict[str, str] = {}
    for function in module.programs():
        for op in function.block:
            if op.name == "attention":
                for operand, axis in zip(op.operands, (HEADS, KV_HEADS), strict=False):
                    # One head cannot be split.
                    if operand.shape[2] != 1 and not divides(operand.shape[2], tp):
                        whole[axis] = "-"
    return {**whole, ROWS: every}


def _axis(text: str) -> tuple[str, int]:
    name, _, size = text.partition(":")
    if not (name.isidentifier() and size.isdecimal()):
        raise GraphgenError("GG0302", f"shard: '{text}' is no mesh axis", help="write e.g. tp:4")
    return name, int(size)


def _rule(text: str) -> tuple[str, str]:
    """The name and the layout of a rule."""
    name, _, layout = text.rpartition(":")
    if not name or not layout:
        what = f"shard: '{text}' is no rule"
        raise GraphgenError("GG0302", what, help="write vocab:tp or *.down_proj.weight:{-,tp}")
    return name, layout
