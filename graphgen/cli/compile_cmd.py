"""``graphgen compile``: a model's programs through neuronx-cc, or their HLO and command lines."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.cli.certify import ProveIt, require_proved
from graphgen.cli.command_table import Command
from graphgen.cli.compile_progress import NO_LIMITS, CompilePlan, DriverOptions
from graphgen.cli.console import emit, note
from graphgen.cli.flags import NO_OPTIONS, with_compile_flags, with_field_flags
from graphgen.cli.model_flags import NO_SIZES, CallSizes, DoSample, OnDevice, with_size_flags
from graphgen.cli.shared_options import AcceleratorName, AsJson, CompilerFlags, Lnc
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_groups import COMPILER
from graphgen.errors import GraphgenError
from graphgen.gc_pause import paused_collector
from graphgen.json_value import Json
from graphgen.limits import JSON_BYTES
from graphgen.lowering.neuronx_cc.driver import CompiledProgram
from graphgen.lowering.neuronx_cc.program_plan import PlannedProgram, command_text
from graphgen.read_file import read_text_file
from graphgen.report.table import Table
from graphgen.report.units import size
from graphgen.targets import DEFAULT_ACCELERATOR, Accelerator, accelerator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphgen.cli.compile_progress import CompilePlan
    from graphgen.lowering.neuronx_cc.command_line import OptionLayer
    from graphgen.lowering.neuronx_cc.driver import CompiledProgram
    from graphgen.passes.proof.refinement_result import RefinementProof
    from graphgen.runtime.artifact.device_programs import DevicePrograms
    from graphgen.runtime.checkpoint.interfaces import Checkpoint
    from graphgen.runtime.tokenizer.tokenizer import Tokenizer
    from graphgen.targets import Accelerator

COMMAND: Final = Command("neuron", "Compile a model with neuronx-cc.", order=2)

CONFIG_FILE = "neuron_config.json"
# Sequences of a compilation that says nothing of lengths.
_POSITIONS = 2048


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A checkpoint, a config.json, a known shape, or a neuron_config.json.",
    ),
]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="A folder for the programs.")
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Rows of a call.")]
Elements = Annotated[
    Literal["f32", "bf16", "f16"], typer.Option("--dtype", help="Element type of the model.")
]
Weights = Annotated[
    bool, typer.Option("--weights", help="Write the weights of every rank of a checkpoint, too.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Run no compiler; -o gets HLO and command lines.")
]


@with_field_flags("driver_options", DriverOptions, COMPILER)
@with_size_flags()
@with_compile_flags(without=["dtype", "pp_degree", "kernels", "keep_quantized", "steps_per_launch"])
def compile_(
    model: Model,
    output: Output = None,
    target: AcceleratorName = DEFAULT_ACCELERATOR,
    lnc: Lnc = 0,
    batch: Batch = 1,
    dtype: Elements = "bf16",
    sizes: CallSizes = NO_SIZES,
    compile_options: CompileConfig = NO_OPTIONS,
    on_device_sampling: OnDevice = False,
    do_sample: DoSample = False,
    flags: CompilerFlags = "",
    driver_options: DriverOptions = NO_LIMITS,
    weights: Weights = False,
    dry_run: DryRun = False,
    prove: ProveIt = False,
    as_json: AsJson = False,
) -> None:
    """Compile every program of a model with neuronx-cc, or show how that would be done.

    Each bucket of each sub-model is a program: HLO, and a command line of the defaults for its
    phase, those of its family, NEURON_CC_FLAGS and --flags, merged so that none is lost. The rules
    of 'graphgen check' come first. Compilers run beside each other within a budget of memory;
    results are kept in a cache ('graphgen cache'), and a run that was stopped goes on. Written for
    the compiler's published command line, and tried with a stand-in alone.

    --prove writes a certificate that every rank computes what the model does ('graphgen prove').

    \b
    Examples:
      graphgen compile llama-3.1-8b --target trn2 --tp 8 --seq-len 4096 --dry-run
      graphgen compile llama-3.1-8b --target trn2 --tp 8 --dry-run --json -o programs
      graphgen compile ./checkpoint --target trn1 --tp 2 --seq-len 512 -o compiled --jobs 4
      graphgen compile compiled/neuron_config.json --target trn2 -o compiled
    """
    from graphgen.cli.compile_progress import compile_plan, make_plan, optimize_layouts

    _check_usage(model, output, weights=weights, dry_run=dry_run, prove=prove)
    layers, outline = _layers(flags), {"outline": driver_options.outline_layers}
    with paused_collector():
        if Path(model).name == CONFIG_FILE:
            _refuse_options(model, sizes, compile_options.updated(outline), driver_options)
            programs = _configured(Path(model), target, lnc, layers)
        else:
            sampling = _sampling(on_device_sampling, do_sample)
            options = compile_options.updated({"dtype": dtype, **sampling, **outline})
            demand, marked = _demand(batch, sizes, options), driver_options.layer_markers
            programs = _built(model, demand, accelerator(target, lnc), layers, marked=marked)
        optimize_layouts(programs, output, driver_options)
        plan = make_plan(programs, output, driver_options, dry_run=dry_run)
    device = programs.options.device
    proved = _certify(output, programs, plan) if prove and output else None
    if dry_run:
        emit(as_json, lambda: plan_json(device, plan), lambda: plan_report(device, plan))
    else:
        assert output is not None
        made = compile_plan(plan, driver_options)
        _finish(output, programs, plan, made, model, weights=weights)
        emit(as_json, lambda: result_json(device, plan, made), lambda: result_report(made))
    require_proved(proved)


def _certify(
    output: Path, programs: DevicePrograms, plan: CompilePlan
) -> tuple[Path, RefinementProof]:
    """Write the certificate of the programs' HLO (GG0710 for a file that is another one)."""
    from graphgen.lowering.certificate import CertificateFiles, write_certificate
    from graphgen.lowering.lowered_module import PASSES, TARGET, with_meta
    from graphgen.lowering.neuronx_cc.program_plan import HLO
    from graphgen.runtime.model import logical_module
    from graphgen.runtime.progress import TerminalProgress

    built = programs.built
    known = {function.name for function in built.module.programs()}
    files = {
        item.name: (item.folder / HLO).relative_to(output).as_posix()
        for item in plan.programs
        if item.name in known
    }
    with TerminalProgress().task("proving the programs"):
        source, _ = logical_module(built.config, built.settings)
        meta = {
            TARGET: programs.options.device.name,
            PASSES: ",".join(s.name for s in built.reports),
        }
        stated = with_meta(built.module, meta)
        written = CertificateFiles(output, "proof/source.gg", "proof/target.gg", files)
        return write_certificate(source, stated, written, "certificate.json")


