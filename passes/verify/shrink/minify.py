"""The smallest module that still fails: programs, layers, outputs, ops, dimensions, attributes.

The failure is defined by a check, any function of a module. It is asked about smaller and smaller
modules, and whatever still fails is gone on with, so that every step is sure although none is
derived. Halves are tried before quarters, down to single things (delta debugging, Zeller 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from graphgen.analysis.layers import scope_of
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.ir.clone import clone_module
from graphgen.ops import InferError, verify
from graphgen.passes.verify.shrink.reduce import (
    Edit,
    as_inputs,
    bypassed,
    edited,
    inputs_at,
    outputs_at,
    plain_attrs,
    resized,
    without_layers,
    without_meta,
    without_outputs,
    without_programs,
)

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
