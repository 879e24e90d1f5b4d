"""``graphgen run``: a program on random or given inputs, and what it gives."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.cli.console import note, table, write_json, write_stdout
from graphgen.cli.files import check_output, write_file
from graphgen.cli.module_file import choose_program, read_module
from graphgen.errors import GraphgenError
from graphgen.ir import Entry, Function, Module

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.exec import ProgramOutput

_COLUMNS = ["output", "type", "min", "max", "mean", "std", "nan", "first values"]


File = Annotated[
    str, typer.Argument(metavar="FILE", help="IR text, StableHLO or HLO; - is standard input.")
]
Program = Annotated[
    str | None,
    typer.Option("--program", metavar="NAME", help="Which program, if there are several."),
]
Dims = Annotated[
    str, typer.Option("--dims", metavar="B=1,S=8", help="Sizes of the program's symbols.")
]
Inputs = Annotated[
    str | None,
    typer.Option("--inputs", metavar="FILE.npz", help="Arrays by name; what is missing is random."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the random inputs.")]
On = Annotated[
    Literal["auto", "numpy", "cpu"],
    typer.Option(
        "--on",
        help="NumPy evaluates op by op; cpu compiles with XLA; auto is NumPy where it can.",
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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def run(
    file: File,
    program: Program = None,
    dims: Dims = "",
    inputs: Inputs = None,
    seed: Seed = 0,
    on: On = "auto",
    per_rank: PerRank = False,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Run a program and describe what it gives.

    Without --inputs they are random and depend on --seed and their names only: token ids in range,
    positions 0 to S-1, lengths S, row b in cache row b, small normal weights, empty caches. Inputs
    and outputs are whole tensors, as the checkpoint and the caller have them; a partitioned module
    is run on all its ranks. Of a dump, types are those of one rank: an array of --inputs may be
    for all ranks, or have one more dimension in front for each rank's own.

    \b
    Examples:
      graphgen run m.gg --program prefill
      graphgen run m.gg --program decode --dims B=2,R=4,C=64,M=64 --on cpu --json
      graphgen run m.gg --program prefill --save prefill.npz
      graphgen run m.gg --program decode --inputs prefill.npz
      graphgen run dump.pb --per-rank --seed 3
    """
    if save is not None:
        check_output(save)
    module, function = _bound(read_module(file), program, dims)
    on = _backend(module, on)
    if on == "cpu":
        module, function = _for_cpu(module, function)
    given, own = _inputs(module, function, inputs, seed, per_rank=per_rank)
    outputs = _execute(module, function, given, own, on)
    if save is not None:
        _save(save, outputs)
    for output in outputs:
        if output.ranks_differ and function.phase:
            note(f"output {output.entry.name} is not the same on all ranks; shown is rank 0")
    if as_json:
        _print_json(module, function, outputs, on=on, seed=seed)
    else:
        _print_table(outputs)


def _bound(module: Module, name: str | None, dims: str) -> tuple[Module, Function]:
    """The module with one program and every symbol bound, and that program."""
    from graphgen.analysis import free_symbols
    from graphgen.cli.inspect.dims_option import (
        check_sizes,
        check_slots,
        default_sizes,
        parse_sizes,
    )
    from graphgen.exec.bind import bind_module, isolate

    function = choose_program(module, name)
    sizes = parse_sizes(dims)
    check_sizes(module, function, sizes)
    single = isolate(module, function)
    free = free_symbols(single.functions.values())
    if module.level == "logical" and free - sizes.keys():
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
    """Sizes may contradict each other: more slots read than there are."""
    from graphgen.ops import verify

    try:
        verify(module)
    except GraphgenError as error:
        shown = ",".join(f"{key}={size}" for key, size in sizes.items())
        error.help = error.help or f"the sizes do not go together: {shown}"
        raise


def _backend(module: Module, on: Literal["auto", "numpy", "cpu"]) -> Literal["numpy", "cpu"]:
    """Where to run: what only XLA knows runs there, unless told otherwise."""
    if on != "auto":
        return on
    codes = sorted(
        {
            op.attrs.text("opcode")
            for function in module.functions.values()
            for op in function.block
            if op.name == "hlo.opaque"
        }
    )
    if codes:
        note(f"compiling with XLA, which knows {', '.join(codes)}")
    return "cpu" if codes else "numpy"


