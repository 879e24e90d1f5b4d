"""What becomes of one op: the HLO instructions it is written as, with everything but names and ids.

A recipe depends on an op's attributes and types alone, so layers that repeat share it.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import DType, Literal
from graphgen.lowering.hlo.proto.shape import HloShape


@dataclass(frozen=True, slots=True)
class Reducer:
    """A sub-computation of two scalars: ``assign`` gives the second, anything else combines."""

    opcode: str
    dtype: DType

    @property
    def name(self) -> str:
        """What the computation is called."""
        return f"{self.opcode}.{self.dtype.name}"


@dataclass(frozen=True, slots=True)
class Comparator:
    """A sub-computation of two scalars an operand: whether the first ``direction`` the second.

    Attributes:
        direction: ``LT`` or ``GT``, of the first operand's scalars; floats in total order.
        dtypes: of the operands.
    """

    direction: str
    dtypes: tuple[DType, ...]

    @property
    def name(self) -> str:
        """What the computation is called."""
        return ".".join(["compare", self.direction, *[dtype.name for dtype in self.dtypes]])


@dataclass(frozen=True, slots=True)
class Callee:
    """A function of the module that an instruction calls.

    Attributes:
        function: its name.
        takes_tuple: its operands come as one tuple, as loops and choices hand them over.
        gives_tuple: its results leave as a tuple, also where there is only one.
    """

    function: str
    takes_tuple: bool = False
    gives_tuple: bool = False


@dataclass(frozen=True, slots=True)
class Subcomputation:
    """Computations that came with an opaque instruction; the last of them is what it calls.

    Attributes:
        data: as :func:`graphgen.lowering.hlo.dialect.subcomputations.pack` makes it.
    """

    data: str


# What an instruction may call.
Called = Reducer | Comparator | Callee | Subcomputation


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of an earlier step of the same recipe."""

    step: int


# The op's operand of this number, an earlier step's result, or a constant.
Operand = int | StepResult | Literal


@dataclass(frozen=True, slots=True)
class TemplateStep:
    """One instruction.

    Attributes:
        opcode: HLO's name of it.
        shape: of its result.
        operands: what it reads.
        fields: its own fields of the protobuf, encoded: those before the ids.
        more: those behind the ids.
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
        results: for each result of the op, the step that makes it.
    """

    steps: tuple[TemplateStep, ...]
    results: tuple[int, ...]

    def result_of(self, step: int) -> int | None:
        """Which result of the op a step makes, ``None`` where it makes none."""
        return self.results.index(step) if step in self.results else None
