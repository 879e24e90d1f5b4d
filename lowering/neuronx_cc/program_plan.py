"""The programs of a module with a command line, a key and an estimate of memory each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from graphgen.analysis.stage_chain import stage_count
from graphgen.atomic_write import remove_inside, write_inside
from graphgen.errors import GraphgenError
from graphgen.exec.bind import isolate
from graphgen.ir import Function, Module
from graphgen.lowering.canonical_hash import Compilation, canonical_hash
from graphgen.lowering.check.check import Finding, check
from graphgen.lowering.check.predicates import Request
from graphgen.lowering.compile_cache.cache_entry import digest
from graphgen.lowering.hlo import hlo_chunks
from graphgen.lowering.neuronx_cc.command_line import CommandLine, OptionLayer, merge
from graphgen.lowering.neuronx_cc.default_options import (
    Difference,
    Situation,
    default_layers,
    differences,
)
from graphgen.lowering.neuronx_cc.option_text import text_of
from graphgen.ops.control import callees, kernel_of
from graphgen.passes.outline.mark_layers import is_marked
from graphgen.targets import Accelerator

HLO, COMMAND, NEFF, LOG = "graph.hlo", "command.txt", "graph.neff", "log-neuron-cc.txt"
# The borders of layers are in the program: the compiler is not to look for them.
_MARKS = OptionLayer(
    "marks of layers", "--internal-hlo2tensorizer-options='--recursive-layer-det=false'"
)
# Memory of a compiler: of any program, and for each byte of its HLO. Nothing public says it: a
# guess that reports of compilers killed on machines of 32 GB do not contradict. The bytes that a
# compilation took are kept in the cache and replace it.
_BASE_BYTES, _BYTES_PER_HLO_BYTE = 2 << 30, 2000


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """A program to compile.

    Attributes:
        name: of the function.
        sub_model: the name of the programs of its phase.
        command: the options, with their origins.
        differences: options that NxD Inference would drop here.
        key: canonical hash of the program for its target, without options and version.
        folder: of its files, below the output; empty until they are written.
        output: the folder that the user named; no symbolic link below it is followed to write.
        hlo_bytes: of the HLO file; 0 until it is written.
        findings: of ``graphgen check``, infos left out.
    """

    name: str
    sub_model: str
    command: CommandLine
    differences: tuple[Difference, ...]
    key: str
    findings: tuple[Finding, ...] = ()
    folder: Path = Path()
    output: Path = Path()
    hlo_bytes: int = 0

    @property
    def errors(self) -> list[Finding]:
        """Findings that say that the compiler will refuse the program."""
        return [item for item in self.findings if item.severity == "error"]

    @property
    def memory(self) -> int:
        """Bytes that a compiler is expected to take."""
        return _BASE_BYTES + _BYTES_PER_HLO_BYTE * self.hlo_bytes

    def words(self) -> list[str]:
        """The arguments of the compiler, run in :attr:`folder`.

        Options that take several words come last, so that none of them swallows the file.
        """
        invocation = ["compile", "--framework", "XLA", HLO, f"--output={NEFF}", f"--logfile={LOG}"]
        return [*invocation, *self.command.words]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The target of a module and the options of its programs.

    Attributes:
        device: the target.
        sub_models: names of the programs of a phase.
        layers: the options of a program, the defaults among them: of its phase, and of the number
            of its layers that call one function.
        situation: the facts that the defaults depend on, of the same.
    """

    device: Accelerator
    sub_models: Mapping[str, str]
    layers: Callable[[str, int], Sequence[OptionLayer]]
    situation: Callable[[str, int], Situation]


def options_by_default(
    base: Situation, device: Accelerator, sub_models: Mapping[str, str], more: Sequence[OptionLayer]
) -> PlanOptions:
    """The options of programs that no configuration of AWS's describes.

    Args:
        base: of any phase.
        device: the target.
        sub_models: names of the programs of a phase.
        more: the user's layers.
    """

    def situation(phase: str, shared: int) -> Situation:
        return replace(base, phase=phase, shared_layers=shared)

    def layers(phase: str, shared: int) -> Sequence[OptionLayer]:
        return [*default_layers(situation(phase, shared)), *more]

    return PlanOptions(device, sub_models, layers, situation)


