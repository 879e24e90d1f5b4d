"""Emits functions and their callees as HLO computations, callees before callers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from graphgen.analysis.annotation_diff import CONTROL, control_edges
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Literal, Loc, Module, Op, TensorType, Value, tensor
from graphgen.ir.loc import UNKNOWN
from graphgen.ir.names import claim_name
from graphgen.lowering.abi import donated
from graphgen.lowering.hlo.annotations import (
    OPCODE,
    element,
    encode_annotations,
    stated_shape,
    tuple_shape,
)
from graphgen.lowering.hlo.dialect import BY_OP
from graphgen.lowering.hlo.instruction_template import (
    Called,
    Callee,
    Comparator,
    InstructionTemplate,
    Operand,
    Reducer,
    StepResult,
    Subcomputation,
    TemplateStep,
)
from graphgen.lowering.hlo.op_row import write_op
from graphgen.lowering.hlo.scalar_computations import write_comparator, write_reducer
from graphgen.lowering.hlo.subcomputations import write_subcomputation
from graphgen.lowering.hlo.written_as import written_as
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField
from graphgen.lowering.hlo_proto.instruction import (
    ALIASED,
    INPUT_NAMES,
    OUTPUT_NAMES,
    Chunk,
    metadata_of,
    shapes_of_computation,
    write_frontend_attributes,
)
from graphgen.lowering.hlo_proto.literal import write_literal
from graphgen.lowering.hlo_proto.module_writer import LEGAL_NAME, HloModuleWriter
from graphgen.lowering.hlo_proto.shape import HloShape, shape_of
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.text.printer import value_names

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
    shape = tuple_shape(op.annotations, step.shape)
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


_Signature = tuple[object, ...]
_PLUMBING = ("tuple", ELEMENT)


class ModuleEmitter:
    """Writes the computations of one module, each once.

    Args:
        module: the module.
        metadata: see :class:`HloModuleWriter`.

    Attributes:
        writer: the computations written so far.
    """

    def __init__(self, module: Module, *, metadata: bool = True) -> None:
        self.module = module
        self.writer = HloModuleWriter(metadata=metadata)
        self._ids: dict[Called, int] = {}
        self._computations: set[str] = set()

    def callee(self, called: Called) -> int:
        """The id of a computation, written on first use."""
        found = self._ids.get(called)
        if found is None:
            if isinstance(called, Reducer):
                found = write_reducer(self.writer, called)
            elif isinstance(called, Comparator):
                found = write_comparator(self.writer, called)
            elif isinstance(called, Subcomputation):
                found = write_subcomputation(self.writer, called)
            else:
                found = _ComputationEmitter(
                    self, self.module.function(called.function), called
                ).write()
            self._ids[called] = found
        return found

    def scheduled(self) -> dict[int, list[int]]:
        """The order of the instructions of each computation, those inside of fusions left out."""
        fused = {
            op.attrs.text("to_apply")
            for function in self.module.functions.values()
            for op in function.block
            if op.name == "call" and op.annotations.get(OPCODE) == "fusion"
        }
        inside = {self._ids.get(Callee(name)) for name in fused}
        order = self.writer.order
        return {number: ids for number, ids in order.items() if number not in inside}

    def computation_name(self, function: Function) -> str:
        """The name of a function's computation: called in two forms, it is written twice."""
        return claim_name(function.name, self._computations)

    def entry(self, function: Function) -> int:
        """Write a function as the entry computation; its id."""
        self._computations.add(function.name)
        return _ComputationEmitter(self, function, Callee(function.name), entry=True).write()


_templates: dict[_Signature, InstructionTemplate] = {}


def template_of(op: Op) -> InstructionTemplate:
    """The instructions of an op, shared by equal ops (GG0401 if the op has no HLO form)."""
    key: _Signature = (
        op.name, op.attrs, *[v.type for v in op.operands], *[v.type for v in op.results],
    )  # fmt: skip
    found = _templates.get(key)
    if found is None:
        row = BY_OP.get(op.name)
        if row is None:
            raise GraphgenError(
                "GG0401",
                f"{op.name} has no HLO form",
                where=repr(op.loc),
                help="run the pass legalize{target=cpu} first",
            )
        found = _templates[key] = write_op(row, op)
    return found


