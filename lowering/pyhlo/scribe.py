"""The scribe: what a PyHLO function is given, and where its instructions go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Value
from graphgen.ir.dtype import DTYPES
from graphgen.lowering.pyhlo.given import Given
from graphgen.lowering.pyhlo.shapes import Element, Result, Shape, mistake

# PrimitiveType's names in lower case; those that the IR has no values of are named when used.
NAMES = (*DTYPES, "c128", "token", "opaque_type")


class Trace:
    """One computation being written.

    Attributes:
        function: what it becomes.
        b: appends to it.
        parameters: in order.
    """

    def __init__(self, scribe: Scribe, name: str) -> None:
        self.scribe = scribe
        self.function = Function(name)
        self.b = Builder(self.function)
        self.parameters: list[Result] = []

    def parameter(self, stated: Shape, number: int) -> Result:
        """The next parameter (GG0705 out of order)."""
        wanted = len(self.parameters)
        if number != wanted:
            what = f"parameter {number} is made where parameter {wanted} is next"
            raise mistake("GG0705", what, help="parameters are made in order")
        block, name = self.function.block, f"p{number}"
        if stated.members is None:
            values = [block.add_arg(stated.type, name)]
        else:
            types = enumerate(stated.types)
            values = [block.add_arg(type_, f"{name}.{index}") for index, type_ in types]
        made = Result(stated, values, number)
        self.parameters.append(made)
        return made


class Scribe:
    """Has every element type as an attribute (``scribe.f32``); writes what ops are called on them.

    Attributes:
        module: what is being made.
        traces: the computations being written, the innermost last.
        aliases: parameter number by output value.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.traces: list[Trace] = []
        self.aliases: dict[Value, int] = {}
        self.key: Value | None = None
        self.streams = 0
        self._elements = {name: Element(self, name) for name in (*NAMES, "tuple")}

    @property
    def tuple(self) -> Element:
        """Makes tuple shapes of the shapes it is called with."""
        return self._elements["tuple"]

    @property
    def trace(self) -> Trace:
        """The computation being written."""
        return self.traces[-1]

    def get_dtype(self, name: str) -> Element:
        """The element type of this name (GG0101)."""
        found = self._elements.get(name)
        if found is None:
            raise mistake("GG0101", f"unknown dtype '{name}'", help=f"known: {', '.join(NAMES)}")
        return found

    def __getattr__(self, name: str) -> Element:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get_dtype(name)

    def write(self, name: str, body: Callable[[Scribe], Result]) -> tuple[Trace, Result]:
        """Run ``body`` into a computation of its own: the computation, and its root."""
        trace = Trace(self, name)
        self.traces.append(trace)
        try:
            root = body(self)
        finally:
            self.traces.pop()
        if not isinstance(root, Result):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphgenError("GG0705", f"{name} returns {root!r}, not a value")
        return trace, root

    def emit(
        self, name: str, stated: Shape, operands: Sequence[Result], attrs: Mapping[str, object]
    ) -> Result:
        """Append an op.

        Raises:
            GraphgenError: GG0103 unknown, GG0104 attributes, GG0105 operands, GG0203 where the
                stated shape is not what the operands give; all at the user's line.
        """
        from graphgen.lowering.pyhlo.ops import written

        given = Given(name, attrs)
        for operand in operands:
            if not isinstance(operand, Result):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise mistake("GG0105", f"{name}: {operand!r} is no value")
        made = written(name)(self.trace, stated, operands, given)
        given.finish()
        if isinstance(made, Result):
            return made
        types = tuple([value.type for value in made])
        if types != stated.types:
            inferred = ", ".join([type_.text for type_ in types])
            inferred = inferred if stated.members is None else f"({inferred})"
            texts = ", ".join([operand.text for operand in operands])
            raise mistake(
                "GG0203",
                f"{name} states {stated.text}, but its operands give {inferred}",
                note=f"{stated.text}.{name}({texts})",
            )
        return Result(stated, made)

    def alias(self, output: Result, parameter: Result, must: bool) -> None:
        """See :meth:`Result.set_alias_to`."""
        if parameter.parameter is None:
            raise mistake("GG0705", f"{parameter.text} is no parameter", help="alias to one")
        if output.type is not parameter.type:
            what = f"{output.text} cannot take over the buffer of {parameter.text}"
            raise mistake("GG0203", what)
        self.aliases[output.value] = parameter.parameter