def _finish(
    output: Path,
    programs: DevicePrograms,
    plan: CompilePlan,
    made: Sequence[CompiledProgram],
    model: str,
    *,
    weights: bool,
) -> None:
    """Write the files beside the programs, weights among them if they are wanted."""
    from graphgen.passes.outline.mark_layers import is_marked
    from graphgen.runtime.artifact.device_folder import write_device_folder, write_device_weights
    from graphgen.runtime.aws_config.described_settings import described_settings
    from graphgen.runtime.progress import TerminalProgress

    if weights:
        checkpoint = _checkpoint(model, programs)
        tokenizer = _tokenizer(checkpoint)
        write_device_weights(output, programs, checkpoint, tokenizer, TerminalProgress())
    built, device = programs.built, programs.options.device
    file = Path(model)
    if file.name == CONFIG_FILE:
        config = read_text_file(file, JSON_BYTES, "GG0906")
    else:
        marked = any(is_marked(item) for item in built.module.programs())
        config = described_settings(built.config, built.settings, device, marked=marked)
    if not config:
        note(f"no {CONFIG_FILE}: its attributes cannot express these options")
    assert plan.compiler is not None
    write_device_folder(output, programs, made, plan.compiler.version, config)


def _checkpoint(model: str, programs: DevicePrograms) -> Checkpoint:
    """The weights of a model, which the programs must be able to read."""
    from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
    from graphgen.runtime.engine import locate_checkpoint

    checkpoint = locate_checkpoint(model)
    check_checkpoint(checkpoint, programs.module)
    return checkpoint


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer | None:
    """The tokenizer of a checkpoint; one without is compiled all the same, with a note."""
    from graphgen.runtime.tokenizer.tokenizer import load_tokenizer

    try:
        return load_tokenizer(checkpoint.path)
    except GraphgenError as error:
        note(f"no tokenizer, so that the folder takes no texts: {error.what}")
        return None


