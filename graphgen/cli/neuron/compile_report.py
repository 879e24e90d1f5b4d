"""Plans and results of ``graphgen compile``, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from graphgen.cli.neuron.driver_run import CompilePlan
from graphgen.json_value import Json
from graphgen.lowering.neuron.compile.driver import CompiledProgram
from graphgen.lowering.neuron.compile.program_plan import PlannedProgram, command_text
from graphgen.report.table import Table
from graphgen.report.units import size
from graphgen.targets import Accelerator

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
