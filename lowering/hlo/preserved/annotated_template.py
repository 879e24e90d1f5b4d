"""Instruction templates with the annotations of an op: its fields, shape and opcode as read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.errors import GraphgenError
from graphgen.ir import Op
from graphgen.lowering.hlo.dialect.instruction_template import (
    InstructionTemplate,
    StepResult,
    TemplateStep,
)
from graphgen.lowering.hlo.preserved.hlo_annotations import (
    element,
    encode_annotations,
    stated_shape,
)
from graphgen.lowering.hlo.preserved.written_as import written_as
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.shape import HloShape
from graphgen.lowering.hlo.proto.wire import Message

_ELEMENT = "get-tuple-element"


def annotated(
    op: Op, template: InstructionTemplate, operands: Sequence[HloShape]
) -> InstructionTemplate:
    """A template with the annotations of an op on its instruction, and on elements of its tuple.

    Args:
        op: the op.
        template: its instructions.
        operands: shapes of its operands as written.

    Raises:
        GraphgenError: GG0401 for annotations that do not fit the op, with its place.
    """
    try:
        return _annotated(op, template, operands)
    except GraphgenError as error:
        error.where = error.where or repr(op.loc)
        error.what = f"%{op.results[0].name or '-'}: {error.what}"
        raise


def _annotated(
    op: Op, template: InstructionTemplate, operands: Sequence[HloShape]
) -> InstructionTemplate:
    steps = list(template.steps)
    main = max(place for place, step in enumerate(steps) if step.opcode != _ELEMENT)
    step = steps[main]
    shape = stated_shape(op.annotations, step.shape)
    code = written_as(op, operands[0] if operands else None, shape) or step.opcode
    noted = encode_annotations(_own(op))
    if code == step.opcode:
        steps[main] = replace(step, shape=shape, more=step.more + noted)
    else:
        # The fields are those of the op's own opcode, such as a permutation.
        steps[main] = replace(step, opcode=code, shape=shape, fields=b"", more=noted)
    for place in range(main + 1, len(steps)):
        steps[place] = _element(op, template, steps, place)
    return InstructionTemplate(tuple(steps), template.results)


def _own(op: Op) -> dict[str, object]:
    """The annotations that are not of an element of its tuple."""
    return {key: text for key, text in op.annotations.items() if not key.startswith("hlo.element")}


def _element(
    op: Op, template: InstructionTemplate, steps: Sequence[TemplateStep], place: int
) -> TemplateStep:
    """A step that takes an element out of a tuple, with the element's shape as it is there."""
    step = steps[place]
    source = step.operands[0]
    shape = step.shape
    if isinstance(source, StepResult):
        index = Message(step.fields).integer(InstructionField.TUPLE_INDEX)
        shape = steps[source.step].shape.members[index]
    which = template.result_of(place)
    noted = {} if which is None else element(op.annotations, f"element{which}")
    return replace(
        step, shape=stated_shape(noted, shape), more=step.more + encode_annotations(noted)
    )
