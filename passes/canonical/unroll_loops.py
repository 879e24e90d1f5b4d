"""Unroll loops with a known trip count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from graphgen.analysis import run_by_programs
from graphgen.analysis.calls import within
from graphgen.analysis.loops import trip_count
from graphgen.build import Builder
from graphgen.build.inline_function import inline_function
from graphgen.errors import GraphgenError
from graphgen.ir import Loc, Module, Op, Value, loc
from graphgen.ops.control import branch_operands, callees, chosen_branch
from graphgen.passes.canonical.fold_constants import folding
from graphgen.passes.core import NoMatch, Pass, Rewriter, Rule, no_match, register, rule


@rule("dynamic_slice")
def slice_at_constant(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``dynamic_slice(x, 3, 0)`` is a slice."""
    x, *starts = op.operands
    places = _places(x, starts, op.result)
    if places is None:
        return no_match("a start, or a size, is not known", op.operands[-1])
    limits = [start + size for start, size in zip(places, op.result.type.dims, strict=True)]
    return [b.op("slice", x, start_indices=tuple(places), limit_indices=tuple(limits), strides=())]


@rule("dynamic_update_slice")
def stacked(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Updates of one value that cover all of it, one beside the other, are a concatenation."""
    if not op.result.type.static:
        return no_match("its size is not known", op.result)
    parts: dict[int, Value] = {}
    axis: int | None = None
    covered, current = 0, op
    while True:
        base, update, *starts = current.operands
        places = _places(base, starts, update)
        if places is None:
            return no_match("a start is not known", current.operands[-1], depth=2)
        cut = [d for d, size in enumerate(update.type.dims) if size != base.type.dims[d]]
        if len(cut) != 1 or axis not in (None, cut[0]):
            return no_match("the updates do not lie along one dimension", update, depth=3)
        axis = cut[0]
        if places[axis] in parts:
            return no_match("a place is written twice", update, depth=4)
        parts[places[axis]] = update
        covered += update.type.dims[axis]
        if covered >= base.type.dims[axis]:
            break
        above = base.producer("dynamic_update_slice")
        if above is None:
            return no_match("a part of the value is not written", base, depth=5)
        current = above
    ordered = [parts[place] for place in sorted(parts)]
    ends = [place + parts[place].type.dims[axis] for place in sorted(parts)]
    if [0, *ends[:-1]] != sorted(parts) or ends[-1] != op.result.type.dims[axis]:
        return no_match("the updates overlap", op.result, depth=6)
    return [b.concatenate(ordered, axis) if len(ordered) > 1 else ordered[0]]


def _places(x: Value, starts: Sequence[Value], part: Value) -> list[int] | None:
    """Start of ``part`` in ``x`` per dimension, clamped as ``dynamic_slice`` does."""
    if not (x.type.static and part.type.static):
        return None
    found: list[int] = []
    for start, size, taken in zip(starts, x.type.dims, part.type.dims, strict=True):
        made = start.producer("constant")
        if made is None:
            return None
        (number,) = made.attrs.literal("value").values()
        found.append(min(max(int(number), 0), size - taken))
    return found


@register
@dataclass(frozen=True)
class UnrollLoops(Pass):
    """Unroll loops whose trip count is known, and replace a known choice by its branch.

    So a model that scans over its layers has layers again: each turn is in a scope of its own,
    numbered. Values computed from the counter are folded, so that a layer's weights are a slice of
    the weights of all layers, and the stacked results of a scan are a concatenation. Loops inside
    of loops are written out as well, calls are left; functions that no program runs are dropped.

    Options:
        limit: most turns of a loop that is written out.
        most_ops: most ops that one loop may become.

    Given:
        module @m level=logical {
          input %x : f32[2]
          input %w : f32[3,2]
          output %y : f32[2]
        }

        func @more {
          arg %i : s32[]
          arg %v : f32[2]
          arg %w : f32[3,2]
          %n = constant() value=s32[](2) : s32[]
          %t = compare(%i, %n) direction=LT : pred[]
          return t = %t
        }

        func @layer {
          arg %i : s32[]
          arg %v : f32[2]
          arg %w : f32[3,2]
          %one = constant() value=s32[](1) : s32[]
          %z = constant() value=s32[](0) : s32[]
          %j = add(%i, %one) : s32[]
          %r = dynamic_slice(%w, %i, %z) slice_sizes=[1,2] : f32[1,2]
          %s = reshape(%r) shape=[2] : f32[2]
          %u = multiply(%v, %s) : f32[2]
          return i = %j
          return v = %u
          return w = %w
        }

        func @f phase=main {
          arg %x : f32[2]
          arg %w : f32[3,2]
          %i = constant() value=s32[](0) : s32[]
          %n, %y, %v = while(%i, %x, %w) condition=more body=layer : s32[], f32[2], f32[3,2]
          return y = %y
        }

    Result (``unroll-loops,dce``):
        module @m level=logical {
          input %x : f32[2]
          input %w : f32[3,2]
          output %y : f32[2]
        }

        func @f phase=main {
          arg %x : f32[2]
          arg %w : f32[3,2]
          %r = slice(%w) start_indices=[0,0] limit_indices=[1,2] : f32[1,2]
          %s = reshape(%r) shape=[2] : f32[2]
          %u = multiply(%x, %s) : f32[2]
          %0 = slice(%w) start_indices=[1,0] limit_indices=[2,2] : f32[1,2]
          %1 = reshape(%0) shape=[2] : f32[2]
          %y = multiply(%u, %1) : f32[2]
          return y = %y
        }
    """

    name: ClassVar[str] = "unroll-loops"
    limit: int = 256
    most_ops: int = 200_000

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Unroll the loops of every function, inner loops first."""
        if self.limit < 0:
            raise GraphgenError("GG0302", f"unroll-loops: limit={self.limit} is negative")
        before = run_by_programs(module)
        rules = (
            unrolling(module, self.limit, self.most_ops),
            known_branch(module),
            slice_at_constant,
            folding(1, exact=True),
        )
        for function in module.functions.values():
            if any(op.name in ("while", "conditional") for op in function.block):
                rewriter.apply_rules(function, rules)
                rewriter.apply_rules(function, (stacked,))
        gone = before - run_by_programs(module)
        module.functions = {n: f for n, f in module.functions.items() if n not in gone}


def unrolling(module: Module, limit: int, most_ops: int) -> Rule:
    """The rule that writes loops out."""

    @rule("while")
    def unroll(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """A loop is its iterations, one after the other."""
        trips = trip_count(module, op, limit)
        if trips is None:
            return no_match(f"it is not known to turn at most {limit} times", op.operands[0])
        if trips > limit:
            return no_match(f"it turns {trips} times, more than {limit}", depth=2)
        body = module.function(callees(op)[1])
        if trips * body.block.size > most_ops:
            return no_match(
                f"its turns have {trips * body.block.size} ops, more than {most_ops}", depth=3
            )
        state: Sequence[Value] = op.operands
        for turn in range(trips):
            state = inline_function(
                b, body, state, partial(_through, partial(_iteration_location, op.loc, turn))
            )
        return _named_like(op, state)

    return unroll


def known_branch(module: Module) -> Rule:
    """The rule that replaces a choice by the branch that is known to be chosen."""

    @rule("conditional")
    def branch(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """A choice by a constant is the branch it chooses."""
        known = op.operands[0].producer("constant")
        if known is None:
            return no_match("the branch index is not constant", op.operands[0])
        (value,) = known.attrs.literal("value").values()
        branches = callees(op)
        chosen = chosen_branch(value if isinstance(value, bool) else int(value), len(branches))
        body = module.function(branches[chosen])
        made = inline_function(
            b, body, branch_operands(op)[chosen], partial(_through, partial(within, op.loc))
        )
        return _named_like(op, made)

    return branch


def _through(place: Callable[[Loc], Loc], inner: Loc) -> Loc:
    return place(inner).through("unroll-loops")


def _named_like(op: Op, values: Sequence[Value]) -> Sequence[Value]:
    """``values``, those of them that were made called as the results of ``op`` are."""
    for old, new in zip(op.results, values, strict=True):
        if new.op is not None and new not in op.operands and old.name is not None:
            new.name = old.name
    return values


def _iteration_location(loop: Loc, turn: int, inner: Loc) -> Loc:
    """The place of an op of a body in one turn: in a scope of that number below the loop's."""
    outer = loop.scope or "while"
    rest = inner.scope
    if rest == loop.scope or rest.startswith(f"{loop.scope}."):
        rest = rest[len(loop.scope) :]
    scope = ".".join([part for part in (outer, str(turn), rest.strip(".")) if part])
    return loc(inner.file, inner.line, scope, inner.via)
