"""Compiler of a PyHLO function to a module, and to the HLO protobuf for neuronx-cc."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import MAIN, Function, Module, Role, Value, entry
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.pyhlo.dialect import write_op
from graphgen.lowering.pyhlo.module_proto import ModuleProto
from graphgen.lowering.pyhlo.shapes import PyHloValue
from graphgen.lowering.pyhlo.trace_context import ComputationTrace, TraceContext
from graphgen.ops import verify

KEY = "rng_key"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A PyHLO program.

    Attributes:
        module: one program in the IR, at level ``logical``, or ``sharded`` where ranks talk.
    """

    module: Module

    @property
    def program(self) -> Function:
        """The program."""
        (found,) = self.module.programs()
        return found

    @property
    def module_proto(self) -> ModuleProto:
        """The HLO protobuf for neuronx-cc."""
        return ModuleProto(emit_hlo(self.module, self.program), self.module.name)


class HloScribe:
    """The compiler under the name and in the form in which the original has it.

    ``HloScribe(serialize)(function).module_proto`` is the protobuf.

    Args:
        serialize: the original's writer of constants that are tensors of a framework. It is not
            called: constants of every library and every element type are written here.
    """

    def __init__(self, serialize: Callable[..., object] | None = None) -> None:
        self.serialize = serialize

    def __call__(self, function: Callable[[TraceContext], PyHloValue]) -> Compiled:
        """Compile a function, as :func:`compile_py_func` does."""
        return compile_py_func(function)


def compile_py_func(function: Callable[[TraceContext], PyHloValue]) -> Compiled:
    """Compile a Python function of a scribe.

    Inputs are called ``p0``, ``p1``, ...; outputs ``out0``, ``out1``, and so on. An output that
    takes over the buffer of a parameter is a state with the parameter's name. A program that draws
    random numbers has one more input after the others: ``rng_key``, u32[2].

    Raises:
        GraphgenError: a mistake of the function, at its line.
    """
    name = getattr(function, "__name__", "program")
    camel = "".join(part.capitalize() for part in re.split(r"\W|_", name) if part) or "Program"
    module = Module(camel)
    scribe = TraceContext(module, write_op)
    trace, root = scribe.write(name, function)
    entered = _entered(module, scribe, trace, root)
    module.name = f"{camel}.{module.op_count()}"
    _mesh(module)
    verify(module)
    assert entered.phase
    return Compiled(module)


def _entered(
    module: Module, scribe: TraceContext, trace: ComputationTrace, root: PyHloValue
) -> Function:
    function = trace.function
    function.phase = MAIN
    module.add(function)
    states = {f"p{number}" for number in scribe.aliases.values()}
    if scribe.key is not None:
        # It is appended where it is first used; the last input of the program.
        function.block.keep_args([*[v for v in function.args if v is not scribe.key], scribe.key])
    for value in function.args:
        name = value.name or ""
        role = Role.STATE if name in states else Role.INPUT
        module.interface[name] = entry(role, name, value.type)
    outputs: list[tuple[str, Value]] = []
    for index, value in enumerate(root.values):
        number = scribe.aliases.pop(value, None)
        if number is None:
            module.interface[f"out{index}"] = entry(Role.OUTPUT, f"out{index}", value.type)
        outputs.append((f"out{index}" if number is None else f"p{number}", value))
    if scribe.aliases:
        what = "the value that aliases the buffer of a parameter is not an output"
        raise GraphgenError("GG0705", what, help="alias the root, or an operand of its tuple")
    function.outputs = outputs
    return function


def _mesh(module: Module) -> None:
    """Set the mesh from the ranks of the collectives."""
    ranks = [
        rank
        for function in module.functions.values()
        for op in function.block
        if "replica_groups" in op.attrs
        for group in op.attrs.groups("replica_groups")
        for rank in group
    ]
    if ranks:
        module.mesh["tp"] = max(ranks) + 1
        module.level = "sharded"
