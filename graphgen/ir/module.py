"""Functions, and the module that holds them with its interface table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import overload

from graphgen.errors import GraphgenError
from graphgen.ir.attrs import EMPTY, Attrs
from graphgen.ir.dims import Dim
from graphgen.ir.graph import Block, Op, Value
from graphgen.ir.hooks import ArrayLike, html_of, outputs_of, text_of
from graphgen.ir.interface import Entry, Role
from graphgen.ir.loc import Loc
from graphgen.ir.sharding import Sharding
from graphgen.ir.types import TensorType
from graphgen.limits import RANKS
from graphgen.numbers import whole_number

WEIGHTS_GLOBAL = "weights.global"
WEIGHTS_RANK = "weights.rank"
RANK = "rank"
# Prepares the tensors of one adapter for a rank, as @weights.rank does those of a checkpoint.
ADAPTER_RANK = "adapter.rank"
# The input of programs with adapters: the slot of each row, s32 [B]; -1 for none.
ADAPTER_IDS = "adapter_ids"
# The phase of a program that was read from elsewhere, whose purpose is not stated.
MAIN = "main"
# Fact of a module whose ranks all take and give whole arrays.
WHOLE_ARRAYS = "whole_arrays"
# The phase of a program that takes several tokens of rows that go on, and gives logits of each.
VERIFY = "verify"
# The same for tokens that form a tree, one a row, with the ancestors of each as an input.
VERIFY_TREE = "verify_tree"
VERIFYING = (VERIFY, VERIFY_TREE)
# The phases that read prompts, whole or in parts; all others read tokens that follow.
PROMPT_PHASES = ("prefill", "chunk")
# Key of a module's ``meta``: programs of prompts take them from the first token on, padded on the
# right, and no others.
WHOLE_PROMPTS = "whole_prompts"


class Outputs(Sequence[tuple[str, Value]]):
    """The ``(name, value)`` pairs a function hands back; finds one by name or value at once."""

    __slots__ = ("_next", "_pairs", "_places", "_readers")

    def __init__(self, pairs: Iterable[tuple[str, Value]] = ()) -> None:
        # Pairs by number, in order: one that goes leaves the numbers of the others as they are.
        self._pairs: dict[int, tuple[str, Value]] = {}
        self._places: dict[str, int] = {}
        self._readers: dict[Value, list[int]] = {}
        self._next = 0
        for pair in pairs:
            self.append(pair)

    @overload
    def __getitem__(self, index: int) -> tuple[str, Value]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[str, Value]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, Value] | Sequence[tuple[str, Value]]:
        return list(self._pairs.values())[index]

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return iter(list(self._pairs.values()))

    def append(self, pair: tuple[str, Value]) -> None:
        """Hand back one more value."""
        number, self._next = self._next, self._next + 1
        self._places.setdefault(pair[0], number)
        self._pairs[number] = pair
        self._readers.setdefault(pair[1], []).append(number)

    def returns(self, value: Value) -> bool:
        """True if the function returns ``value``."""
        return value in self._readers

    def get(self, name: str) -> Value | None:
        """The output called ``name``, if there is one."""
        place = self._places.get(name)
        return None if place is None else self._pairs[place][1]

    def set(self, name: str, value: Value) -> None:
        """Hand back ``value`` as ``name`` from now on; there is an output of that name."""
        place = self._places[name]
        self._unread(place)
        self._pairs[place] = (name, value)
        self._readers.setdefault(value, []).append(place)

    def drop(self, name: str) -> None:
        """Hand back nothing as ``name``, which one output at most is called."""
        place = self._places.pop(name, None)
        if place is not None:
            self._unread(place)
            del self._pairs[place]

    def _unread(self, place: int) -> None:
        value = self._pairs[place][1]
        readers = self._readers[value]
        readers.remove(place)
        if not readers:
            del self._readers[value]

    def replace(self, old: Value, new: Value) -> None:
        """Hand back ``new`` wherever ``old`` was."""
        places = self._readers.pop(old, [])
        for place in places:
            self._pairs[place] = (self._pairs[place][0], new)
        if places:
            self._readers.setdefault(new, []).extend(places)


class Function:
    """A program: named arguments, ops, named outputs.

    Attributes:
        name: unique in the module; ``weights.global`` and ``weights.rank`` prepare weights.
        block: arguments and ops.
        phase: ``prefill`` or ``decode`` for an entry program of a language model, ``main`` for one
            that was read from elsewhere, empty for any other function.
        dims: what the symbols of the interface are in this program.
        annotations: of the tuple of its arguments and that of its outputs, as
            :attr:`Op.annotations`.
    """

    __slots__ = ("_outputs", "annotations", "block", "dims", "name", "phase")

    def __init__(self, name: str, phase: str = "", dims: dict[str, Dim] | None = None) -> None:
        self.name = name
        self.block = Block()
        self.phase = phase
        self.dims: dict[str, Dim] = dims if dims is not None else {}
        self.annotations: Attrs = EMPTY
        self._outputs = Outputs()

    def __repr__(self) -> str:
        return f"<func @{self.name}: {len(self.args)} args, {self.block.size} ops>"

    def __reduce__(self) -> tuple[Callable[..., Function], tuple[object, ...]]:
        # Pickle would follow the chain of ops and values by recursion, and programs are long.

        return unflatten, flatten(self)

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    def evaluate(
        self, inputs: Mapping[str, object] | None = None, **more: object
    ) -> dict[str, ArrayLike]:
        """The outputs by name, computed by NumPy; the slow and plain reference.

        Args:
            inputs: an array, or nested lists of numbers, for each argument by name; sizes that are
                symbols become those of what is given.
            more: further inputs whose names are words of Python.

        Raises:
            GraphgenError: GG0402 inputs that do not fit, GG0403 an op without an evaluation rule.
        """
        return outputs_of(None, self, {**(inputs or {}), **more})

    @property
    def outputs(self) -> Outputs:
        """``(name, value)`` in order; one named like a state is that state's new value."""
        return self._outputs

    @outputs.setter
    def outputs(self, pairs: Iterable[tuple[str, Value]]) -> None:
        """Replace the outputs; each pair is an output's name and its value."""
        self._outputs = Outputs(pairs)

    @property
    def args(self) -> list[Value]:
        """The arguments, in order."""
        return self.block.args

    @property
    def ops(self) -> Iterator[Op]:
        """The ops in program order; safe against erasing the current one."""
        return iter(self.block)

    def arg(self, name: str) -> Value | None:
        """The argument called ``name``, if there is one."""
        return self.block.arg(name)

    def returns(self, value: Value) -> bool:
        """True if the function returns ``value``."""
        return self._outputs.returns(value)

    def uses(self, op: Op) -> bool:
        """True if a result of ``op`` is read or returned."""
        for result in op.results:  # noqa: SIM110 (asked of every op: a generator takes 3 times as long)
            if result.is_read or self._outputs.returns(result):
                return True
        return False

    def erase_unread(self, name: str) -> None:
        """Erase the ops called ``name`` whose result nothing reads, the last first."""
        for op in reversed(self.block):
            if op.name == name and not self.uses(op):
                self.block.erase(op)

    def replace_uses(self, old: Value, new: Value) -> None:
        """Let every reader of ``old``, and every output, read ``new``; the name moves along."""
        if new.name is None:
            new.name = old.name
        for op in list(old.users):
            op.set_operands(tuple([new if v is old else v for v in op.operands]))
        self._outputs.replace(old, new)


