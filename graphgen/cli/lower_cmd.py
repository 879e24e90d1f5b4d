"""``graphgen lower``: a module's programs as StableHLO text or HLO protobufs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.cli.certify import ProveIt, require_file, require_proved
from graphgen.cli.command_table import Command
from graphgen.cli.console import note, write_json
from graphgen.cli.files import STANDARD, check_output, make_folder, write_bytes
from graphgen.cli.module_file import choose_program, read_module, tell_sizes
from graphgen.cli.open_sizes import with_sizes
from graphgen.cli.shared_options import (
    Dims,
    ModuleFile,
    OnlyProgram,
    TargetName,
    load_pipeline,
    pipeline_sizes,
)
from graphgen.errors import GraphgenError
from graphgen.exec.bind import isolate
from graphgen.ir import Function, Module
from graphgen.ir.clone import clone_module
from graphgen.json_value import Json
from graphgen.read_file import is_folder

if TYPE_CHECKING:
    from graphgen.passes.core import Pass
    from graphgen.passes.proof.refinement_result import RefinementProof

COMMAND: Final = Command("neuron", "Turn a module's programs into StableHLO or HLO.", order=1)

# Forms of a program, and the endings of their files.
Form = Literal["stablehlo", "hlo", "hlo-text"]
SUFFIX: dict[Form, str] = {"stablehlo": ".mlir", "hlo": ".pb", "hlo-text": ".hlo"}
Output = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="A file, or a folder for several programs; - is stdout.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what was written as JSON; needs -o.")]
Pipeline = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--pipeline",
        metavar="PIPELINE",
        help="Passes to run first, instead of what is left of the default pipeline.",
    ),
]


def lower(
    file: ModuleFile,
    to: Annotated[Form, typer.Option("--to", help="The form to write.")] = "stablehlo",
    output: Output = STANDARD,
    pipeline: Pipeline = None,
    target: TargetName = "cpu",
    program: OnlyProgram = None,
    dims: Dims = "",
    prove: ProveIt = False,
    as_json: AsJson = False,
) -> None:
    """Turn a module's programs into StableHLO text, HLO protobufs or HLO text.

    The protobuf is an HloModuleProto as neuronx-cc takes it; the text is for people. A module that
    is not at level 'target' first goes through what is left of the default pipeline; stderr says
    which passes. For an accelerator those write in another form what its compiler refuses; so they
    do with a module that was read from HLO or StableHLO. Symbols without a size get specialize's
    sizes, or those of --dims. With several programs, -o names a folder: one file a program.

    --target is cpu by default, where 'generate' and 'run' run too; commands that ask about a device
    ('check', 'cost', 'plan', 'hash') are for trn2 by default. A note names the target.

    The lowered module is written beside its program, as FILE.gg, or lowered.gg in a folder. It has
    the interface and the weight preparation, so that 'graphgen equiv m.gg decode.pb' can compare
    the program with its source, and 'shard-weights --for decode.pb' prepare its weights.

    --prove also writes a certificate that every rank computes what the module does, see 'prove'.

    \b
    Examples:
      graphgen lower m.gg --to stablehlo --program prefill -o prefill.mlir
      graphgen lower dump.pb --target trn2 --to hlo -o legal.pb
      graphgen lower imported.gg --dims B=1,S=64 --target trn2 --to hlo -o step.pb
      graphgen lower m.gg -p 'specialize{batch=[1],context=[64],tokens=[64]},legalize' -o programs/
    """
    from graphgen.lowering.lowered_module import write_lowered
    from graphgen.lowering.stablehlo.bind_sizes import leaves_sizes_open
    from graphgen.passes.partial_pipeline import as_it_stands

    _require_output(output, as_json=as_json, prove=prove)
    module = _read_valid(file)
    module, program, dims = _sized(module, program, dims, to)
    open_ = leaves_sizes_open(module)
    function = choose_program(module, program) if program else None
    if function is not None:
        module = isolate(module, function)
    foreign = open_ or as_it_stands(module)
    source = clone_module(module) if prove else None
    passes = list["Pass"]() if open_ else _prepare(module, pipeline, target, dims)
    # Specialization makes one program per bucket; other functions keep their names.
    chosen = module.programs()
    if function is not None and not function.phase:
        chosen = [module.function(function.name)]
    files = _write(module, chosen, to, output)
    beside = None
    if output != STANDARD and not foreign:
        beside = write_lowered(module, files, target, [str(item) for item in passes])
    _report(module, chosen, files, beside, as_json=as_json)
    if source is not None:
        require_proved(_certify(source, module, [f.name for f in chosen], files, beside))


def _read_valid(file: str) -> Module:
    """Read a module, which must not contradict itself (GG0203)."""
    from graphgen.lowering.contradictions import require_valid

    module = read_module(file)
    require_valid(module)
    return module


def _require_output(output: str, *, as_json: bool, prove: bool) -> None:
    if as_json and output == STANDARD:
        raise typer.BadParameter("needs -o: standard output is the program", param_hint="'--json'")
    require_file(output, prove=prove)


def _sized(
    module: Module, program: str | None, dims: str, to: Form
) -> tuple[Module, str | None, str]:
    """Bind what StableHLO leaves open; it is written with open sizes, if nothing binds them.

    Returns:
        The module, and the program and the sizes that are still to be chosen.
    """
    from graphgen.lowering.stablehlo.bind_sizes import has_quantized, leaves_sizes_open

    open_ = leaves_sizes_open(module)
    needed = open_ and bool(dims) if to == "stablehlo" else open_ or has_quantized(module)
    if not needed:
        return module, program, dims
    sized = with_sizes(module, program, dims)
    return (module, program, dims) if sized is module else (sized, None, "")


def _certify(
    source: Module, module: Module, programs: list[str], files: list[str], beside: Path | None
) -> tuple[Path, RefinementProof]:
    """Write the certificate of programs that were written (GG0710 for a file of another one)."""
    from graphgen.lowering.certificate import ENDING, CertificateFiles, write_certificate

    first = Path(files[0])
    several = len(files) > 1
    stem = first.parent / "proved" if several else first
    target = stem.with_name(f"{stem.name}.target.gg") if beside is None else beside
    written = CertificateFiles(
        first.parent,
        f"{stem.name}.source.gg",
        target.name,
        dict(zip(programs, [Path(file).name for file in files], strict=True)),
    )
    given = module if beside is None else None
    return write_certificate(source, given, written, f"{stem.name}{ENDING}")


def _prepare(module: Module, pipeline: str | None, target: str, dims: str) -> Sequence[Pass]:
    """Bring the module to level target, in place, by the passes that are returned."""
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.partial_pipeline import foreign, remaining
    from graphgen.targets import find_target

    find_target(target)
    sizes = pipeline_sizes(module, dims)
    if pipeline is not None and sizes:
        raise GraphgenError(
            "GG0705",
            "--dims and --pipeline both say the sizes",
            help=f"-p 'default{{dims=[{','.join(sizes)}]}}' says them in the pipeline",
        )
    if pipeline is not None:
        passes = load_pipeline(pipeline)
        run_pipeline(module, passes)
        return passes
    passes = remaining(module, target, sizes) or foreign(module, target)
    if passes:
        note(f"lowering for {target}: {','.join(map(str, passes))}")
        tell_sizes(module, passes)
        run_pipeline(module, passes)
    return passes


def _write(module: Module, chosen: list[Function], to: Form, output: str) -> list[str]:
    from graphgen.atomic_write import write_inside
    from graphgen.lowering.program_file import program_bytes

    targets = _targets([function.name for function in chosen], output, SUFFIX[to])
    for function, target in zip(chosen, targets, strict=True):
        chunks = program_bytes(module, function, SUFFIX[to])
        if is_folder(Path(output)):
            # Names of programs are those of a file from elsewhere.
            write_inside(Path(output), Path(target), lambda file, c=chunks: file.writelines(c))
        else:
            write_bytes(target, chunks)
    return targets


def _report(
    module: Module, chosen: list[Function], files: list[str], beside: Path | None, *, as_json: bool
) -> None:
    if as_json:
        facts: list[Json] = [
            {"program": function.name, "file": file, "ops": function.block.size}
            for function, file in zip(chosen, files, strict=True)
        ]
        more: dict[str, Json] = {"lowered": str(beside) if beside is not None else None}
        write_json({"module": module.name, "ranks": module.ranks, "programs": facts, **more})
    elif files != [STANDARD]:
        also = f"; {beside} is the module" if beside is not None else ""
        note(f"wrote {', '.join(files)}{also}")


def _targets(names: list[str], output: str, suffix: str) -> list[str]:
    """The file of each program."""
    if not names:
        raise GraphgenError("GG0705", "the module has no program to lower")
    folder = output.endswith("/") or is_folder(Path(output))
    if output == STANDARD or (len(names) == 1 and not folder):
        if len(names) > 1:
            raise GraphgenError(
                "GG0705",
                f"standard output holds one program, the module has {', '.join(names)}",
                help=f"choose one, --program {names[0]}, or name a folder: -o FOLDER",
            )
        check_output(output)
        return [output]
    home = make_folder(output)
    return [str(home / f"{name}{suffix}") for name in names]