def plan_programs(
    module: Module, options: PlanOptions, *, checked: bool = True
) -> list[PlannedProgram]:
    """Plan every program of a module.

    Args:
        module: at level ``target``, legalized for the target.
        options: how it is compiled.
        checked: run the rules of ``graphgen check``.

    Raises:
        GraphgenError: GG0705 for options that contradict the target, and for stages of a pipeline.
    """
    if stage_count(module) > 1:
        raise GraphgenError(
            "GG0705",
            "stages of a pipeline are not compiled for devices",
            help="leave pp_degree out",
        )
    return [plan_program(module, item, options, checked=checked) for item in module.programs()]


def plan_program(
    module: Module,
    function: Function,
    options: PlanOptions,
    more: Sequence[OptionLayer] = (),
    *,
    checked: bool = False,
) -> PlannedProgram:
    """Plan one program, with ``more`` options over those of all; otherwise as plan_programs."""
    device, phase = options.device, function.phase or ""
    shared = shared_layers(function)
    marks = [_MARKS] if is_marked(function) else []
    command = merge([*marks, *options.layers(phase, shared), *more])
    _agree(command, "--target", device.name)
    _agree(command, "--lnc", str(device.lnc))
    how = Compilation(device.name, device.lnc)
    request = Request(device.name, device.lnc, command.text)
    found = check(isolate(module, function), request) if checked else []
    return PlannedProgram(
        function.name,
        options.sub_models.get(phase, phase or "program"),
        command,
        tuple(differences(options.situation(phase, shared), command)),
        canonical_hash(module, function, how),
        tuple(item for item in found if item.severity != "info"),
    )


def shared_layers(function: Function) -> int:
    """The calls of the function that a program calls most: its layers, if it is outlined."""
    calls = [op for op in function.block if op.name == "call" and not kernel_of(op)]
    return max(Counter(name for op in calls for name in callees(op)).values(), default=0)


def _agree(command: CommandLine, name: str, wanted: str) -> None:
    """Refuse options that choose another device than the programs are made for (GG0705)."""
    for item in command.options:
        if item.option.name == name and item.option.value != wanted:
            raise GraphgenError(
                "GG0705",
                f"{item.origin} has {item.text}, and the programs are for {name}={wanted}",
                help=f"leave it out there, or give {name} {item.option.value} to graphgen compile",
            )


def program_folder(program: PlannedProgram, root: Path) -> Path:
    """The folder of a program below the output folder."""
    return root / "programs" / program.sub_model / program.name


def write_program(
    module: Module,
    program: PlannedProgram,
    folder: Path,
    output: Path,
    *,
    metadata: bool,
    more: Sequence[bytes] = (),
) -> PlannedProgram:
    """Write the HLO and the command line of a program into ``folder`` (GG0703, GG0704, GG0401).

    A NEFF of another HLO or another command line that is there is removed.

    Args:
        module: of the program.
        program: the program.
        folder: of its files, such as :func:`program_folder`.
        output: the folder that the user named, which ``folder`` is in.
        metadata: write op names and source lines into the HLO.
        more: further fields of the HloModuleProto.
    """
    chunks = [*hlo_chunks(module, module.function(program.name), metadata=metadata), *more]
    size = sum(map(len, chunks))
    placed = replace(program, folder=folder, output=output, hlo_bytes=size)
    text = command_text(placed).encode()
    before = _digests(folder)
    write_inside(output, folder / HLO, lambda file: file.writelines(chunks), parents=True)
    write_inside(output, folder / COMMAND, text)
    if before != _digests(folder):
        remove_inside(output, folder / NEFF)
    return placed


def _digests(folder: Path) -> list[str]:
    found: list[str] = []
    for name in (HLO, COMMAND):
        # A file that cannot be read is in the way of the writer, which names it.
        with suppress(OSError):
            found.append(digest(folder, folder / name))
    return found


def command_text(program: PlannedProgram) -> str:
    """The command line as a shell takes it, with a newline."""
    return f"neuronx-cc {text_of(program.words())}\n"
