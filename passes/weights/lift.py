"""Moving everything that depends on checkpoint tensors alone out of the programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

from graphgen.build import Builder
from graphgen.ir import (
    ADAPTER_RANK,
    RANK,
    WEIGHTS_GLOBAL,
    WEIGHTS_RANK,
    AttrValue,
    Function,
    Module,
    Op,
    Role,
    Value,
    entry,
    tensor,
)
from graphgen.ir.clone import Cloner
from graphgen.ir.dtype import s32
from graphgen.ir.names import claim_name
from graphgen.ops import OPS
from graphgen.ops.control import CONTROL
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.weights.materialization import only_enlarges
from graphgen.passes.weights.weight_copies import copies_remark, weight_copies

# Of each op that may prepare slots: the attribute that has a number or a bound for each dimension.
_OF_SLOTS: Mapping[str, str] = {
    "reshape": "shape",
    "slice": "limit_indices",
    "dynamic_slice": "slice_sizes",
}


def keeps_slots(op: Op) -> bool:
    """True if slot k of the result is made of slot k of the operands that have slots alone.

    Slots are dimension 0 of the first operand, and of all operands of ``concatenate``.
    """
    check = _KEEPS.get(op.name)
    return check is not None and op.result.shape[:1] == op.operands[0].shape[:1] and check(op)


def of_one_slot(b: Builder, op: Op, operands: Sequence[Value]) -> Op:
    """Emit ``op`` for operands of one slot each."""
    attrs: dict[str, AttrValue] = dict(op.attrs)
    if key := _OF_SLOTS.get(op.name):
        attrs[key] = (1, *op.attrs.dims(key)[1:])
    return b.emit(op.name, operands, attrs)


def _sliced(op: Op) -> bool:
    strides = op.attrs.integers("strides")
    return op.attrs.dims("start_indices")[0] == 0 and (not strides or strides[0] == 1)


def _padded(op: Op) -> bool:
    interior = op.attrs.integers("interior")
    return not any((op.attrs.integers("low")[0], op.attrs.integers("high")[0], *(interior[:1])))


_KEEPS: Mapping[str, Callable[[Op], bool]] = {
    "convert": lambda op: True,
    "reshape": lambda op: True,
    "transpose": lambda op: op.attrs.integers("permutation")[0] == 0,
    "slice": _sliced,
    "dynamic_slice": lambda op: True,
    "concatenate": lambda op: op.attrs.integer("dimension") != 0,
    "pad": _padded,
    "take": lambda op: op.attrs.integer("dimension") != 0,
}


# The sources of a value: nothing but constants, checkpoint tensors, tensors and the rank, or
# tensors of adapters (and the rank).
_CONSTANT, _GLOBAL, _RANK, _ADAPTER = 0, 1, 2, 3
# A value by what it is rather than where: the same preparation in two programs is one. A number, so
# that a long preparation is not deeper than a short one.
_Key = int


@register
@dataclass(frozen=True)
class LiftWeights(Pass):
    """Hoist weight preparation into the programs ``@weights.global`` and ``@weights.rank``.

    Computation on checkpoint tensors alone runs once, in ``@weights.global``; what also depends on
    the rank runs in ``@weights.rank``. Programs read the results as params. The same preparation in
    several programs is lifted once. Computation on adapter tensors, equal for each slot, runs in
    ``@adapter.rank`` for one adapter at a time, whenever one is loaded.

    Given:
        module @m level=canonical {
          input %x : f32[4]
          weight %w : f32[2,4]
          output %y : f32[2]
        }

        func @f phase=decode {
          arg %x : f32[4]
          arg %w : f32[2,4]
          %t = transpose(%w) permutation=[1,0] : f32[4,2]
          %y = dot_general(%x, %t) lhs_contracting_dims=[0] rhs_contracting_dims=[0] dtype=f32 : \
f32[2]
          return y = %y
        }

    Result:
        module @m level=canonical {
          input %x : f32[4]
          weight %w : f32[2,4]
          output %y : f32[2]
          param %w.prepared : f32[4,2]
        }

        func @weights.global {
          arg %w : f32[2,4]
          %t = transpose(%w) permutation=[1,0] : f32[4,2]
          return w.prepared = %t
        }

        func @f phase=decode {
          arg %x : f32[4]
          arg %w.prepared : f32[4,2]
          %y = dot_general(%x, %w.prepared) lhs_contracting_dims=[0] rhs_contracting_dims=[0] \
dtype=f32 : f32[2]
          return y = %y
        }
    """

    name: ClassVar[str] = "lift-weights"
    requires: ClassVar[tuple[str, ...]] = ("partitioned", "raw-weights")
    invalidates: ClassVar[tuple[str, ...]] = ("raw-weights",)

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Lift from every program, then put the new functions first."""
        lift = _Lift(module, rewriter)
        for function in module.programs():
            lift.program(function)
        made = {f.name: f for f in lift.homes if f.outputs or f.block.size}
        rest = {k: f for k, f in module.functions.items() if k not in made}
        module.functions = {**made, **rest}
        if copies := weight_copies(module):
            rewriter.remark(copies_remark(copies))


