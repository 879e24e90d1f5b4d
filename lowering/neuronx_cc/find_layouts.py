"""Asks ``neuronx-cc`` for the layouts of weights, by the public protocol, once for a folder.

The program that runs most often is compiled with ``--enable-internal-neff-wrapper`` and with the
weights whose layout is free in its attributes. Its answer is kept beside the programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast

from graphgen.atomic_write import read_inside, read_regular, unreadable, write_inside
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Role
from graphgen.json_value import OTHER_FORM, parse_json
from graphgen.limits import JSON_BYTES, TEXT_BYTES
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import InstructionField as F
from graphgen.lowering.hlo_proto.fields import MapField, ModuleField
from graphgen.lowering.hlo_proto.proto_module import (
    HloComputation,
    open_hlo,
    read_frontend_attributes,
)
from graphgen.lowering.hlo_proto.shape import read_shape
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.neuronx_cc.command_line import OptionLayer
from graphgen.lowering.neuronx_cc.compiler_failure import CompilerFailure
from graphgen.lowering.neuronx_cc.driver import DriverSettings, key_of
from graphgen.lowering.neuronx_cc.failure_report import failed
from graphgen.lowering.neuronx_cc.neuron_compiler import NeuronCompiler
from graphgen.lowering.neuronx_cc.program_compiler import WORK, ProgramCompiler, tidy
from graphgen.lowering.neuronx_cc.program_plan import (
    PlannedProgram,
    PlanOptions,
    plan_program,
    write_program,
)
from graphgen.lowering.neuronx_cc.worker import MemoryBudget, Processes, available_memory
from graphgen.numbers import is_digits
from graphgen.passes.weights.weight_layouts import Layout, LayoutStep

STUB, TRANSPOSABLE = "wrapped_neff.hlo", "transposable_weight_idx"


def transposable_attribute(indices: Sequence[int]) -> bytes:
    """The attribute of an HloModuleProto that names parameters whose layout is free."""
    text = ",".join(map(str, sorted(indices)))
    item = wire.text(MapField.KEY, TRANSPOSABLE) + wire.text(MapField.VALUE, text)
    return wire.delimited(ModuleField.FRONTEND_ATTRIBUTES, wire.delimited(MapField.ENTRIES, item))


def read_layouts(path: Path, names: Sequence[str]) -> Mapping[str, Layout]:
    """The layouts by the name of the parameter.

    Args:
        path: of ``wrapped_neff.hlo``.
        names: of the program's parameters, in order.

    Raises:
        GraphgenError: GG0705 if it cannot be read, GG0801 for a stub of another form.
    """
    try:
        module = open_hlo(read_regular(path, TEXT_BYTES))
    except OSError as error:
        raise unreadable(str(path), error) from error
    computations = {item.id: item for item in module.computations}
    found: dict[str, Layout] = {}
    for instruction in module.entry.instructions():
        attributes = read_frontend_attributes(instruction, F.FRONTEND_ATTRIBUTES)
        if TRANSPOSABLE not in attributes:
            continue
        text, called = attributes[TRANSPOSABLE], instruction.integers(F.CALLED_IDS)
        known = is_digits(text) and int(text) < len(names) and called[:1]
        if not known or called[0] not in computations:
            raise _another(path, f"a layout of the parameter {text!r}")
        found[names[int(text)]] = _steps(path, computations[called[0]])
    return found


def _steps(path: Path, computation: HloComputation) -> Layout:
    """The steps from the parameter of a computation to its result."""
    by_id = {item.integer(F.ID): item for item in computation.instructions()}
    at = by_id.get(computation.root_id)
    steps: list[LayoutStep] = []
    while at is not None and at.text(F.OPCODE) != "parameter" and len(steps) < len(by_id):
        steps.append(_step(path, at))
        at = by_id.get((*at.integers(F.OPERAND_IDS), -1)[0])
    if at is None or at.text(F.OPCODE) != "parameter":
        raise _another(path, f"the computation {computation.name}")
    return steps[::-1]


def _step(path: Path, instruction: Message) -> LayoutStep:
    opcode = instruction.text(F.OPCODE)
    if opcode == "reshape":
        return LayoutStep("reshape", read_shape(instruction.data(F.SHAPE)).dims)
    if opcode == "transpose":
        return LayoutStep("transpose", instruction.integers(F.DIMENSIONS))
    raise _another(path, f"the op {opcode}")


def _another(path: Path, what: str) -> GraphgenError:
    return GraphgenError(
        "GG0801",
        f"{path} has {what}, which is not of the published form of layouts",
        help="compile without --optimize-layouts, and send the file with an issue",
    )


FOLDER, KEPT = "layouts", "weight_layouts.json"
_WRAPPER = OptionLayer("layout optimization", "--enable-internal-neff-wrapper")


@dataclass(frozen=True, slots=True)
class LayoutRequest:
    """The program that is asked about.

    Attributes:
        program: with its files.
        names: of its parameters, in order.
        free: indices of those whose layout is free.
    """

    program: PlannedProgram
    names: Sequence[str]
    free: Sequence[int]


def find_layouts(
    module: Module,
    options: PlanOptions,
    output: Path,
    compiler: NeuronCompiler,
    settings: DriverSettings,
    skipped: Sequence[str] = (),
) -> Mapping[str, Layout]:
    """Layouts requested by the compiler, by the name of the program's argument.

    Args:
        module: at level ``target``.
        options: of the compiler.
        output: the folder of the programs; an answer that is kept there is used again.
        compiler: the compiler.
        settings: limits.
        skipped: weights that keep their layout; ``*`` and ``?`` stand for any part of a name.

    Raises:
        GraphgenError: GG1002 if the program does not compile or no layouts are written, GG0705 for
            a pattern that fits no weight, GG0801 for an answer of another form, GG0704.
    """
    asked = _ask(module, options, output, skipped)
    file = output / FOLDER / KEPT
    key = [key_of(asked.program, compiler.version).name(32), *[asked.names[i] for i in asked.free]]
    kept = _kept(output, file, key)
    if kept is not None:
        return kept
    total = settings.memory or available_memory() * 4 // 5
    runs = ProgramCompiler(
        compiler, Processes(), MemoryBudget(total), settings.timeout, settings.environment
    )
    ended = runs.compile(asked.program, asked.program.memory)
    if isinstance(ended, CompilerFailure):
        raise failed([ended], 1)
    stub = asked.program.folder / WORK / STUB
    if not stub.is_file():
        raise GraphgenError(
            "GG1002",
            f"{asked.program.name} was compiled, and the compiler wrote no {STUB}",
            help="compile without --optimize-layouts: this version does not ask for layouts",
        )
    found = read_layouts(stub, asked.names)
    rows = {name: [[step.op, *step.values] for step in layout] for name, layout in found.items()}
    text = json.dumps({"key": key, "layouts": rows}, indent=1)
    write_inside(output, file, text.encode(), parents=True)
    tidy(asked.program)
    return found


def _ask(
    module: Module, options: PlanOptions, output: Path, skipped: Sequence[str]
) -> LayoutRequest:
    """Write the program that is asked about: a step of one token for the shortest caches."""
    programs = module.programs()
    decodes = [item for item in programs if item.phase == "decode"] or programs
    function = min(decodes, key=_cache_size)
    names = [value.name or "" for value in function.args]
    weights = [name for name in names if _is_matrix(module, name)]
    for one in skipped:
        if not any(fnmatchcase(name, one) for name in names):
            raise GraphgenError(
                "GG0705", f"no weight is called {one}", help=f"weights are {', '.join(weights[:8])}"
            )
    kept = [name for name in weights if not any(fnmatchcase(name, one) for one in skipped)]
    free = [names.index(name) for name in kept]
    planned = plan_program(module, function, options, [_WRAPPER])
    attribute = transposable_attribute(free)
    folder = output / FOLDER
    placed = write_program(module, planned, folder, output, metadata=False, more=[attribute])
    return LayoutRequest(placed, names, free)


def _is_matrix(module: Module, name: str) -> bool:
    row = module.interface.get(name)
    if row is None or row.role not in (Role.WEIGHT, Role.PARAM):
        return False
    return not row.pack and len(row.physical.shape) > 1


def _cache_size(function: Function) -> int:
    return sum(value.type.nbytes for value in function.args)


def _kept(output: Path, file: Path, key: Sequence[str]) -> Mapping[str, Layout] | None:
    """The answer in a file, if it is of this program."""
    try:
        content: object = parse_json(read_inside(output, file, JSON_BYTES))
        held = cast("dict[str, object]", content)
        if held["key"] != list(key):
            return None
        rows = cast("dict[str, list[list[object]]]", held["layouts"])
        return {
            name: [LayoutStep(row[0], tuple(row[1:])) for row in steps]  # pyright: ignore[reportArgumentType]
            for name, steps in rows.items()
        }
    except (OSError, *OTHER_FORM, RecursionError):
        return None
