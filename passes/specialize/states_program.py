"""A module with one program over the states of another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Function, Module, Role


@dataclass(frozen=True, slots=True)
class StatesProgram:
    """A program of its own for the states of a module, which keep their representations.

    Attributes:
        name: of the program.
        phase: of the program.
        level: of the module.
    """

    name: str
    phase: str
    level: str

    def made(self, module: Module, build: Callable[[Builder], None]) -> Module:
        """The module.

        Args:
            module: its states and layouts are the new one's, with the functions ``pack`` and
                ``unpack``, so that the two may be compared in logical terms.
            build: appends the program.
        """
        made = Module(f"{module.name}.{self.name}", self.level, dict(module.mesh))
        entries = (*module.entries(Role.STATE), *module.entries(Role.LAYOUT))
        for name in sorted({name for row in entries for name in (row.pack, row.unpack)} - {""}):
            made.add(module.function(name))
        with Builder(made.add(Function(self.name, self.phase)), made) as b:
            build(b)
        for row in entries:
            made.interface[row.name] = row
        return made