@dataclass(eq=False, slots=True, repr=False)
class Module:
    """A set of functions over one interface.

    Attributes:
        name: what the user calls it.
        level: which ops are legal now, a key of ``graphgen.ops.legality.IR_STAGES``.
        mesh: sizes of the device mesh's named axes, empty before partitioning.
        functions: by name, in order.
        interface: by name, in the order of the programs' arguments.
        meta: free text that travels with the module, such as the model's configuration as JSON.
    """

    name: str
    level: str = "logical"
    mesh: dict[str, int] = field(default_factory=dict[str, int])
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    interface: dict[str, Entry] = field(default_factory=dict[str, Entry])
    meta: dict[str, str] = field(default_factory=dict[str, str])

    def __repr__(self) -> str:
        return f"<module @{self.name} level={self.level}: {', '.join(map(repr, self.functions))}>"

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    def evaluate(
        self, inputs: Mapping[str, object] | None = None, *, program: str = "", **more: object
    ) -> dict[str, ArrayLike]:
        """The outputs of a program as :meth:`Function.evaluate` gives them, calls included.

        Args:
            inputs: an array, or nested lists of numbers, for each argument by name.
            program: which function; may be left out where the module has one entry program.
            more: further inputs whose names are words of Python.

        Raises:
            GraphgenError: GG0202 no such program, GG0705 several and none named, and those of
                :meth:`Function.evaluate`.
        """
        found = self.programs() or list(self.functions.values())
        if not program and len(found) != 1:
            known = ", ".join(function.name for function in found) or "none"
            raise GraphgenError(
                "GG0705", f"@{self.name} has no single program", help=f"program= one of: {known}"
            )
        function = self.function(program) if program else found[0]
        return outputs_of(self, function, {**(inputs or {}), **more})

    def stated_number(self, key: str, default: int) -> int:
        """The whole number under a key of ``meta`` (GG0204 for another text).

        Args:
            key: of ``meta``.
            default: where the key is not there.
        """
        try:
            return whole_number(self.meta.get(key, str(default)), RANKS.most)
        except ValueError as error:
            raise GraphgenError("GG0204", f"meta {key}: {error}") from error

    @property
    def ranks(self) -> int:
        """Number of devices one program runs on."""
        total = 1
        for size in self.mesh.values():
            total *= size
        return total

    def parts(self, row: Entry, dim: int) -> int:
        """Number of ranks that divide dimension ``dim`` of a row of the interface."""
        return prod(self.mesh[axis] for axis in row.sharding.dims[dim]) if row.sharding else 1

    def add(self, function: Function) -> Function:
        """Put a function into the module (GG0107 if its name is taken)."""
        if function.name in self.functions:
            raise GraphgenError("GG0107", f"function @{function.name} is defined twice")
        self.functions[function.name] = function
        return function

    def function(self, name: str) -> Function:
        """The function called ``name`` (GG0202 naming those there are)."""
        found = self.functions.get(name)
        if found is None:
            known = ", ".join(f"@{known}" for known in self.functions)
            raise GraphgenError("GG0202", f"no function @{name}", help=f"the module has {known}")
        return found

    def programs(self) -> list[Function]:
        """The entry programs, in order."""
        return [function for function in self.functions.values() if function.phase]

    def entries(self, role: Role) -> list[Entry]:
        """The interface rows of one role, in order."""
        return [entry for entry in self.interface.values() if entry.role is role]

    def op_count(self) -> int:
        """Number of ops in all functions."""
        return sum(function.block.size for function in self.functions.values())