@dataclass(slots=True)
class _Lift:
    module: Module
    rewriter: Rewriter
    shared: Function = field(default_factory=lambda: Function(WEIGHTS_GLOBAL))
    ranked: Function = field(default_factory=lambda: Function(WEIGHTS_RANK))
    adapter: Function = field(default_factory=lambda: Function(ADAPTER_RANK))
    # Copies already made, by (function, key), and the names of params, by key.
    copies: dict[tuple[str, _Key], Value] = field(default_factory=dict[tuple[str, _Key], Value])
    params: dict[_Key, str] = field(default_factory=dict[_Key, str])
    # Numbers by what a value is computed from, and the other way around.
    numbers: dict[tuple[object, ...], _Key] = field(default_factory=dict[tuple[object, ...], _Key])
    parts: list[tuple[object, ...]] = field(default_factory=list[tuple[object, ...]])
    # Names of the interface, and of what @weights.global hands to @weights.rank.
    taken: set[str] = field(init=False)
    cloner: Cloner = field(init=False)

    def __post_init__(self) -> None:
        self.taken = set(self.module.interface)
        self.cloner = Cloner(via=self.rewriter.pass_name, shardings=False)

    @property
    def homes(self) -> tuple[Function, Function, Function]:
        """The functions that preparation moves to."""
        return self.shared, self.ranked, self.adapter

    def program(self, function: Function) -> None:
        """Lift what one program prepares, and make it read params instead."""
        classes, keys = self._classify(function)
        before = self.rewriter.applications
        for op in reversed(function.block):
            if op.results[0] in classes and not function.uses(op):
                if self.rewriter.exhausted:
                    return
                self.rewriter.erase(function, op)
        for op in list(function.block):
            for result in op.results:
                if classes.get(result, _CONSTANT) == _CONSTANT:
                    continue
                stays = function.returns(result) or any(
                    user.results[0] not in classes for user in result.users
                )
                if stays and not self.rewriter.exhausted:
                    self._to_param(function, result, classes, keys)
        for home in self.homes:
            made = {v: self.copies.get((home.name, keys[v])) for v in classes}
            self.rewriter.copied({old: new for old, new in made.items() if new is not None})
        self._clean(function, classes, before)

    def _clean(self, function: Function, classes: dict[Value, int], before: int) -> None:
        """Erase the ops that computed values that are parameters now, and unread weights."""
        for op in reversed(function.block):
            if op.results[0] in classes and not function.uses(op):
                function.block.erase(op)
        kept = [
            v
            for v in function.args
            if v.is_read or function.returns(v) or not self._prepared_away(v)
        ]
        if len(kept) < len(function.args):
            if self.rewriter.applications == before:
                if self.rewriter.exhausted:
                    return
                self.rewriter.note(function, "drop unread weights")
            function.block.keep_args(kept)

    def _prepared_away(self, value: Value) -> bool:
        row = self.module.interface.get(value.name or "")
        return row is not None and row.role in (Role.WEIGHT, Role.SLOTTED)

    def _classify(self, function: Function) -> tuple[dict[Value, int], dict[Value, _Key]]:
        """Values computed from weights, rank and constants only, each with its key."""
        classes: dict[Value, int] = {}
        keys: dict[Value, _Key] = {}
        for value in function.args:
            row = self.module.interface.get(value.name or "")
            if value.name == RANK:
                classes[value] = _RANK
            elif row is not None and row.role is Role.WEIGHT:
                classes[value] = _GLOBAL
            elif row is not None and row.role is Role.SLOTTED:
                classes[value] = _ADAPTER
            keys[value] = self._number((value.name,))
        for op in function.block:
            # Ops that run functions of the module stay beside those; a collective needs all
            # ranks, and weights are prepared for one rank at a time.
            stays = op.name in CONTROL or OPS[op.name].collective
            if not stays and all(v in classes for v in op.operands):
                kind = max((classes[v] for v in op.operands), default=_CONSTANT)
                if kind == _ADAPTER and not _prepares_slots(op, classes):
                    continue
                base = (op.name, op.attrs, *[keys[v] for v in op.operands])
                for result in op.results:
                    # The rank alone is not a weight: a program may still compute with it.
                    classes[result] = kind
                    keys[result] = self._number((*base, result.index))
        only_rank = _only_rank(function, classes)
        found = {v: k for v, k in classes.items() if v not in only_rank}
        _leave_enlarging(function, found)
        return found, keys

    def _to_param(
        self,
        function: Function,
        value: Value,
        classes: dict[Value, int],
        keys: dict[Value, _Key],
    ) -> None:
        name = self.params.get(keys[value])
        if name is None:
            name = self._param_name(keys[value])
            self.params[keys[value]] = name
            role = Role.SLOTTED if classes[value] == _ADAPTER else Role.PARAM
            self.module.interface[name] = entry(role, name, value.type)
            home = {_RANK: self.ranked, _ADAPTER: self.adapter}.get(classes[value], self.shared)
            home.outputs.append((name, self._copy(home, value, classes, keys)))
        param = function.arg(name) or function.block.add_arg(value.type, name)
        # Other preparations of this value now read the param.
        classes[param], keys[param] = classes[value], keys[value]
        pairs = ((value, param, EQUAL),)
        self.rewriter.note(function, f"lift {name}", value.op, replaced=pairs)
        function.replace_uses(value, param)

    def _copy(
        self, home: Function, value: Value, classes: dict[Value, int], keys: dict[Value, _Key]
    ) -> Value:
        """The value inside ``home``, copying what it is computed from as far as needed."""
        work = [value]
        while work:
            current = work[-1]
            whole = current.op is None or (home is self.ranked and _fact(current, classes))
            needed = () if whole or current.op is None else current.op.operands
            missing = [v for v in needed if (home.name, keys[v]) not in self.copies]
            if (home.name, keys[current]) in self.copies:
                work.pop()
            elif missing:
                work.extend(reversed(missing))
            else:
                made = self._copy_one(home, current, classes, keys)
                self.copies[home.name, keys[current]] = made
        return self.copies[home.name, keys[value]]

    def _copy_one(
        self, home: Function, value: Value, classes: dict[Value, int], keys: dict[Value, _Key]
    ) -> Value:
        """The value inside ``home``, where its operands are copied."""
        if value.op is None:
            type_ = tensor(s32, (1,)) if value.name == RANK else value.type
            if classes.get(value) == _ADAPTER:
                type_ = tensor(type_.dtype, (1, *type_.shape[1:]))
            return home.block.add_arg(type_, value.name or "")
        if home is self.ranked and _fact(value, classes):
            return self._through(value, classes, keys)
        operands = tuple([self.copies[home.name, keys[v]] for v in value.op.operands])
        if classes.get(value) == _ADAPTER:
            b = Builder(home, loc=value.op.loc.through(self.rewriter.pass_name))
            op = of_one_slot(b, value.op, operands)
        else:
            op = self.cloner.detached(value.op, operands)
            home.block.append(op)
        for old, new in zip(value.op.results, op.results, strict=True):
            self.copies[home.name, keys[old]] = new
        return op.results[value.index]

    def _through(self, value: Value, classes: dict[Value, int], keys: dict[Value, _Key]) -> Value:
        """A whole-tensor fact that a rank needs: an output of global, an argument of rank."""
        name = f"{self._param_name(keys[value])}.global"
        self.shared.outputs.append((name, self._copy(self.shared, value, classes, keys)))
        return self.ranked.block.add_arg(value.type, name)

    def _number(self, parts: tuple[object, ...]) -> _Key:
        """The number of a value that is computed from ``parts``."""
        found = self.numbers.get(parts)
        if found is None:
            found = self.numbers[parts] = len(self.parts)
            self.parts.append(parts)
        return found

    def _sources(self, key: _Key) -> list[str]:
        """Names of the checkpoint tensors a value is computed from, in operand order."""
        found: dict[str, None] = {}
        work, seen = [key], {key}
        while work:
            current = self.parts[work.pop()]
            if len(current) == 1:
                found[str(current[0])] = None
                continue
            # An op's name, its attributes, a number for each operand, the number of the result.
            operands = cast(tuple[_Key, ...], current[2:-1])
            fresh = [number for number in dict.fromkeys(operands) if number not in seen]
            seen.update(fresh)
            work.extend(reversed(fresh))
        return [name for name in found if name != RANK]

    def _param_name(self, key: _Key) -> str:
        """Named after the checkpoint tensors it is made of."""
        return claim_name(f"{joined(self._sources(key))}.{self._part(key)}", self.taken, 2)

    def _part(self, key: _Key) -> str:
        """The last part of a value's name: its relation to the tensors it derives from."""
        parts = self.parts[key]
        # A constant has no operand: its key ends with the attributes.
        while len(parts) > 3:
            if parts[0] == "quantize":
                return ("quantized", "scale")[cast(int, parts[-1])]
            parts = self.parts[cast(_Key, parts[2])]
        return "prepared"