def _for_cpu(module: Module, function: Function) -> tuple[Module, Function]:
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.remaining import remaining

    run_pipeline(module, remaining(module))
    return module, module.function(function.name)


def _inputs(
    module: Module, function: Function, file: str | None, seed: int, *, per_rank: bool
) -> tuple[dict[str, Array], dict[str, list[Array]]]:
    """An array for every logical input, from the file, else random; and those of each rank."""
    from graphgen.exec.bind import given_array
    from graphgen.exec.inputs import RandomInputs, read_arrays
    from graphgen.exec.program_run import needed, ranks_of

    rows = needed(module, function)
    arrays = read_arrays(file) if file is not None else {}
    _check_names(arrays, module, [row.name for row in rows], function)
    maker, ranks = RandomInputs(module, function, seed), ranks_of(module)
    made: dict[str, Array] = {}
    own: dict[str, list[Array]] = {}
    for row in rows:
        array, type_ = arrays.get(row.name), row.logical
        if array is not None and _stacked(row, array, ranks):
            own[row.name] = [given_array(array[rank], type_, row.name) for rank in range(ranks)]
        elif array is not None:
            made[row.name] = given_array(array, type_, row.name)
        elif per_rank and ranks > 1 and type_.dtype.is_float and not row.pack:
            own[row.name] = [maker.make(row, type_, rank) for rank in range(ranks)]
        else:
            made[row.name] = maker.make(row, type_)
    if file is not None:
        count = sum(row.name in arrays for row in rows)
        note(f"{count} of {len(rows)} inputs from {file}, the others random (seed {seed})")
    return made, own


def _stacked(row: Entry, array: Array, ranks: int) -> bool:
    """Whether the array holds one for each rank."""
    return ranks > 1 and not row.pack and array.shape == (ranks, *row.logical.dims)


def _check_names(
    arrays: Mapping[str, Array], module: Module, wanted: Sequence[str], function: Function
) -> None:
    """An array nobody takes is a mistake, unless the module knows it, such as another's output."""
    unknown = sorted(arrays.keys() - set(wanted) - module.interface.keys())
    if unknown:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], wanted, n=2)
        raise GraphgenError(
            "GG0402",
            f"@{function.name} has no input called {', '.join(unknown)}",
            help=f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(wanted)}",
        )
    idle = sorted(arrays.keys() - set(wanted))
    if idle:
        note(f"@{function.name} does not take {', '.join(idle)}")


def _execute(
    module: Module,
    function: Function,
    given: Mapping[str, Array],
    own: Mapping[str, Sequence[Array]],
    on: str,
) -> list[ProgramOutput]:
    from graphgen.exec import NumpyBackend, run_program

    if on == "cpu":
        from graphgen.lowering.cpu.backend import CpuBackend

        return run_program(module, function, given, CpuBackend(devices=1), own)
    return run_program(module, function, given, NumpyBackend(), own)


def _save(name: str, outputs: Sequence[ProgramOutput]) -> None:
    import numpy as np

    from graphgen.exec.inputs import write_arrays

    arrays = {
        output.entry.name: np.stack(output.parts) if output.parts else output.array
        for output in outputs
    }
    write_file(name, lambda file: write_arrays(file, arrays))


def _print_table(outputs: Sequence[ProgramOutput]) -> None:
    from graphgen.report.array_summary import summarize

    rows = [
        [output.entry.name, output.type.text, *summarize(output.array).cells()]
        for output in outputs
    ]
    write_stdout(table(_COLUMNS, rows, sys.stdout))


def _print_json(
    module: Module, function: Function, outputs: Sequence[ProgramOutput], *, on: str, seed: int
) -> None:
    from graphgen.exec.program_run import ranks_of
    from graphgen.report.array_summary import summarize

    write_json(
        {
            "module": module.name,
            "program": function.name,
            "level": module.level,
            "ranks": ranks_of(module),
            "on": on,
            "seed": seed,
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
    )