FlatValue = tuple[TensorType, str | None, Sharding | None, Attrs]
FlatOp = tuple[str, tuple[int, ...], Attrs, Attrs, Loc, Sequence[FlatValue]]
FlatFunction = tuple[
    str,  # the name
    str,  # the phase
    dict[str, Dim],
    Sequence[FlatValue],  # the arguments
    Sequence[FlatOp],
    Sequence[tuple[str, int]],  # the outputs
    Attrs,  # the annotations
]


def flatten(function: Function) -> FlatFunction:
    """The function as names, numbers and what is interned."""
    numbers = {value: index for index, value in enumerate(function.args)}
    ops: list[FlatOp] = []
    for op in function.block:
        operands = tuple([numbers[value] for value in op.operands])
        for result in op.results:
            numbers[result] = len(numbers)
        results = [_flat(value) for value in op.results]
        ops.append((op.name, operands, op.attrs, op.annotations, op.loc, results))
    arguments = [_flat(value) for value in function.args]
    outputs = [(name, numbers[value]) for name, value in function.outputs]
    head = function.name, function.phase, function.dims
    return *head, arguments, ops, outputs, function.annotations


def unflatten(
    name: str,
    phase: str,
    dims: dict[str, Dim],
    arguments: Sequence[FlatValue],
    ops: Sequence[FlatOp],
    outputs: Sequence[tuple[str, int]],
    annotations: Attrs,
) -> Function:
    """The function of which :func:`flatten` gave these fields."""
    made = Function(name, phase, dims)
    made.annotations = annotations
    values: list[Value] = []
    for type_, known_as, layout, noted in arguments:
        values.append(made.block.add_arg(type_, known_as or ""))
        values[-1].sharding, values[-1].annotations = layout, noted
    for op_name, operands, attrs, noted, where, results in ops:
        types, names = [result[0] for result in results], [result[1] for result in results]
        op = Op(op_name, tuple([values[i] for i in operands]), types, attrs, where, names)
        op.annotations = noted
        for value, result in zip(op.results, results, strict=True):
            value.sharding = result[2]
        values += op.results
        made.block.append(op)
    made.outputs = [(key, values[index]) for key, index in outputs]
    return made


def _flat(value: Value) -> FlatValue:
    return value.type, value.name, value.sharding, value.annotations
