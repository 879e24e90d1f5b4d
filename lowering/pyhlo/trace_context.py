"""The scribe, the argument of a PyHLO function: it writes the instructions of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Value
from graphgen.ir.dtype import DTYPES
from graphgen.lowering.pyhlo.attributes import AttrReader
from graphgen.lowering.pyhlo.shapes import Element, PyHloShape, PyHloValue, mistake

# Names of PrimitiveType in lower case; one that the IR does not have is an error when used.
NAMES = (*DTYPES, "c128", "token", "opaque_type")


class ComputationTrace:
    """One computation being written.

    Attributes:
        function: the function it becomes.
        b: the builder of ``function``.
        parameters: the parameters in order.
    """

    def __init__(self, scribe: TraceContext, name: str) -> None:
        self.scribe = scribe
        self.function = Function(name)
        self.b = Builder(self.function)
        self.parameters: list[PyHloValue] = []

    def parameter(self, stated: PyHloShape, number: int) -> PyHloValue:
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
        made = PyHloValue(stated, values, number)
        self.parameters.append(made)
        return made


@dataclass(frozen=True, slots=True)
class PyHloCall:
    """One op as it is called.

    Attributes:
        trace: the computation to write it into.
        stated: the shape on which it is called.
        operands: its operands.
        attrs: its attributes.
    """

    trace: ComputationTrace
    stated: PyHloShape
    operands: Sequence[PyHloValue]
    attrs: AttrReader

    @property
    def b(self) -> Builder:
        """The builder of the computation."""
        return self.trace.b

    def values(self, count: int) -> list[Value]:
        """The operands (GG0105 unless there are ``count``)."""
        if len(self.operands) != count:
            what = f"{self.attrs.op} takes {count} operands, got {len(self.operands)}"
            raise mistake("GG0105", what)
        return [item.value for item in self.operands]


# -> the values of the op of this name, or a value as it is.
WriteOp = Callable[[str, PyHloCall], "Sequence[Value] | PyHloValue"]


class TraceContext:
    """Writer of a program, with every element type as an attribute (``scribe.f32``).

    Args:
        module: the module being built.
        ops: writes an op by its name (GG0103); see :mod:`~graphgen.lowering.pyhlo.dialect`.

    Attributes:
        traces: the computations being written, the innermost last.
        aliases: parameter number by output value.
        key: the argument of random numbers, if the program draws any.
        streams: the number of draws so far.
    """

    def __init__(self, module: Module, ops: WriteOp) -> None:
        self.module = module
        self._write_op = ops
        self.traces: list[ComputationTrace] = []
        self.aliases: dict[Value, int] = {}
        self.key: Value | None = None
        self.streams = 0
        self._elements = {name: Element(self, name) for name in (*NAMES, "tuple")}

    @property
    def tuple(self) -> Element:
        """Makes tuple shapes of the shapes it is called with."""
        return self._elements["tuple"]

    @property
    def trace(self) -> ComputationTrace:
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

    def write(
        self, name: str, body: Callable[[TraceContext], PyHloValue]
    ) -> tuple[ComputationTrace, PyHloValue]:
        """Run ``body`` into a new computation; returns the computation and its root."""
        trace = ComputationTrace(self, name)
        self.traces.append(trace)
        try:
            root = body(self)
        finally:
            self.traces.pop()
        if not isinstance(root, PyHloValue):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphgenError("GG0705", f"{name} returns {root!r}, not a value")
        return trace, root

    def emit(
        self,
        name: str,
        stated: PyHloShape,
        operands: Sequence[PyHloValue],
        attrs: Mapping[str, object],
    ) -> PyHloValue:
        """Append an op.

        Raises:
            GraphgenError: GG0103 unknown, GG0104 attributes, GG0105 operands, GG0203 where the
                stated shape differs from that of the operands; all at the user's line.
        """
        attributes = AttrReader(name, attrs)
        for operand in operands:
            if not isinstance(operand, PyHloValue):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise mistake("GG0105", f"{name}: {operand!r} is not a value")
        made = self._write_op(name, PyHloCall(self.trace, stated, operands, attributes))
        attributes.finish()
        if isinstance(made, PyHloValue):
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
        return PyHloValue(stated, made)

    def alias(self, output: PyHloValue, parameter: PyHloValue, must: bool) -> None:
        """See :meth:`PyHloValue.set_alias_to`."""
        if parameter.parameter is None:
            raise mistake("GG0705", f"{parameter.text} is not a parameter", help="alias to one")
        if output.type is not parameter.type:
            what = f"{output.text} cannot take over the buffer of {parameter.text}"
            raise mistake("GG0203", what)
        self.aliases[output.value] = parameter.parameter