def _check_usage(
    model: str, output: Path | None, *, weights: bool, dry_run: bool, prove: bool
) -> None:
    if prove and output is None:
        raise typer.BadParameter("needs -o: the certificate is a file", param_hint="'--prove'")
    if output is None and not dry_run:
        raise typer.BadParameter("give a folder, or --dry-run", param_hint="'-o'")
    if weights and Path(model).name == CONFIG_FILE:
        raise typer.BadParameter("give the checkpoint as MODEL", param_hint="'--weights'")


def _sampling(on_device: bool, draws: bool) -> Mapping[str, object]:
    """The field of programs that choose tokens (GG0705)."""
    if draws and not on_device:
        raise GraphgenError(
            "GG0705",
            "--do-sample has no effect without --on-device-sampling",
            help="add it: programs draw then",
        )
    if not on_device:
        return {}
    # Only here: most programs give logits.
    from graphgen.runtime.sampling import Sampling
    from graphgen.runtime.sampling.sampling_flags import CANDIDATES, on_device_pass

    rows = [Sampling(do_sample=draws)]
    return {"sampling": on_device_pass(rows, CANDIDATES if draws else None, by_programs=True)}


def _layers(flags: str) -> list[OptionLayer]:
    """The user's options: those of the environment, then those of the command."""
    from graphgen.lowering.neuronx_cc.command_line import OptionLayer

    given = (("NEURON_CC_FLAGS", os.environ.get("NEURON_CC_FLAGS", "")), ("--flags", flags))
    return [OptionLayer(origin, text) for origin, text in given if text.strip()]


def _demand(batch: int, sizes: CallSizes, options: CompileConfig) -> CompileConfig:
    longest = sizes.max_len or max((*sizes.tokens, *sizes.context, 0)) or _POSITIONS
    return sizes.of(options, batch, longest)


def _built(
    model: str,
    demand: CompileConfig,
    device: Accelerator,
    layers: list[OptionLayer],
    *,
    marked: bool,
) -> DevicePrograms:
    from graphgen.runtime.artifact.device_programs import device_programs
    from graphgen.runtime.checkpoint.model_config import model_config
    from graphgen.runtime.progress import TerminalProgress

    with TerminalProgress().task(f"building the programs for {device.name}"):
        return device_programs(model_config(model), demand, device, layers, marked=marked)


def _refuse_options(
    file: str, sizes: CallSizes, options: CompileConfig, driver: DriverOptions
) -> None:
    """Refuse sizes and options beside a configuration, which has its own (GG0705)."""
    if driver.layer_markers or sizes != NO_SIZES or options != CompileConfig():
        raise GraphgenError(
            "GG0705",
            f"{file} has the sizes and options of the model",
            help="change them there, or give the model itself instead",
        )


def _configured(file: Path, target: str, lnc: int, layers: list[OptionLayer]) -> DevicePrograms:
    from graphgen.runtime.aws_nxdi.configured_programs import configured_programs
    from graphgen.runtime.progress import TerminalProgress

    with TerminalProgress().task(f"building the programs for {target}"):
        return configured_programs(file, target, lnc, layers)


VERIFIED = "no Neuron device and no neuronx-cc has verified it: by the published contract alone"


def plan_json(device: Accelerator, plan: CompilePlan) -> Json:
    """A plan with each option's origin."""
    compiler = plan.compiler
    return {
        "target": device.name,
        "lnc": device.lnc,
        "compiler": None
        if compiler is None
        else {"path": str(compiler.path), "version": compiler.version},
        "cache": str(plan.cache.root),
        "programs": [_program_json(plan, item) for item in plan.programs],
        "verified": VERIFIED,
    }


