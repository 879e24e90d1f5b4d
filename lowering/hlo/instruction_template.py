"""Instruction templates: the HLO instructions of one op, without names and ids.

A template depends on an op's attributes and types alone, so that repeated layers share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import DType, Literal
from graphgen.lowering.hlo_proto.shape import HloShape


@dataclass(frozen=True, slots=True)
class Reducer:
    """A computation of two scalars: ``opcode(lhs, rhs)``, or ``rhs`` for ``assign``."""

    opcode: str
    dtype: DType

    @property
    def name(self) -> str:
        """The name of the computation."""
        return f"{self.opcode}.{self.dtype.name}"


@dataclass(frozen=True, slots=True)
class Comparator:
    """A computation of two scalars per operand: ``compare(lhs0, rhs0, direction)``.

    Attributes:
        direction: ``LT`` or ``GT``, of the first operand's scalars.
        dtypes: of the operands.
        total: floats are compared in total order.
    """

    direction: str
    dtypes: tuple[DType, ...]
    total: bool = True

    @property
    def name(self) -> str:
        """The name of the computation."""
        order = [] if self.total else ["plain"]
        return ".".join(["compare", self.direction, *order, *[d.name for d in self.dtypes]])


@dataclass(frozen=True, slots=True)
class Callee:
    """A function of the module as a computation.

    Attributes:
        function: its name.
        takes_tuple: its parameter is the tuple of the arguments, as in loops and conditionals.
        gives_tuple: its result is a tuple, also of one output.
    """

    function: str
    takes_tuple: bool = False
    gives_tuple: bool = False


@dataclass(frozen=True, slots=True)
class Subcomputation:
    """Computations of an opaque instruction, which calls the last of them.

    Attributes:
        data: from :func:`graphgen.lowering.hlo.subcomputations.pack`.
    """

    data: str


# Computations that an instruction calls.
Called = Reducer | Comparator | Callee | Subcomputation


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of an earlier step of the same template."""

    step: int


# The index of an operand of the op, the result of an earlier step, or a constant.
Operand = int | StepResult | Literal


@dataclass(frozen=True, slots=True)
class TemplateStep:
    """One instruction.

    Attributes:
        opcode: HLO's name of it.
        shape: of its result.
        operands: in order.
        fields: its own fields of the protobuf before the ids, encoded.
        more: its own fields after the ids, encoded.
        calls: the computations it calls.
    """

    opcode: str
    shape: HloShape
    operands: tuple[Operand, ...] = ()
    fields: bytes = b""
    more: bytes = b""
    calls: tuple[Called, ...] = ()


@dataclass(frozen=True, slots=True)
class InstructionTemplate:
    """The instructions of an op, in order.

    Attributes:
        steps: the instructions.
        results: per result of the op, the step whose value it is.
    """

    steps: tuple[TemplateStep, ...]
    results: tuple[int, ...]

    def result_of(self, step: int) -> int | None:
        """The index of the op's result that is the value of ``step``, or ``None``."""
        return self.results.index(step) if step in self.results else None
