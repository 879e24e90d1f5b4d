"""Functions that passes make for loops and choices; equal ones are shared, as layers repeat."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphgen.ir import Function, Module
from graphgen.text import print_function


@dataclass(slots=True)
class SharedFunctions:
    """Functions for the ops of a module that run others.

    Attributes:
        module: gets them, before the functions that it has.
    """

    module: Module
    _names: dict[str, str] = field(default_factory=dict[str, str])
    _made: dict[str, Function] = field(default_factory=dict[str, Function])

    def add(self, name: str, function: Function) -> str:
        """The name, ``name`` with a number, of this function or of an equal one.

        Args:
            name: says what it is for.
            function: is given the name; the functions that it runs have been added.
        """
        function.name = name
        text = print_function(function, locs=False)
        if text not in self._names:
            taken, number = set(self.module.functions), 1
            while f"{name}.{number}" in taken:
                number += 1
            function.name = self._names[text] = f"{name}.{number}"
            # There at once, for checks of the op that runs it; last, since put_first orders them.
            self._made[function.name] = self.module.functions[function.name] = function
        return self._names[text]

    def put_first(self) -> list[Function]:
        """Move the new functions before the others of the module, and return them."""
        made, self._made = self._made, {}
        self.module.functions = {**made, **self.module.functions}
        return list(made.values())
