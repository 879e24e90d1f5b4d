"""Tuples returned by opaque instructions: extract elements, or pass on the whole tuple.

A done instruction reads the whole tuple of its start instruction, and XLA accepts no copy of that
tuple: members in order, all from one instruction, are the instruction itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphgen.ir import Op, Value
from graphgen.lowering.hlo.dialect.instruction_template import (
    InstructionTemplate,
    StepResult,
    TemplateStep,
)
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.shape import HloShape
from graphgen.lowering.hlo.proto.wire import Message

ELEMENT = "get-tuple-element"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the tuple of one instruction.

    Attributes:
        source: id of the instruction.
        shape: of the part.
        path: index in the tuple, index in the tuple there, and so on; empty for all of it.
    """

    source: int
    shape: HloShape
    path: tuple[int, ...] = ()


def opened(template: InstructionTemplate) -> int | None:
    """The step whose tuple the steps after it take apart; ``None`` without such steps."""
    steps = template.steps
    if not steps or steps[-1].opcode != ELEMENT:
        return None
    return max(place for place, step in enumerate(steps) if step.opcode != ELEMENT)


def parts_of(
    op: Op, template: InstructionTemplate, whole: Part
) -> Iterator[tuple[Value, Part, TemplateStep]]:
    """Each result of an op with its place in the tuple ``whole`` and the step that takes it out."""
    for result, at in zip(op.results, template.results, strict=True):
        step = template.steps[at]
        yield result, Part(whole.source, step.shape, _path(template, at)), step


def _path(template: InstructionTemplate, at: int) -> tuple[int, ...]:
    path: list[int] = []
    step = template.steps[at]
    while step.opcode == ELEMENT:
        path.insert(0, Message(step.fields).integer(InstructionField.TUPLE_INDEX))
        (source,) = step.operands
        assert isinstance(source, StepResult)
        step = template.steps[source.step]
    return tuple(path)


def stem_of(op: Op) -> str:
    """The name of an instruction by its results: those that nothing renamed are ``stem.index``."""
    for index, value in enumerate(op.results):
        name = value.name or ""
        if name.endswith(f".{index}"):
            return name.removesuffix(f".{index}")
    return ""


def joined(parts: Sequence[Part | int], wholes: dict[int, HloShape]) -> Part | None:
    """The tuple that ``parts`` are the members of, all of them in order; ``None`` for none.

    Args:
        parts: parts of tuples, and ids of other values.
        wholes: the shapes of the instructions that parts are of, by their ids.
    """
    first = parts[0] if parts else 0
    if isinstance(first, int):
        return None
    path = first.path[:-1]
    shape = wholes[first.source]
    for index in path:
        shape = shape.members[index]
    wanted = [(first.source, (*path, index)) for index in range(len(shape.members))]
    given = [(part.source, part.path) if isinstance(part, Part) else None for part in parts]
    return Part(first.source, shape, path) if given == wanted else None
