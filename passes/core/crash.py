"""Crash guard: a failing pass leaves a reproducer folder for ``graphgen repro DIR``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Function, Loc, Module, Op, Sharding, TensorType, Value
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.settings import OFF, Debugging, Verify

_Value = tuple[Value, TensorType, str | None, Sharding | None]
_Op = tuple[str, tuple[Value, ...], Attrs, Loc, Sequence[_Value]]


class Snapshot:
    """Lazy copy of a module: cheap to record, rebuilt on demand.

    It records ops and values as tuples, ten times cheaper than a clone of the graph.

    Args:
        module: recorded as it is now; it may be changed afterwards.
    """

    def __init__(self, module: Module) -> None:
        interface, meta = dict(module.interface), dict(module.meta)
        self._head = Module(module.name, module.level, dict(module.mesh), {}, interface, meta)
        self._functions = [_FunctionRecord(function) for function in module.functions.values()]

    def module(self) -> Module:
        """A new module, as the recorded one was."""
        head = self._head
        made = Module(head.name, head.level, dict(head.mesh), {}, {}, dict(head.meta))
        made.interface.update(head.interface)
        for record in self._functions:
            made.add(record.function())
        return made


class _FunctionRecord:
    """Record of one function."""

    __slots__ = ("args", "dims", "name", "ops", "outputs", "phase")

    def __init__(self, function: Function) -> None:
        self.name, self.phase, self.dims = function.name, function.phase, dict(function.dims)
        self.args = [_value(value) for value in function.args]
        self.ops: list[_Op] = [
            (op.name, op.operands, op.attrs, op.loc, [_value(value) for value in op.results])
            for op in function.block
        ]
        self.outputs = list(function.outputs)

    def function(self) -> Function:
        made = Function(self.name, self.phase, dict(self.dims))
        mapping: dict[Value, Value] = {}
        for value, type_, name, sharding in self.args:
            mapping[value] = made.block.add_arg(type_, name or "")
            mapping[value].sharding = sharding
        for op_name, operands, attrs, where, results in self.ops:
            types, names = [record[1] for record in results], [record[2] for record in results]
            read = tuple([mapping[value] for value in operands])
            op = Op(op_name, read, types, attrs, where, names)
            made.block.append(op)
            for (old, _, _, sharding), new in zip(results, op.results, strict=True):
                mapping[old] = new
                new.sharding = sharding
        made.outputs = [(name, mapping[value]) for name, value in self.outputs]
        return made


def _value(value: Value) -> _Value:
    return value, value.type, value.name, value.sharding


@dataclass(slots=True)
class Crash:
    """Everything that replays a failing pipeline.

    Attributes:
        start: the module before the first pass.
        passes: the pipeline.
        verify: depth of the checks after each pass.
        number: index of the running pass, from 0; ``None`` in between.
        fuel: number of rewrites that pass may make, ``None`` for no limit.
    """

    start: Snapshot
    passes: Sequence[Pass]
    verify: Verify
    number: int | None = None
    fuel: int | None = None

    def enter(self, number: int, fuel: int | None) -> None:
        """Record that a pass begins."""
        self.number, self.fuel = number, fuel

    def leave(self) -> None:
        """Record that the pass has ended and its result has been checked."""
        self.number = None


# (crash, folder, error) -> the reproducer's folder.
ReproducerWriter = Callable[[Crash, str, Exception], Path]
_WRITERS: list[ReproducerWriter] = []


def register_reproducer(write: ReproducerWriter) -> None:
    """Register the function that writes reproducers; it lives above this package."""
    _WRITERS[:] = [write]


@contextmanager
def guarded(
    module: Module, passes: Sequence[Pass], settings: Debugging, verify: Verify
) -> Generator[Crash | None]:
    """Write a reproducer for a pass that fails inside; the error's help says how to replay it.

    None is written for a bad option (GG0302).

    Args:
        module: as it is before the first pass.
        passes: the pipeline.
        settings: names the folder of reproducers.
        verify: depth of the checks after each pass.
    """
    if settings.crash == OFF:
        yield None
        return
    crash = Crash(Snapshot(module), passes, verify)
    try:
        yield crash
    except MemoryError:
        raise
    except Exception as error:
        if crash.number is not None and not _is_of_user(error):
            _leave(crash, settings.crash, error)
        raise


def _is_of_user(error: Exception) -> bool:
    """True for a value of an option: the error says what to change, and nothing has failed."""
    return isinstance(error, GraphgenError) and error.code == "GG0302"


def _leave(crash: Crash, folder: str, error: Exception) -> None:
    """Write the reproducer; a full disk must not hide the error itself."""
    try:
        command = f"graphgen repro {quote(str(_WRITERS[0](crash, folder, error)))}"
    except (GraphgenError, OSError) as trouble:
        command = f"no reproducer was written: {getattr(trouble, 'what', trouble)}"
    if isinstance(error, GraphgenError):
        error.help = f"{error.help}\n  help: {command}" if error.help else command
    else:
        error.add_note(command)
