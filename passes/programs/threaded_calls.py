"""Calls of functions of one rank one after the other, each with the states the last one left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Role, Value


@dataclass(slots=True)
class ThreadedCalls:
    """Builder of a program of calls; states are threaded from each call to the next.

    Weights, layouts and the first values of states are the program's arguments. The functions are
    those of one rank, copies of programs for example, and may be different ones.

    Attributes:
        builder: at the end of the program.
        module: its interface says which arguments are states.
        states: the latest value of each state, by name; extended by every call.
    """

    builder: Builder
    module: Module
    states: dict[str, Value] = field(default_factory=dict[str, Value])

    def declare_arguments(self, *functions: Function) -> None:
        """Give the program the arguments of functions that it has not yet."""
        program = self.builder.function
        for value in [value for function in functions for value in function.args]:
            if value.name and program.arg(value.name) is None:
                program.block.add_arg(value.type, value.name)

    def call(self, function: Function, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """Append a call.

        Args:
            function: whose arguments and outputs have the names of the interface.
            inputs: by name; what they leave out is an argument of the program.

        Returns:
            The outputs by name, without the states.

        Raises:
            GraphgenError: GG0304 for an argument that neither ``inputs`` nor the program has.
        """
        operands = [self._operand(function, value.name or "", inputs) for value in function.args]
        types = tuple([value.type for _, value in function.outputs])
        made = self.builder.emit("call", operands, {"to_apply": function.name, "results": types})
        given = dict(zip((name for name, _ in function.outputs), made.results, strict=True))
        states = {name for name in given if self._is_state(name)}
        self.states |= {name: given[name] for name in states}
        return {name: value for name, value in given.items() if name not in states}

    def return_states(self) -> None:
        """Let the program return the latest value of every state that a call replaced."""
        for row in self.module.entries(Role.STATE):
            if row.name in self.states:
                self.builder.function.outputs.append((row.name, self.states[row.name]))

    def _operand(self, function: Function, name: str, inputs: Mapping[str, Value]) -> Value:
        found = inputs.get(name) or self.states.get(name) or self.builder.function.arg(name)
        if found is None:
            raise GraphgenError("GG0304", f"@{function.name} reads {name}, which nothing gives it")
        return found

    def _is_state(self, name: str) -> bool:
        row = self.module.interface.get(name)
        return row is not None and row.role is Role.STATE
