"""The smallest module that still fails: programs, layers, outputs, ops, dimensions, attributes.

The failure is defined by a check, any function of a module. It is asked about smaller and smaller
modules, and whatever still fails is gone on with, so that every step is sure although none is
derived. Halves are tried before quarters, down to single things (delta debugging, Zeller 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from graphgen.analysis import run_by_programs
from graphgen.analysis.layers import scope_of
from graphgen.errors import GraphgenError
from graphgen.ir import (
    RANK,
    Attrs,
    AttrValue,
    Dim,
    Function,
    Module,
    Op,
    Role,
    TensorType,
    Value,
    attrs_of,
    entry,
    tensor,
)
from graphgen.ir.clone import Cloner, clone_module
from graphgen.ir.names import fresh_name
from graphgen.ops import InferError, infer, op_def, verify
from graphgen.ops.attr_types import ELEMENT, NUMBER

# Changes a copy; whether there was anything to change.
Edit = Callable[[Module], bool]

# Attributes that hold sizes, and not numbers of dimensions.
_SIZES = ("shape", "slice_sizes", "limit_indices", "start_indices", "attended", "low", "high")


def edited(module: Module, edit: Edit) -> Module | None:
    """A copy with an edit made and what is unread removed; ``None`` if there was nothing to do."""
    copy = clone_module(module)
    if not edit(copy):
        return None
    tidy(copy)
    return copy


def tidy(module: Module) -> None:
    """Remove dead ops, arguments, functions and rows of the interface."""
    for function in module.programs():
        _sweep(function)
        _drop_args(module, function)
    read = {value.name or "" for function in module.programs() for value in function.args}
    made = {name for function in module.programs() for name, _ in function.outputs}
    for name in ("weights.rank", "weights.global"):
        function = module.functions.get(name)
        if function is not None:
            function.outputs = [pair for pair in function.outputs if pair[0] in read]
            _sweep(function)
            function.block.keep_args([value for value in function.args if value.users])
            read |= {value.name or "" for value in function.args}
    rows = module.interface.items()
    module.interface = {name: row for name, row in rows if name in read or name in made}
    packs = {name for row in module.interface.values() for name in (row.pack, row.unpack)}
    packs |= run_by_programs(module)
    module.functions = {
        name: function
        for name, function in module.functions.items()
        if function.phase or name in packs or (name.startswith("weights.") and function.outputs)
    }


def _sweep(function: Function) -> None:
    for op in reversed(function.block):
        if not function.uses(op):
            function.block.erase(op)


def _drop_args(module: Module, function: Function) -> None:
    """Unread arguments; a state that only goes through is unread."""
    through = {
        name
        for name, value in function.outputs
        if value.op is None and value.name == name and not value.users
    }
    function.outputs = [pair for pair in function.outputs if pair[0] not in through]
    kept = [
        value
        for value in function.args
        if value.users or function.returns(value) or (value.name == RANK and module.ranks > 1)
    ]
    function.block.keep_args(kept)


def without_programs(names: Collection[str]) -> Edit:
    """Some programs less."""

    def edit(module: Module) -> bool:
        module.functions = {k: f for k, f in module.functions.items() if k not in names}
        return bool(module.programs())

    return edit


def without_layers(scopes: Collection[str]) -> Edit:
    """Layers less: what they make becomes what they read of the same type; states stay as given."""

    def edit(module: Module) -> bool:
        done = False
        for function in module.programs():
            inside = {op for op in function.block if scope_of(op) in scopes}
            for op in list(function.block):
                if op in inside:
                    done = _bypass(function, op, inside) or done
        return done

    return edit


def _bypass(function: Function, op: Op, inside: set[Op]) -> bool:
    """Let readers outside of a group of ops read something from before it."""
    done = False
    for result in op.results:
        readers = [user for user in result.users if user not in inside]
        if not readers and not function.returns(result):
            continue
        other = _before(result, inside)
        if other is None:
            continue
        for user in readers:
            user.set_operands(tuple([other if v is result else v for v in user.operands]))
        function.outputs.replace(result, other)
        done = True
    return done


def _before(value: Value, inside: set[Op]) -> Value | None:
    """The nearest value outside of the group, of the same type, that ``value`` depends on."""
    work, seen = [value], {value}
    while work:
        current = work.pop(0)
        if current.op is None or current.op not in inside:
            if current.type is value.type and current is not value:
                return current
            continue
        fresh = [v for v in current.op.operands if v not in seen]
        seen.update(fresh)
        work.extend(fresh)
    return None


def without_outputs(program: str, names: Collection[str]) -> Edit:
    """Outputs less; a state that is still read stays as it was given."""

    def edit(module: Module) -> bool:
        function = module.functions[program]
        kept: list[tuple[str, Value]] = []
        done = False
        for name, value in function.outputs:
            argument = function.arg(name)
            if name not in names:
                kept.append((name, value))
            elif argument is not None and argument is not value:
                kept.append((name, argument))
                done = True
            else:
                done = done or argument is None
        function.outputs = kept
        return done and bool(kept)

    return edit


def outputs_at(program: str, count: int) -> Edit:
    """Hand back what the first ``count`` ops made for the rest, and leave out the rest."""

    def edit(module: Module) -> bool:
        function = module.functions[program]
        ops = list(function.block)
        early = set(ops[:count])
        kept: list[tuple[str, Value]] = []
        for name, value in function.outputs:
            argument = function.arg(name)
            if value.op is None or value.op in early:
                kept.append((name, value))
            elif argument is not None:
                kept.append((name, argument))
        live = [
            value
            for op in ops[:count]
            for value in op.results
            if any(user not in early for user in value.users)
        ]
        function.outputs = kept
        for value in live:
            name = _numbered(module, "out")
            module.interface[name] = entry(Role.OUTPUT, name, value.type)
            function.outputs.append((name, value))
        for op in reversed(ops[count:]):
            function.block.erase(op)
        return count < len(ops)

    return edit


def inputs_at(program: str, count: int) -> Edit:
    """Turn the values that the first ``count`` ops make for the rest into inputs."""

    def edit(module: Module) -> bool:
        function = module.functions[program]
        ops = list(function.block)[:count]
        early = set(ops)
        done = False
        for op in ops:
            for value in op.results:
                done = _as_input(module, function, value, early) or done
        return done

    return edit


def as_inputs(program: str, places: Collection[int]) -> Edit:
    """Turn the results of the ops at these places into inputs."""

    def edit(module: Module) -> bool:
        function = module.functions[program]
        ops = [op for place, op in enumerate(function.block) if place in places]
        made = [_as_input(module, function, value, ()) for op in ops for value in op.results]
        return any(made)

    return edit


def _as_input(module: Module, function: Function, value: Value, early: Collection[Op]) -> bool:
    """Let readers, those in ``early`` excepted, read a new input instead."""
    readers = [user for user in value.users if user not in early]
    if not readers:
        return False
    name = _numbered(module, "in")
    module.interface[name] = entry(Role.INPUT, name, value.type)
    given = function.block.add_arg(value.type, name)
    given.sharding = value.sharding
    for user in readers:
        user.set_operands(tuple([given if v is value else v for v in user.operands]))
    return True


def bypassed(program: str, places: Collection[int]) -> Edit:
    """Ops at these places are left out: what they make becomes an operand of that type."""

    def edit(module: Module) -> bool:
        function = module.functions[program]
        ops = [op for place, op in enumerate(function.block) if place in places]
        # Each of them, also after one that could be left out.
        done = [_bypass(function, op, {op}) for op in ops]
        return any(done)

    return edit


def _numbered(module: Module, base: str) -> str:
    """``base`` with the first number that is free in the interface, from 1."""
    return fresh_name(f"{base}1", module.interface, 2, base + "{number}")


def plain_attrs(program: str, place: int) -> Edit:
    """An op with its attributes at their defaults, and numbers at 1."""

    def edit(module: Module) -> bool:
        function = module.functions[program]
        op = list(function.block)[place]
        changed: dict[str, AttrValue] = {}
        for attr in op_def(op.name).attrs:
            value = op.attrs[attr.name]
            if not attr.required and attr.type is not ELEMENT:
                changed[attr.name] = attr.default
            elif attr.type is NUMBER and value != 1.0:
                changed[attr.name] = 1.0
        attrs = attrs_of({**op.attrs, **changed})
        if attrs is op.attrs:
            return False
        op.attrs = attrs
        return True

    return edit


def without_meta(module: Module) -> bool:
    """The module without its free text."""
    done = bool(module.meta)
    module.meta = {}
    return done


def resized(sizes: Mapping[int, int]) -> Edit:
    """Dimensions of other sizes, everywhere; shapes are inferred again."""

    def edit(module: Module) -> bool:
        rows = module.interface
        for name, row in rows.items():
            if row.pack or row.physical is not row.logical:
                return False
            rows[name] = entry(row.role, name, _resize(row.logical, sizes), row.domain)
        for name, function in list(module.functions.items()):
            made = Function(function.name, function.phase, dict(function.dims))
            _Resizer(sizes).function(function, made)
            module.functions[name] = made
        return True

    return edit


def _resize(type_: TensorType, sizes: Mapping[int, int]) -> TensorType:
    return tensor(type_.dtype, _sizes(type_.shape, sizes))


def _sizes(shape: Sequence[Dim], sizes: Mapping[int, int]) -> tuple[Dim, ...]:
    return tuple([sizes.get(dim, dim) if isinstance(dim, int) else dim for dim in shape])


class _Resizer(Cloner):
    """Copies with other sizes; every type is inferred again."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        super().__init__()
        self.sizes = sizes

    def type(self, type_: TensorType) -> TensorType:
        return _resize(type_, self.sizes)

    def attrs(self, op: Op) -> Attrs:
        return _resized_attrs(op.attrs, self.sizes)

    def result_types(self, op: Op, operands: Sequence[Value], attrs: Attrs) -> list[TensorType]:
        return list(infer(op.name, tuple([value.type for value in operands]), attrs))


