"""Emits functions and their callees as HLO computations, callees before callers."""

from __future__ import annotations

from functools import partial

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Literal, Loc, Module, Op, TensorType, Value, tensor
from graphgen.ir.loc import UNKNOWN
from graphgen.lowering.abi import donated
from graphgen.lowering.hlo.dialect import BY_OP
from graphgen.lowering.hlo.dialect.instruction_template import (
    Called,
    Callee,
    Comparator,
    InstructionTemplate,
    Reducer,
    StepResult,
    Subcomputation,
)
from graphgen.lowering.hlo.dialect.op_row import write_op
from graphgen.lowering.hlo.dialect.scalar_computations import write_comparator, write_reducer
from graphgen.lowering.hlo.dialect.subcomputations import write_subcomputation
from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import InstructionField
from graphgen.lowering.hlo.proto.instruction import (
    ALIASED,
    INPUT_NAMES,
    OUTPUT_NAMES,
    Chunk,
    metadata_of,
    result_shape,
    shapes_of_computation,
    write_frontend_attributes,
)
from graphgen.lowering.hlo.proto.literal import write_literal
from graphgen.lowering.hlo.proto.module_writer import LEGAL_NAME, HloModuleWriter
from graphgen.lowering.hlo.proto.shape import shape_of, tuple_of
from graphgen.text.printer import value_names

_Signature = tuple[object, ...]


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

    def entry(self, function: Function) -> int:
        """Write a function as the entry computation; its id."""
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
        self.constants: dict[tuple[TensorType, Chunk], int] = {}
        self.values = value_names(function)
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
        arguments = [shape_of(value.type) for value in function.args]
        if self.form.takes_tuple:
            names, arguments = [self.whole()], [tuple_of([value.type for value in function.args])]
        else:
            names = [self.parameter(index, value) for index, value in enumerate(function.args)]
        for op in function.block:
            if op.name == "constant":
                self.constant(op)
            else:
                self.op(op)
        root = self.finish_root()
        types = [value.type for _, value in function.outputs]
        result = tuple_of(types) if self.form.gives_tuple else result_shape(types)
        shape = shapes_of_computation(arguments, result, names)
        return self.writer.finish(function.name, self.body, shape, root)

    def callees_first(self) -> None:
        """Emit callees first: their computations and ids precede those of the caller."""
        for op in self.function.block:
            if op.name != "constant":
                for step in template_of(op).steps:
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
        more = b""
        if self.entry:
            shown = (value.name or name) + (ALIASED if index in self.aliased else "")
            more = write_frontend_attributes({INPUT_NAMES: shown})
        number = wire.integer(InstructionField.PARAMETER_NUMBER, index)
        shape = shape_of(value.type)
        self.ids[value] = self.add(name, "parameter", shape, [number], more=more)
        return name

    def whole(self) -> str:
        """Append one tuple parameter for all arguments and its elements; its name."""
        types = [value.type for value in self.function.args]
        number = wire.integer(InstructionField.PARAMETER_NUMBER, 0)
        name = self.writer.fresh(f"{self.function.name}.state")
        whole = self.add(name, "parameter", tuple_of(types), [number])
        code = "get-tuple-element"
        for index, value in enumerate(self.function.args):
            place = wire.integer(InstructionField.TUPLE_INDEX, index)
            label, shape = self.name(value, code), shape_of(value.type)
            self.ids[value] = self.add(label, code, shape, [place], [whole])
        return name

    def constant(self, op: Op) -> None:
        """Append a constant."""
        value = op.results[0]
        self.ids[value] = self.literal(
            op.attrs.literal("value"), self.name(value, "constant"), op.loc, self.named(value)
        )

    def literal(self, value: Literal, name: str, where: Loc, more: bytes = b"") -> int:
        """Append a constant; its id."""
        pieces = write_literal(value)
        shape = shape_of(tensor(value.dtype, value.shape))
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
        template = template_of(op)
        made: list[int] = []
        for index, step in enumerate(template.steps):
            which = template.result_of(index)
            base = op.results[which or 0]
            name = (self.inner if which is None else self.name)(base, step.opcode)
            operands: list[int] = []
            for operand in step.operands:
                if isinstance(operand, int):
                    operands.append(self.ids[op.operands[operand]])
                elif isinstance(operand, StepResult):
                    operands.append(made[operand.step])
                else:
                    operands.append(self.shared(operand, base, op.loc))
            called = [self.owner.callee(item) for item in step.calls]
            more = step.more if which is None else step.more + self.named(base)
            metadata = metadata_of(op.loc, str(op.attrs.get("opcode", op.name)))
            made.append(
                self.add(
                    name, step.opcode, step.shape, [step.fields], operands, called, more, metadata
                )
            )
        for result, at in zip(op.results, template.results, strict=True):
            self.ids[result] = made[at]

    def inner(self, value: Value, what: str) -> str:
        """A unique name for an instruction between the values of the program."""
        text = f"{self.values[value][1:]}.{what}"
        return self.writer.fresh(text.lstrip("0123456789."))

    def copied(self, name: str, value: Value) -> int:
        """The id of an output; ``neuronx-cc`` needs a copy of a parameter."""
        if value.op is not None or not self.entry:
            return self.ids[value]
        single = len(self.function.outputs) == 1
        return self.add(
            self.writer.fresh(f"{name}.out"),
            "copy",
            shape_of(value.type),
            operands=[self.ids[value]],
            more=self.output_names() if single else b"",
            metadata=metadata_of(UNKNOWN, "copy", name),
        )

    def finish_root(self) -> int:
        """The id of the root: the only output, or the tuple of all."""
        results = [self.copied(name, value) for name, value in self.function.outputs]
        if len(results) == 1 and not self.form.gives_tuple:
            return results[0]
        types = [value.type for _, value in self.function.outputs]
        more = self.output_names() if self.entry else b""
        metadata = metadata_of(UNKNOWN, "tuple", self.function.name)
        return self.add(
            self.writer.fresh("outputs"),
            "tuple",
            tuple_of(types),
            operands=results,
            more=more,
            metadata=metadata,
        )
