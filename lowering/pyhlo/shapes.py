"""Element types, shapes and values of a PyHLO program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Protocol, SupportsIndex

from graphgen.build.source_location import user_loc
from graphgen.errors import GraphgenError
from graphgen.ir import DType, TensorType, Value, dtype, tensor
from graphgen.lowering.hlo_proto.shape import HloShape, shape_of
from graphgen.lowering.pyhlo.module_proto import ShapeProto, shape_proto


def mistake(code: str, what: str, note: str = "", help: str = "") -> GraphgenError:
    """Make an error at the user's line."""
    return GraphgenError(code, what, where=repr(user_loc("")), note=note, help=help)


class InstructionWriter(Protocol):
    """Writer of a program's instructions."""

    @property
    def tuple(self) -> Element:
        """Makes tuple shapes of the shapes it is called with."""
        ...

    def emit(
        self,
        name: str,
        stated: PyHloShape,
        operands: Sequence[PyHloValue],
        attrs: Mapping[str, object],
    ) -> PyHloValue:
        """Append an op."""
        ...

    def alias(self, output: PyHloValue, parameter: PyHloValue, must: bool) -> None:
        """Let an output take over the buffer of a parameter."""
        ...


class PyHloShape:
    """A shape of an element type; calling an op on it states the result of that op.

    Attributes:
        dtype: the element type.
        sizes: sizes of the dimensions, ``()`` for a scalar.
        members: shapes of the elements of a tuple, ``None`` for an array.
        scribe: the writer of the program.
    """

    def __init__(
        self,
        scribe: InstructionWriter,
        sizes: Sequence[int],
        members: Sequence[PyHloShape] | None = None,
    ) -> None:
        self.scribe = scribe
        self.sizes = tuple(sizes)
        self.members = None if members is None else tuple(members)
        self.dtype: Element = scribe.tuple

    @property
    def type(self) -> TensorType:
        """The type in the IR; not of a tuple."""
        return tensor(self.dtype.element, self.sizes)

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of the elements of a tuple, or of the only array."""
        if self.members is None:
            return (self.type,)
        return tuple(type_ for member in self.members for type_ in member.types)

    @property
    def text(self) -> str:
        """``f32[2,3]`` or ``(f32[2], s32[])``."""
        if self.members is None:
            return self.type.text
        return f"({', '.join(member.text for member in self.members)})"

    @property
    def shape_proto(self) -> ShapeProto:
        """The fields of protobuf's ShapeProto; of an element type those of a scalar."""
        return shape_proto(self.layout)

    @property
    def layout(self) -> HloShape:
        """The shape as HLO has it, row-major."""
        if self.members is None:
            return shape_of(self.type)
        return HloShape("tuple", members=tuple([member.layout for member in self.members]))

    def __getattr__(self, name: str) -> Callable[..., PyHloValue]:
        if not name[:1].isupper():
            raise AttributeError(f"a PyHLO shape has no attribute '{name}'")

        def op(*operands: PyHloValue, **attrs: object) -> PyHloValue:
            return self.scribe.emit(name, self, operands, attrs)

        return op

    def __repr__(self) -> str:
        return self.text


class Element(PyHloShape):
    """An element type, which is the scalar shape of it; the ``tuple`` one makes tuple shapes."""

    def __init__(self, scribe: InstructionWriter, name: str) -> None:
        self.name = name
        self.scribe = scribe
        self.sizes = ()
        self.members = None
        self.dtype = self

    @property
    def element(self) -> DType:
        """The element type of the IR (GG0101 where it has none)."""
        return dtype(self.name)

    def __getitem__(self, sizes: SupportsIndex | Iterable[SupportsIndex]) -> PyHloShape:
        several = sizes if isinstance(sizes, Iterable) else (sizes,)
        given = tuple([index(size) for size in several])
        for size in given:
            if size < 0:
                raise mistake("GG0102", f"negative size {size} in {self.name}{list(given)}")
        shape = PyHloShape.__new__(PyHloShape)
        shape.scribe, shape.sizes, shape.members, shape.dtype = self.scribe, given, None, self
        return shape

    def __call__(self, *shapes: PyHloShape) -> PyHloShape:
        """The shape of a tuple of these (GG0105 for another element type than ``tuple``)."""
        if self.name != "tuple":
            raise mistake("GG0105", f"{self.name} holds no shapes", help="write scribe.tuple(...)")
        return PyHloShape(self.scribe, (), shapes)

    def __repr__(self) -> str:
        return self.name


class PyHloValue(PyHloShape):
    """The value of an instruction.

    Attributes:
        values: its values in the IR; several for a tuple.
        parameter: the number of a parameter, ``None`` for any other instruction.
    """

    def __init__(
        self, stated: PyHloShape, values: Sequence[Value], parameter: int | None = None
    ) -> None:
        self.scribe, self.sizes, self.members = stated.scribe, stated.sizes, stated.members
        self.dtype = stated.dtype
        self.values = tuple(values)
        self.parameter = parameter

    @property
    def value(self) -> Value:
        """The array (GG0105 for a tuple)."""
        if self.members is not None:
            raise mistake("GG0105", f"{self.text} is a tuple", help="take an element out of it")
        return self.values[0]

    def get_tuple_element(self, index: int) -> PyHloShape:
        """The shape of one element; ``GetTupleElement`` makes the instruction."""
        members = self.members or ()
        if not 0 <= index < len(members):
            raise mistake("GG0105", f"there is no element {index} in {self.text}")
        return members[index]

    def set_alias_to(self, parameter: PyHloValue, must: bool = False) -> None:
        """Let this output take over the buffer of ``parameter``, which becomes a state."""
        self.scribe.alias(self, parameter, must)