def _program_json(plan: CompilePlan, item: PlannedProgram) -> Json:
    counts = Counter(finding.severity for finding in item.findings)
    return {
        "name": item.name,
        "sub_model": item.sub_model,
        "key": item.key,
        "state": plan.state(item),
        "folder": str(item.folder) if item.hlo_bytes else None,
        "hlo_bytes": item.hlo_bytes or None,
        "memory_bytes": item.memory if item.hlo_bytes else None,
        "command": command_text(item).rstrip(),
        "flags": [
            {
                "flag": placed.text,
                "in": placed.option.inside or None,
                "origin": placed.origin,
                "replaced": [{"flag": text, "origin": origin} for text, origin in placed.replaced],
            }
            for placed in item.command.options
        ],
        "differences": [
            {"flag": found.option, "origin": found.origin, "why": found.why}
            for found in item.differences
        ],
        "findings": dict(counts),
    }


def plan_report(device: Accelerator, plan: CompilePlan) -> list[str | Table]:
    """A plan for people: the programs, then the options of each sub-model."""
    compiler = plan.compiler
    version = f"neuronx-cc {compiler.version}" if compiler else "no neuronx-cc is here"
    rows = [
        [
            *(item.sub_model, item.name, size(item.hlo_bytes) if item.hlo_bytes else "-"),
            *(size(item.memory) if item.hlo_bytes else "-", plan.state(item)),
        ]
        for item in plan.programs
    ]
    cores = f"{device.lnc} physical core{'s' * (device.lnc != 1)}"
    made: list[str | Table] = [
        f"{device.name}, {cores} per logical core; {version}\n",
        Table(["sub-model", "program", "HLO", "memory", ""], rows),
    ]
    seen: set[tuple[str, str]] = set()
    for item in plan.programs:
        key = (item.sub_model, item.command.text)
        if key not in seen:
            seen.add(key)
            made.append(
                Table([f"flags of {item.sub_model}", "in", "from", "replaced"], _flags(item))
            )
    made += _findings(plan.programs)
    made.append(f"{VERIFIED}\n")
    return made


def _flags(item: PlannedProgram) -> list[list[str]]:
    return [
        [
            *(placed.text, placed.option.inside, placed.origin),
            ", ".join(f"{text} ({origin})" for text, origin in placed.replaced),
        ]
        for placed in item.command.options
    ]


def _findings(programs: Sequence[PlannedProgram]) -> Iterator[str]:
    """Predicted errors, and the options that AWS's class of the family would drop."""
    lines = dict.fromkeys(
        f"predicted {finding.severity}: {finding.rule} {finding.code}: {finding.what}"
        for item in programs
        for finding in item.errors
    )
    lines |= dict.fromkeys(
        f"{found.option}: {found.why}" for item in programs for found in item.differences
    )
    if lines:
        yield "\n".join([*lines, ""])


def result_json(device: Accelerator, plan: CompilePlan, made: Sequence[CompiledProgram]) -> Json:
    """The compiled programs."""
    assert plan.compiler is not None
    return {
        "target": device.name,
        "lnc": device.lnc,
        "compiler": {"path": str(plan.compiler.path), "version": plan.compiler.version},
        "cache": str(plan.cache.root),
        "programs": [
            {
                "name": item.program.name,
                "sub_model": item.program.sub_model,
                "key": item.program.key,
                "neff": str(item.neff),
                "bytes": item.neff.stat().st_size,
                "origin": item.origin,
                "seconds": round(item.seconds, 3),
                "peak_bytes": item.peak_bytes,
            }
            for item in made
        ],
        "verified": VERIFIED,
    }


def result_report(made: Sequence[CompiledProgram]) -> list[str | Table]:
    """The compiled programs for people."""
    rows = [
        [
            *(item.program.sub_model, item.program.name, size(item.neff.stat().st_size)),
            *(f"{item.seconds:.1f} s", size(item.peak_bytes), item.origin),
        ]
        for item in made
    ]
    headers = ["sub-model", "program", "NEFF", "time", "memory", "from"]
    return [Table(headers, rows), f"{VERIFIED}\n"]