class _ComputationEmitter:
    """Emits one function as a computation."""

    def __init__(
        self, owner: ModuleEmitter, function: Function, form: Callee, *, entry: bool = False
    ) -> None:
        self.owner = owner
        self.writer = owner.writer
        self.function = function
        self.form = form
        self.entry = entry
        self.body: list[Chunk] = []
        self.add = partial(owner.writer.add, self.body)
        self.ids: dict[Value, int] = {}
        self.shapes: dict[Value, HloShape] = {}
        # Results of opaque instructions inside of their tuples, by the ids of these.
        self.parts: dict[Value, tuple[Part, TemplateStep]] = {}
        self.wholes: dict[int, HloShape] = {}
        self.taken: dict[tuple[int, tuple[int, ...]], int] = {}
        self.constants: dict[tuple[TensorType, Chunk], int] = {}
        self.values = value_names(function)
        self.edges = control_edges(function)
        # The instruction of each op, before what takes its results apart.
        self.mains: dict[Op, int] = {}
        # Of the ops that are still to be written.
        self.templates: dict[Op, InstructionTemplate] = {}
        if entry:
            # Names of the program have precedence over generated names.
            names = [name[1:] for name in self.values.values()]
            self.writer.taken.update([name for name in names if LEGAL_NAME.fullmatch(name)])
        outputs = [value for _, value in function.outputs]
        # A single output is the root itself, unless it is a parameter.
        self.root = outputs[0] if len(outputs) == 1 and outputs[0].op is not None else None
        self.aliased = donated(owner.module, function) if entry else {}

    def write(self) -> int:
        """Emit the function; the computation's id."""
        function = self.function
        self.callees_first()
        arguments = [stated_shape(v.annotations, shape_of(v.type)) for v in function.args]
        self.shapes.update(zip(function.args, arguments, strict=True))
        if self.form.takes_tuple:
            arguments = [HloShape("tuple", members=tuple(arguments))]
            names = [self.whole(arguments[0])]
        else:
            names = [self.parameter(index, value) for index, value in enumerate(function.args)]
        for op in function.block:
            if op.name == "constant":
                self.constant(op)
            else:
                self.op(op)
        root = self.finish_root()
        result = self.result_shape()
        shape = shapes_of_computation(arguments, result, names)
        name = function.name if self.entry else self.owner.computation_name(function)
        return self.writer.finish(name, self.body, shape, root)

    def callees_first(self) -> None:
        """Emit callees first: their computations and ids precede those of the caller."""
        for op in self.function.block:
            if op.name != "constant":
                template = self.templates[op] = template_of(op)
                for step in template.steps:
                    for called in step.calls:
                        self.owner.callee(called)

    def name(self, value: Value, code: str) -> str:
        """The value's own name in letters of XLA, or the opcode and the value's number."""
        text = self.values[value][1:]
        if text.isdigit():
            return self.writer.fresh(f"{code}.{text}")
        if self.entry and LEGAL_NAME.fullmatch(text):
            return text
        return self.writer.fresh(text)

    def parameter(self, index: int, value: Value) -> str:
        """Append a parameter; its name."""
        name = self.name(value, "parameter")
        more = encode_annotations(value.annotations)
        if self.entry:
            shown = (value.name or name) + (ALIASED if index in self.aliased else "")
            more += write_frontend_attributes({INPUT_NAMES: shown})
        number = wire.integer(InstructionField.PARAMETER_NUMBER, index)
        shape = self.shapes[value]
        self.ids[value] = self.add(name, "parameter", shape, [number], more=more)
        return name

    def whole(self, shape: HloShape) -> str:
        """Append one tuple parameter for all arguments and its elements; its name."""
        number = wire.integer(InstructionField.PARAMETER_NUMBER, 0)
        noted = encode_annotations(element(self.function.annotations, "parameter"))
        name = self.writer.fresh(f"{self.function.name}.state")
        whole = self.add(name, "parameter", shape, [number], more=noted)
        code = "get-tuple-element"
        for index, value in enumerate(self.function.args):
            place = wire.integer(InstructionField.TUPLE_INDEX, index)
            label, more = self.name(value, code), encode_annotations(value.annotations)
            part = self.shapes[value]
            self.ids[value] = self.add(label, code, part, [place], [whole], more=more)
        return name

    def constant(self, op: Op) -> None:
        """Append a constant."""
        value = op.results[0]
        more = self.named(value) + encode_annotations(op.annotations)
        name = self.name(value, "constant")
        shape = stated_shape(op.annotations, shape_of(value.type))
        self.ids[value] = self.literal(op.attrs.literal("value"), name, op.loc, more, shape)
        self.shapes[value] = shape

    def literal(
        self,
        value: Literal,
        name: str,
        where: Loc,
        more: bytes = b"",
        shape: HloShape | None = None,
    ) -> int:
        """Append a constant of a shape, row-major by default; its id."""
        shape = shape or shape_of(tensor(value.dtype, value.shape))
        pieces = write_literal(value, shape)
        front = wire.head(InstructionField.LITERAL, sum(map(len, pieces)))
        metadata = metadata_of(where, "constant")
        data = [front, *pieces]
        return self.add(name, "constant", shape, data, more=more, metadata=metadata)

    def shared(self, value: Literal, beside: Value, where: Loc) -> int:
        """The id of a constant operand in the template of ``beside``, shared by equal constants."""
        key = (tensor(value.dtype, value.shape), value.data)
        found = self.constants.get(key)
        if found is None:
            found = self.literal(value, self.inner(beside, "init"), where)
            self.constants[key] = found
        return found

    def named(self, value: Value) -> bytes:
        """The output names as an encoded field, empty unless ``value`` is the root."""
        return self.output_names() if self.entry and value is self.root else b""

    def output_names(self) -> bytes:
        """The frontend attribute of the root, encoded."""
        names = ",".join([name for name, _ in self.function.outputs])
        return write_frontend_attributes({OUTPUT_NAMES: names})

    def op(self, op: Op) -> None:
        """Append the instructions of an op."""
        template = self.templates.pop(op, None) or template_of(op)
        if len(template.steps) == 1 and not op.annotations and op.name != "hlo.opaque":
            return self.single(op, template)
        if op.annotations:
            template = annotated(op, template, [self.shapes[value] for value in op.operands])
        for result, at in zip(op.results, template.results, strict=True):
            self.shapes[result] = template.steps[at].shape
        end = opened(template) if op.name == "hlo.opaque" else None
        ordered = self.ordered(op) if CONTROL in op.annotations else b""
        main = max(at for at, step in enumerate(template.steps) if step.opcode != ELEMENT)
        made: list[Part | int] = []
        for index, step in enumerate(template.steps):
            if step.opcode == "tuple":
                members = [self.member(op, item, made) for item in step.operands]
                whole = joined(members, self.wholes)
                if whole is not None:
                    made.append(whole)
                    continue
            which = template.result_of(index)
            base = op.results[which or 0]
            name = self.name_of(op, step, which)
            operands = [self.operand(op, item, made) for item in step.operands]
            called = [self.owner.callee(item) for item in step.calls]
            more = step.more if which is None else step.more + self.named(base)
            more += ordered if index == main else b""
            metadata = metadata_of(op.loc, str(op.attrs.get("opcode", op.name)))
            made.append(
                self.add(
                    name, step.opcode, step.shape, [step.fields], operands, called, more, metadata
                )
            )
            if index == main:
                self.mains[op] = self.writer.last_id
            if index == end:
                return self.take_apart(op, template, Part(self.writer.last_id, step.shape))
        for result, at in zip(op.results, template.results, strict=True):
            found = made[at]
            assert isinstance(found, int)
            self.ids[result] = found
        return None

    def single(self, op: Op, template: InstructionTemplate) -> None:
        """Append the instruction of an op that is one, without annotations: most of them."""
        step, value = template.steps[0], op.results[0]
        self.shapes[value] = step.shape
        name = self.name(value, step.opcode)
        operands = [self.operand(op, item, ()) for item in step.operands]
        called = [self.owner.callee(item) for item in step.calls]
        more = step.more + self.named(value)
        metadata = metadata_of(op.loc, str(op.attrs.get("opcode", op.name)))
        number = self.add(
            name, step.opcode, step.shape, [step.fields], operands, called, more, metadata
        )
        self.ids[value] = self.mains[op] = number

    def ordered(self, op: Op) -> bytes:
        """Control predecessors of an op as an encoded field, without removed ones.

        Raises:
            GraphgenError: GG0401 for one that comes later.
        """
        numbers: list[int] = []
        for maker in [maker for maker, user in self.edges if user is op]:
            value = maker.results[0]
            found = self.mains.get(maker, self.ids.get(value))
            if found is None:
                what = f"%{op.results[0].name} comes before %{value.name}, which it follows"
                raise GraphgenError("GG0401", what, where=repr(op.loc))
            numbers.append(found)
        return wire.integers(InstructionField.CONTROL_PREDECESSOR_IDS, numbers)

    def operand(self, op: Op, item: Operand, made: Sequence[Part | int]) -> int:
        """The id of what a step reads."""
        if isinstance(item, int):
            return self.id_of(op.operands[item])
        if not isinstance(item, StepResult):
            return self.shared(item, op.results[0], op.loc)
        found = made[item.step]
        return found if isinstance(found, int) else self.part(found, op.results[0])

    def member(self, op: Op, item: Operand, made: Sequence[Part | int]) -> Part | int:
        """A member of a tuple as a part of another tuple; 0 where it is none."""
        if isinstance(item, StepResult):
            return made[item.step]
        found = self.parts.get(op.operands[item]) if isinstance(item, int) else None
        return 0 if found is None else found[0]

    def take_apart(self, op: Op, template: InstructionTemplate, whole: Part) -> None:
        """Note the results of an opaque op; those with a name or annotations are taken out."""
        self.wholes[whole.source] = whole.shape
        stem = stem_of(op)
        for index, (value, part, step) in enumerate(parts_of(op, template, whole)):
            self.parts[value] = part, step
            if value.name != f"{stem}.{index}" or step.more:
                self.id_of(value)

    def id_of(self, value: Value) -> int:
        """The id of the instruction that gives a value, which is written now if it is a part."""
        found = self.ids.get(value)
        if found is None:
            part, step = self.parts[value]
            more = step.more + self.named(value)
            found = self.ids[value] = self.part(part, value, more, self.name(value, ELEMENT))
        return found

    def part(self, part: Part, beside: Value, more: bytes = b"", name: str = "") -> int:
        """The id of a part of a tuple; all but the elements of ops are shared."""
        if not part.path:
            return part.source
        key = part.source, part.path
        found = self.taken.get(key)
        if found is None or name:
            shape = self.wholes[part.source]
            for index in part.path[:-1]:
                shape = shape.members[index]
            source = self.part(Part(part.source, shape, part.path[:-1]), beside)
            place = wire.integer(InstructionField.TUPLE_INDEX, part.path[-1])
            label = name or self.inner(beside, "part")
            where = metadata_of(beside.op.loc if beside.op else UNKNOWN, ELEMENT)
            found = self.add(
                label, ELEMENT, part.shape, [place], [source], more=more, metadata=where
            )
            self.taken[key] = found
        return found

    def name_of(self, op: Op, step: TemplateStep, which: int | None) -> str:
        """The name of an instruction of an op, whose result ``which`` it gives."""
        stem = stem_of(op) if op.name == "hlo.opaque" and step.opcode not in _PLUMBING else ""
        if which is None and stem:
            return self.writer.fresh(stem)
        return (self.inner if which is None else self.name)(op.results[which or 0], step.opcode)

    def inner(self, value: Value, what: str) -> str:
        """A unique name for an instruction between the values of the program."""
        text = f"{self.values[value][1:]}.{what}"
        return self.writer.fresh(text.lstrip("0123456789."))

    def copied(self, name: str, value: Value) -> int:
        """The id of an output; ``neuronx-cc`` needs a copy of a parameter."""
        if value.op is not None or not self.entry:
            return self.id_of(value)
        single = len(self.function.outputs) == 1
        return self.add(
            self.writer.fresh(f"{name}.out"),
            "copy",
            self.shapes[value],
            operands=[self.id_of(value)],
            more=self.output_names() if single else b"",
            metadata=metadata_of(UNKNOWN, "copy", name),
        )

    def result_shape(self) -> HloShape:
        """The shape of the result: that of the only output, or the tuple of all."""
        shapes = [self.shapes[value] for _, value in self.function.outputs]
        if len(shapes) == 1 and not self.form.gives_tuple:
            return shapes[0]
        return HloShape("tuple", members=tuple(shapes))

    def finish_root(self) -> int:
        """The id of the root: the only output, or the tuple of all."""
        results = [self.copied(name, value) for name, value in self.function.outputs]
        if len(results) == 1 and not self.form.gives_tuple:
            return results[0]
        more = self.output_names() if self.entry else b""
        more += encode_annotations(element(self.function.annotations, "root"))
        metadata = metadata_of(UNKNOWN, "tuple", self.function.name)
        return self.add(
            self.writer.fresh("outputs"),
            "tuple",
            self.result_shape(),
            operands=results,
            more=more,
            metadata=metadata,
        )
