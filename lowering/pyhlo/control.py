"""Control flow: calls of a computation, loops, and choices between computations.

The original has the names of these ops and no way to say which computation they run; here it is an
attribute, a function of a scribe like those of reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.ir import Function, Value
from graphgen.ir.loc import UNKNOWN
from lowering.hlo import wire
from lowering.hlo.computation import ModuleEmitter
from lowering.hlo.fields import ComputationField, InstructionField, ProgramShapeField
from lowering.hlo.instruction import Chunk, head_of, instruction, metadata_of
from lowering.hlo.module import Computation
from lowering.hlo.regions import pack
from lowering.hlo.shape import Shape as HloShape
from lowering.hlo.shape import shape_of, tuple_of, write_shape
from lowering.hlo.wire import Message
from lowering.pyhlo.given import Given
from lowering.pyhlo.ops import Write
from lowering.pyhlo.scribe import Trace
from lowering.pyhlo.shapes import Result, Shape, mistake


def _call(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """A function of the module; calls of one Python function with equal operands share it."""
    body = a.function()
    callee, _ = _written(t, a, body, x)
    values = [value for item in x for value in item.values]
    types = tuple([value.type for _, value in callee.outputs])
    found = _shared(t, callee)
    return t.b.emit("call", values, {"to_apply": found.name, "results": types}).results


def _shared(t: Trace, callee: Function) -> Function:
    """The function of the module that is the same, or this one, which is put in."""
    from graphgen.text import print_function

    functions = t.scribe.module.functions
    text = print_function(callee, locs=False).partition("\n")[2]
    for known in functions.values():
        if print_function(known, locs=False).partition("\n")[2] == text:
            return known
    base, count = callee.name, 0
    while callee.name in functions:
        count += 1
        callee.name = f"{base}.{count}"
    return t.scribe.module.add(callee)


def _written(
    t: Trace, a: Given, body: Callable[..., object], given: Sequence[Shape]
) -> tuple[Function, Result]:
    """The computation of ``body``, whose parameters must be like ``given`` (GG0203)."""
    name = getattr(body, "__name__", a.op).strip("<>")
    trace, root = t.scribe.write(name, body)  # pyright: ignore[reportArgumentType]
    taken = [item.types for item in trace.parameters]
    wanted = [item.types for item in given]
    if taken != wanted:
        shown = [", ".join([item.text for item in side]) for side in (trace.parameters, given)]
        raise mistake("GG0203", f"{a.op}: {name} takes {shown[0]}, and is given {shown[1]}")
    trace.function.outputs = [(f"out{i}", value) for i, value in enumerate(root.values)]
    return trace.function, root


def _while(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """``state.While(start, condition=f, body=g)``: g(state) while f(state), which is one pred."""
    if len(x) != 1:
        raise mistake("GG0105", f"While takes the start of its state, got {len(x)} operands")
    condition, test = _written(t, a, a.function("condition"), x)
    body, after = _written(t, a, a.function("body"), x)
    if test.text != "pred[]":
        raise mistake("GG0203", f"While: the condition gives {test.text}, not pred[]")
    if after.types != x[0].types:
        raise mistake("GG0203", f"While: the body makes {after.text} of {x[0].text}")
    regions = [_region(t, body, after, x), _region(t, condition, test, x)]
    return _opaque(t, "while", x, after, regions)


def _conditional(t: Trace, want: Shape, x: Sequence[Result], a: Given) -> Sequence[Value]:
    """``shape.Conditional(p, x, y, true_computation=f, false_computation=g)``: f(x) or g(y)."""
    if len(x) != 3 or x[0].text != "pred[]":
        shown = ", ".join([item.text for item in x])
        raise mistake("GG0105", f"Conditional takes pred[] and two operands, got {shown}")
    yes, first = _written(t, a, a.function("true_computation"), x[1:2])
    no, second = _written(t, a, a.function("false_computation"), x[2:])
    if first.text != second.text:
        raise mistake("GG0203", f"Conditional gives {first.text} or {second.text}")
    regions = [_region(t, yes, first, x[1:2]), _region(t, no, second, x[2:])]
    return _opaque(t, "conditional", x, first, regions)


def _opaque(
    t: Trace, code: str, x: Sequence[Result], root: Result, regions: Sequence[str]
) -> Sequence[Value]:
    """Written into HLO as it is; the NumPy reference does not run it."""
    left = "".join([_form(item) for item in x])
    attrs = {
        "opcode": code,
        "form": f"{left}->{_form(root)}",
        "regions": ",".join(regions),
        "results": root.types,
    }
    return t.b.emit("hlo.opaque", [v for item in x for v in item.values], {**attrs}).results


def _form(item: Result) -> str:
    return "x" if item.members is None else f"({'x' * len(item.values)})"


def _shape(item: Shape) -> HloShape:
    return shape_of(item.type) if item.members is None else tuple_of(item.types)


def _region(t: Trace, function: Function, root: Result, given: Sequence[Result]) -> str:
    """The computation as HLO has it, where a parameter and the root may be tuples."""
    owner = ModuleEmitter(t.scribe.module)
    inner = owner.function(function)
    body: list[Chunk] = []

    def add(code: str, shape: HloShape, fields: bytes, reads: list[int], calls: list[int]) -> int:
        number, name = owner.next_id(), owner.fresh(f"{code}.of.{function.name}")
        metadata = metadata_of(UNKNOWN, code, name)
        body.extend(
            instruction(name, head_of(code, shape), metadata, [fields], number, reads, calls)
        )
        return number

    whole = [
        add("parameter", _shape(item), wire.integer(InstructionField.PARAMETER_NUMBER, i), [], [])
        for i, item in enumerate(given)
    ]
    parts: list[int] = []
    for number, item in zip(whole, given, strict=True):
        if item.members is None:
            parts.append(number)
            continue
        for index, type_ in enumerate(item.types):
            place = wire.integer(InstructionField.TUPLE_INDEX, index)
            parts.append(add("get-tuple-element", shape_of(type_), place, [number], []))
    single = len(root.values) == 1
    made = shape_of(root.values[0].type) if single else tuple_of(root.types)
    last = add("call", made, b"", parts, [inner])
    if single and root.members is not None:
        last = add("tuple", _shape(root), b"", [last], [])
    shapes = [
        *[(ProgramShapeField.PARAMETERS, _shape(item)) for item in given],
        (ProgramShapeField.RESULT, _shape(root)),
    ]
    program = b"".join(
        [wire.delimited(field, write_shape(shape, layout=False)) for field, shape in shapes]
    )
    called = owner.finish(owner.fresh(f"{function.name}.whole"), body, program, last)
    return pack(called, _computations(owner))


def _computations(owner: ModuleEmitter) -> dict[int, Computation]:
    found: dict[int, Computation] = {}
    for chunks in owner.computations:
        message = Message(b"".join(chunks))
        number = message.integer(ComputationField.ID)
        name = message.text(ComputationField.NAME)
        root = message.integer(ComputationField.ROOT_ID)
        found[number] = Computation(message, number, name, root)
    return found


CONTROL: dict[str, Write] = {"Call": _call, "While": _while, "Conditional": _conditional}
