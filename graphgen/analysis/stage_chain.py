"""The stages of a module whose programs are chains of calls: a module for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from graphgen.analysis.calls import called
from graphgen.analysis.layer_cuts import ProgramCuts, needed
from graphgen.ir import Entry, Function, Module, Role, Value
from graphgen.ir.clone import Cloner

# Key of a module's ``meta``: number of stages.
STAGES = "pipeline_stages"


def stage_name(program: str, stage: int) -> str:
    """The function of one stage of a program."""
    return f"{program}.stage{stage}"


def edge_name(stage: int) -> str:
    """The output of a stage that the next one takes."""
    return f"stage.edge{stage}"


def stage_count(module: Module) -> int:
    """Number of stages; 1 for a module that is not divided."""
    return module.stated_number(STAGES, 1)


def stage_arguments(module: Module) -> list[set[str]]:
    """The names of what each stage of the programs reads, of a divided module."""
    return [
        {
            value.name or ""
            for function in module.programs()
            for value in module.function(stage_name(function.name, stage)).args
        }
        for stage in range(stage_count(module))
    ]


def stage_modules(module: Module) -> list[Module]:
    """A module for each stage: its parts of the programs, by their names.

    Args:
        module: divided by ``pipeline-stages``; shares functions with the result.

    Returns:
        Modules whose interfaces have what the stage takes and gives, its edges included.
    """
    return [_stage_module(module, stage) for stage in range(stage_count(module))]


def divide_states(module: Module, homes: Sequence[Collection[str]]) -> None:
    """Divide programs that change states alone, each state where a stage keeps it.

    Args:
        module: changed; its programs return states, each made of itself and of inputs.
        homes: names that each stage has; a state of none of them is the first stage's.
    """
    module.meta[STAGES] = str(len(homes))
    made: list[Function] = []
    for function in module.programs():
        for stage in range(len(homes)):
            outputs = [
                (name, value)
                for name, value in function.outputs
                if next((n for n, names in enumerate(homes) if name in names), 0) == stage
            ]
            made.append(part_of(function, stage_name(function.name, stage), outputs))
    module.functions = {**{f.name: f for f in made}, **module.functions}


def part_of(
    source: Function,
    name: str,
    outputs: Sequence[tuple[str, Value]],
    begin: Value | None = None,
    taken: str = "",
    rename: Callable[[str], str] = str,
    *,
    names: bool = True,
) -> Function:
    """The part of a program that computes some values.

    Args:
        source: of the values, without calls.
        name: of the part.
        outputs: what it gives, by name.
        begin: a value that is given, in place of what makes it; ``None`` for none.
        taken: name of the argument for it.
        rename: names of the other arguments, of those of ``source``.
        names: whether values keep theirs.
    """
    ops, read = needed([value for _, value in outputs], begin)
    made, cloner = Function(name), Cloner(names=names)
    if begin is not None and begin in read:
        cloner.argument(begin, made, taken)
    for value in source.args:
        if value in read:
            cloner.argument(value, made, rename(value.name or ""))
    for op in source.block:
        if op in ops:
            cloner.op(op, made.block)
    made.outputs = [(name, cloner.mapping[value]) for name, value in outputs]
    return made


def stage_outputs(
    program: ProgramCuts, number: int, first: int, last: int
) -> list[tuple[str, Value]]:
    """The outputs of a stage of a program, and the edge to the next stage if there is one.

    Args:
        program: the whole.
        number: of the stage.
        first, last: the stage has the places of the cuts after ``first``, up to ``last``.
    """
    outputs = [
        (name, value)
        for name, value in program.function.outputs
        if first < program.stages.get(value, 0) <= last
    ]
    end = program.cuts.get(last)
    return outputs if end is None else [*outputs, (edge_name(number), end)]


def _stage_module(module: Module, stage: int) -> Module:
    programs = {f.name: module.function(stage_name(f.name, stage)) for f in module.programs()}
    names = {
        name
        for function in programs.values()
        for name in (*[v.name or "" for v in function.args], *[n for n, _ in function.outputs])
    }
    rows = {name: row for name, row in module.interface.items() if name in names}
    meta = {key: text for key, text in module.meta.items() if key != STAGES}
    made = Module(f"{module.name}.stage{stage}", module.level, dict(module.mesh), {}, rows, meta)
    rows.update(_edges(programs, stage))
    inner = {f.name: f for program in programs.values() for f in called(module, program)}
    for function in module.functions.values():
        if function.name in inner:
            made.add(function)
    for whole in module.programs():
        part, function = programs[whole.name], Function(whole.name, whole.phase, dict(whole.dims))
        function.block, function.outputs = part.block, part.outputs
        made.add(function)
    return made


def _edges(programs: Mapping[str, Function], stage: int) -> dict[str, Entry]:
    """Rows of what a stage takes and gives; the types are those of its first program."""
    rows: dict[str, Entry] = {}
    for function in programs.values():
        taken, given = edge_name(stage - 1), edge_name(stage)
        value, result = function.arg(taken), function.outputs.get(given)
        if value is not None:
            rows.setdefault(taken, Entry(Role.INPUT, taken, value.type, value.type))
        if result is not None:
            rows.setdefault(given, Entry(Role.OUTPUT, given, result.type, result.type))
    return rows