def _resized_attrs(attrs: Attrs, sizes: Mapping[int, int]) -> Attrs:
    changed: dict[str, AttrValue] = {}
    for name in _SIZES:
        value = attrs.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            changed[name] = sizes.get(value, value)
        elif isinstance(value, tuple):
            dims = [dim for dim in value if not isinstance(dim, tuple | str | TensorType)]
            changed[name] = _sizes(dims, sizes)
    return attrs_of({**attrs, **changed}) if changed else attrs


# Whether a module still fails as the one it was made from does.
Fails = Callable[[Module], bool]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Round:
    """One kind of thing that was taken away.

    Attributes:
        what: ``layers``, ``outputs``, ...
        ops: in all functions, afterwards.
        checks: modules that have been tried, in all.
    """

    what: str
    ops: int
    checks: int


@dataclass(slots=True)
class Minifier:
    """Makes one module smaller.

    Attributes:
        module: the smallest that fails so far.
        fails: the check.
        tell: called after each kind of edit.
        asks: called with the ops of each candidate and the number of candidates before it.
        checks: how often the check has been asked.
        rounds: what has been done.
    """

    module: Module
    fails: Fails
    tell: Callable[[Round], None]
    asks: Callable[[int, int], None]
    checks: int = 0
    rounds: list[Round] = field(default_factory=list[Round])

    def run(self) -> Module:
        """Take away what can be; the smallest module.

        Raises:
            GraphgenError: GG0304 when the module does not fail as it is, or not always.
        """
        if not self.fails(clone_module(self.module)):
            raise _fine("the check does not fail for the module as it is")
        if not self.fails(clone_module(self.module)):
            raise _fine("the check fails at one time and not at another")
        self._step("programs", self._programs)
        self._step("layers", self._layers)
        size = -1
        while size != self.module.op_count():
            size = self.module.op_count()
            self._step("outputs", self._outputs)
            self._step("ops", self._ops)
        self._step("dims", self._dims)
        self._step("attributes", self._attributes)
        return self.module

    def _step(self, what: str, work: Callable[[], None]) -> None:
        work()
        self.rounds.append(Round(what, self.module.op_count(), self.checks))
        self.tell(self.rounds[-1])

    def _try(self, edit: Edit) -> bool:
        """Make an edit if the module still fails with it."""
        try:
            smaller = edited(self.module, edit)
            if smaller is None:
                return False
            verify(smaller)
        except (GraphgenError, InferError, AssertionError):
            return False
        self.asks(smaller.op_count(), self.checks)
        self.checks += 1
        if not self.fails(clone_module(smaller)):
            return False
        self.module = smaller
        return True

    def _halves(self, items: Sequence[T], edit: Callable[[Collection[T]], Edit]) -> None:
        """Take away as many of ``items`` as can be: halves, quarters, ... single ones."""
        left, size = list(items), len(items)
        while size:
            start = 0
            while start < len(left):
                chunk = left[start : start + size]
                if self._try(edit(chunk)):
                    del left[start : start + size]
                else:
                    start += size
            size //= 2

    def _programs(self) -> None:
        self._halves([f.name for f in self.module.programs()], without_programs)

    def _layers(self) -> None:
        scopes = {scope_of(op): None for f in self.module.programs() for op in f.block}
        self._halves([scope for scope in scopes if scope], without_layers)

    def _each(self) -> list[Function]:
        return self.module.programs()

    def _outputs(self) -> None:
        for name in [function.name for function in self._each()]:
            self._halves([n for n, _ in self._program(name).outputs], _outputs_of(name))
            self._closer(name, self._program(name).block.size, outputs_at, shrink=True)
            self._halves([n for n, _ in self._program(name).outputs], _outputs_of(name))

    def _program(self, name: str) -> Function:
        return self.module.functions[name]

    def _closer(
        self, name: str, size: int, edit: Callable[[str, int], Edit], *, shrink: bool
    ) -> None:
        """Move one end of a program towards the other, by halves of what is left."""
        step = size // 2
        while step:
            size = self._program(name).block.size
            count = size - step if shrink else step
            if step >= size or not self._try(edit(name, count)):
                step //= 2

    def _ops(self) -> None:
        for name in [function.name for function in self._each()]:
            self._closer(name, self._program(name).block.size, inputs_at, shrink=False)
            for edit in (bypassed, as_inputs):
                self._one_by_one(name, edit)

    def _one_by_one(self, name: str, edit: Callable[[str, Collection[int]], Edit]) -> None:
        """Try runs of ops, long ones first, and then each; from the end, where places are kept."""
        size = self._program(name).block.size // 2
        while size:
            place = self._program(name).block.size
            while place > 0:
                self._try(edit(name, range(max(place - size, 0), place)))
                place = min(place - size, self._program(name).block.size)
            size //= 2

    def _dims(self) -> None:
        found = {
            dim
            for function in self.module.functions.values()
            for value in [*function.args, *[v for op in function.block for v in op.results]]
            for dim in value.type.shape
            if isinstance(dim, int) and dim > 1
        }
        for size in sorted(found, reverse=True):
            for smaller in (1, 2, size // 2):
                multiples = {n: n // size * smaller for n in found if n % size == 0}
                alone = self._try(resized({size: smaller})) if 0 < smaller < size else False
                if alone or (0 < smaller < size and self._try(resized(multiples))):
                    break

    def _attributes(self) -> None:
        self._try(without_meta)
        for function in self._each():
            for place in range(function.block.size):
                self._try(plain_attrs(function.name, place))


def _outputs_of(program: str) -> Callable[[Collection[str]], Edit]:
    return lambda names: without_outputs(program, names)


def _fine(what: str) -> GraphgenError:
    return GraphgenError("GG0304", what, help="give the pipeline and the check with which it fails")