def _fact(value: Value, classes: dict[Value, int]) -> bool:
    """True for values computed once from whole tensors, padding excepted: a rank reads less."""
    return classes.get(value) == _GLOBAL and value.producer("pad") is None


def _prepares_slots(op: Op, classes: dict[Value, int]) -> bool:
    """True for a step of preparation that is the same for each slot of adapters."""
    joined = op.operands if op.name == "concatenate" else op.operands[:1]
    others = op.operands[len(joined) :]
    return (
        keeps_slots(op)
        and all(classes[value] == _ADAPTER for value in joined)
        and all(classes[value] in (_CONSTANT, _RANK) for value in others)
    )


def joined(names: list[str]) -> str:
    """One name for several tensors: ``l.q.weight`` and ``l.k.weight`` are ``l.q-k.weight``."""
    first, *rest = parts = [name.split(".") for name in names]
    if not rest:
        return names[0]
    shortest = min(map(len, parts)) - 1
    head = 0
    while head < shortest and all(other[head] == first[head] for other in rest):
        head += 1
    tail = 0
    while tail < shortest - head and all(other[-1 - tail] == first[-1 - tail] for other in rest):
        tail += 1
    middles = [".".join(part[head : len(part) - tail]) for part in parts]
    shown = middles if len(middles) <= 4 else [middles[0], "etc", middles[-1]]
    return ".".join([*first[:head], "-".join(shown), *(first[len(first) - tail :] if tail else [])])


def _leave_enlarging(function: Function, classes: dict[Value, int]) -> None:
    """Leave ops that only enlarge a prepared value to the program that reads it."""
    for op in reversed(function.block):
        value = op.results[0]
        if value in classes and only_enlarges(op):
            read_outside = any(user.results[0] not in classes for user in value.users)
            if read_outside or function.returns(value):
                del classes[value]


def _only_rank(function: Function, classes: dict[Value, int]) -> set[Value]:
    """Values that depend on the rank or on constants but on no weight."""
    out = {v for v in function.args if v.name == RANK}
    for op in function.block:
        if op.results[0] in classes and all(v in out for v in op.operands):
            out.update(op.results)
    return out
