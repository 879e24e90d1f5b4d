"""``graphgen run``: run a program on random or given inputs and summarize its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.backend_option import AUTO, checked_name
from graphgen.cli.command_table import Command
from graphgen.cli.compiled_file import (
    backend_for,
    chosen_backend,
    compiled_text,
    file_for,
    note_compiled,
)
from graphgen.cli.console import emit, note
from graphgen.cli.files import check_output, write_file
from graphgen.cli.module_file import choose_program, open_module_file
from graphgen.cli.open_sizes import with_sizes
from graphgen.cli.shared_options import (
    AsJson,
    Dims,
    ModuleFile,
    OnlyProgram,
    check_sizes,
    check_slots,
    default_sizes,
    parse_sizes,
)
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.json_value import Json
from graphgen.report.table import Table

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.exec import ProgramOutput
    from graphgen.exec.inputs import ProgramInputs
    from graphgen.lowering.backends.program_files import ReadFile

COMMAND: Final = Command("inspect", "Run a program and describe its outputs.")

_COLUMNS = ["output", "type", "min", "max", "mean", "std", "nan", "first values"]

Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs", metavar="FILE", help="Arrays by name, .npz or .safetensors; the rest is random."
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="MODEL",
        help="Take the weights from a checkpoint folder, a GGUF file, or smollm2.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the random inputs.")]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="BACKEND",
        callback=checked_name,
        help="numpy, op by op; cpu, XLA around its faults; xla, as it stands; iree; pjrt:PLATFORM; "
        "auto is numpy where it can.",
    ),
]
PerRank = Annotated[
    bool,
    typer.Option(
        "--per-rank",
        help="Of a dump on several ranks, random floats differ by rank, as shards do.",
    ),
]
Save = Annotated[
    str | None,
    typer.Option(
        "--save",
        metavar="FILE.npz",
        help="Write the outputs (bf16 as f32); all ranks if they differ.",
    ),
]


def run(
    file: ModuleFile,
    program: OnlyProgram = None,
    dims: Dims = "",
    inputs: Inputs = None,
    weights: Weights = None,
    seed: Seed = 0,
    on: On = AUTO,
    per_rank: PerRank = False,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Run a program and describe its outputs.

    Without --inputs they are random and depend on --seed and their names only: token ids in range,
    positions 0 to S-1, lengths S, row b in cache row b, small normal weights, empty caches. Two
    files of one program with other names get other numbers: graphgen equiv gives them the same.
    A snapshot of XLA has the arguments of a run, which are taken before random ones.
    Inputs and outputs are whole tensors, as the checkpoint and the caller have them; a partitioned
    module is run on all its ranks. Of a dump, types are those of one rank: an array of --inputs may
    be for all ranks, or have one more dimension in front for each rank's own.

    \b
    Examples:
      graphgen run m.gg --program prefill
      graphgen run m.gg --program decode --dims B=2,R=4,C=64,M=64 --on cpu --json
      graphgen run m.gg --program prefill --save prefill.npz
      graphgen run m.gg --program decode --inputs prefill.npz
      graphgen run module.gg --program decode_b1_s1_c128 --inputs captured.npz --weights smollm2
      graphgen run dump.pb --per-rank --seed 3
    """
    from graphgen.exec import run_program
    from graphgen.exec.inputs import read_arrays

    if save is not None:
        check_output(save)
    module, recorded, origin = _opened(file, on)
    arrays = read_arrays(inputs) if inputs is not None else None
    sized = with_sizes(module, program, dims, arrays, default=True)
    fixed = sized is not module
    module, function = bound_program(sized, None if fixed else program, "" if fixed else dims)
    _check_types(module)
    on = chosen_backend(on, module)
    if on == "cpu":
        module, function = _for_cpu(module, function)
        _name_faults(module)
    given = _inputs(module, function, (inputs, weights), recorded, seed, per_rank)
    backend = backend_for(on, origin, module, function, changed=fixed)
    outputs = run_program(module, function, given.shared, backend, given.per_rank)
    note_compiled(backend)
    if save is not None:
        _save(save, outputs)
    _name_differing(function, outputs)
    own = {"on": on, "compiled": compiled_text(backend), "seed": seed}
    emit(as_json, lambda: _facts(module, function, outputs, own), lambda: _table(outputs))


def _opened(file: str, on: str) -> tuple[Module, Mapping[str, Array], ReadFile | None]:
    """The module of a file as it is run, the arguments that a snapshot has recorded, the file."""
    from graphgen.lowering.runnable import runnable

    source, module, values = open_module_file(file)
    origin = file_for(on, source, module)
    return runnable(module), values if module.meta.get("format") == "hlo" else {}, origin


def _check_types(module: Module) -> None:
    """Refuse ops on types that nothing here computes with (GG0403)."""
    from graphgen.ops.external import refusal

    for op in [op for function in module.functions.values() for op in function.block]:
        error = refusal(op) if op.name == "hlo.opaque" else None
        if error is not None:
            raise error


def _name_faults(module: Module) -> None:
    """Name the faults of XLA that a program can meet."""
    from graphgen.lowering.cpu.xla_faults import faults_of

    for fault, op in faults_of(module):
        reports = f" ({', '.join(fault.reports)})" if fault.reports else ""
        note(f"XLA may be wrong at {op.loc!r}: {fault.what}{reports}; --on numpy is right")


def bound_program(module: Module, name: str | None, dims: str) -> tuple[Module, Function]:
    """The module with one program and every symbol bound, and that program."""
    from graphgen.analysis import free_symbols
    from graphgen.exec.bind import bind_module, isolate

    function = choose_program(module, name)
    sizes = parse_sizes(dims)
    check_sizes(module, function, sizes)
    single = isolate(module, function)
    free = free_symbols(single.functions.values())
    if free - sizes.keys():
        chosen = {k: v for k, v in default_sizes(sizes).items() if k in free and k not in sizes}
        sizes |= chosen
        if chosen:
            shown = ", ".join(f"{key}={size}" for key, size in chosen.items())
            note(f"{shown} by default; --dims sets other sizes")
    check_slots({**sizes, **function.dims})
    bound = bind_module(single, sizes)
    _verify(bound, sizes)
    return bound, bound.function(function.name)


def _verify(module: Module, sizes: Mapping[str, int]) -> None:
    """Verify the module; sizes may contradict each other."""
    from graphgen.ops import verify

    try:
        verify(module)
    except GraphgenError as error:
        shown = ",".join(f"{key}={size}" for key, size in sizes.items())
        error.help = error.help or f"the sizes do not go together: {shown}"
        raise


def _for_cpu(module: Module, function: Function) -> tuple[Module, Function]:
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.partial_pipeline import remaining

    run_pipeline(module, remaining(module))
    return module, module.function(function.name)


def _inputs(
    module: Module,
    function: Function,
    sources: tuple[str | None, str | None],
    recorded: Mapping[str, Array],
    seed: int,
    per_rank: bool,
) -> ProgramInputs:
    """The inputs from a file of arrays, a checkpoint and the module's own file, as far as given."""
    from graphgen.exec.inputs import program_inputs, read_arrays

    file, model = sources
    arrays = dict(recorded)
    arrays |= _weights(module, function, model) if model is not None else {}
    arrays |= read_arrays(file) if file is not None else {}
    made = program_inputs(module, function, arrays, seed, per_rank=per_rank)
    if made.unused:
        note(f"@{function.name} does not take {', '.join(made.unused)}")
    own = "the snapshot" if recorded else None
    given = " and ".join(name for name in (file, model, own) if name is not None)
    if given:
        total = len(made.shared) + len(made.per_rank)
        note(f"{made.given} of {total} inputs from {given}, the others random (seed {seed})")
    return made


def _weights(module: Module, function: Function, model: str) -> dict[str, Array]:
    """The checkpoint tensors that the program reads (GG06xx)."""
    from graphgen.exec.program_run import needed
    from graphgen.ir import Role
    from graphgen.runtime.engine import locate_checkpoint

    checkpoint = locate_checkpoint(model)
    rows = [row for row in needed(module, function) if row.role is Role.WEIGHT]
    return {row.name: checkpoint.read(row.name) for row in rows}


def _name_differing(function: Function, outputs: Sequence[ProgramOutput]) -> None:
    """Name the outputs that ranks do not agree on."""
    for output in outputs:
        if output.ranks_differ and function.phase:
            note(f"output {output.entry.name} is not the same on all ranks; shown is rank 0")


def _save(name: str, outputs: Sequence[ProgramOutput]) -> None:
    import numpy as np

    from graphgen.exec.inputs import write_arrays

    arrays = {
        output.entry.name: np.stack(output.parts) if output.parts else output.array
        for output in outputs
    }
    write_file(name, lambda file: write_arrays(file, arrays))


def _table(outputs: Sequence[ProgramOutput]) -> Table:
    from graphgen.report.array_summary import summarize

    rows = [
        [output.entry.name, output.type.text, *summarize(output.array).cells()]
        for output in outputs
    ]
    return Table(_COLUMNS, rows)


def _facts(
    module: Module,
    function: Function,
    outputs: Sequence[ProgramOutput],
    own: Mapping[str, Json],
) -> dict[str, Json]:
    from graphgen.exec.program_run import ranks_of
    from graphgen.report.array_summary import summarize

    return {
        "module": module.name,
        "program": function.name,
        "level": module.level,
        "ranks": ranks_of(module),
        **own,
        "dims": {k: v for k, v in function.dims.items() if isinstance(v, int)},
        "outputs": [
            {
                "name": output.entry.name,
                "role": output.entry.role.value,
                "type": output.type.text,
                "ranks_differ": output.ranks_differ,
                **summarize(output.array).to_json(),
            }
            for output in outputs
        ],
    }
