"""``graphgen cost``: the roofline of a module on an accelerator."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.files import write_bytes
from graphgen.cli.inspect_files import note_global_sizes
from graphgen.cli.model_flags import (
    FLAT,
    CollectiveForm,
    InstanceName,
    Nodes,
    check_instance,
    levels_text,
)
from graphgen.cli.module_file import programs_or_functions, read_lowered
from graphgen.cli.shared_options import (
    AcceleratorName,
    AsJson,
    Dims,
    EvidenceFile,
    Lnc,
    ModuleFile,
    OnlyProgram,
    PlotFile,
    check_plot,
)
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.passes.weights.weight_copies import copies_remark, weight_copies
from graphgen.report.live_memory import memory_json, program_memory
from graphgen.report.table import Report, Table
from graphgen.report.units import milliseconds, number, size
from graphgen.targets import DEFAULT_ACCELERATOR

if TYPE_CHECKING:
    from graphgen.ir import Function, Module
    from graphgen.lowering.cost.roofline import Roofline, RooflineCost
    from graphgen.targets import Accelerator

COMMAND: Final = Command("neuron", "Estimate a module's time on an accelerator.")

# The limit in neuronx-cc's message; it depends on the version.
INSTRUCTIONS = 5_000_000


def cost(
    file: ModuleFile,
    target: AcceleratorName = DEFAULT_ACCELERATOR,
    lnc: Lnc = 0,
    nodes: Nodes = 1,
    instance: InstanceName = "",
    collectives: CollectiveForm = "staged",
    dims: Dims = "",
    program: OnlyProgram = None,
    plot: PlotFile = None,
    measured: Annotated[
        list[str] | None,
        typer.Option(
            "--measured", metavar="PROGRAM=MS", help="Measured time of a program or a phase."
        ),
    ] = None,
    evidence: EvidenceFile = None,
    as_json: AsJson = False,
) -> None:
    """Estimate what each layer takes at the device's peak rates: compute, memory and links.

    The times are bounds from below, computed from the device's published figures; nothing ran.
    --plot draws the roofline with the ops as points, the time of each kind of op, and the memory
    that is live while each op runs; --json has the numbers. With --nodes the ranks fill several
    nodes, and what these send each other takes the links between them: the least that stages of a
    collective take, or with --collectives flat what one ring or mesh over all ranks does.

    \b
    Examples:
      graphgen cost decode.gg --target trn2
      graphgen cost step.pb --target inf2 --json
      graphgen cost m.gg --measured decode=37.9 --measured prefill=2442
      graphgen cost m.gg --program decode --plot decode.svg
      graphgen cost rank.gg --target trn2 --nodes 4
      graphgen cost rank.gg --target trn2 --nodes 4 --collectives flat
    """
    from graphgen.lowering.cost.roofline import roofline
    from graphgen.targets import accelerator, over_nodes

    check_plot(plot)
    check_instance(nodes, instance)
    module = read_lowered(file, accelerator(target, lnc).name, dims)
    device = over_nodes(accelerator(target, lnc), nodes, instance, module.ranks)
    device = replace(device, flat_collectives=collectives == FLAT)
    note_global_sizes(module)
    functions = programs_or_functions(module, program)
    seen = _measured(measured or [], functions)
    _note_rates(device, evidence)
    lines = [roofline(module, function, device) for function in functions]
    emit(
        as_json,
        lambda: _json(device, module, lines, seen),
        lambda: _report(device, module, lines, seen),
    )
    if plot is not None:
        from graphgen.lowering.cost.cost_picture import cost_picture

        write_bytes(plot, [cost_picture(plot, module, lines, device)])
        note(f"wrote {plot}")


def _note_rates(device: Accelerator, evidence: str | None) -> None:
    """Note the rates that device kits measured (GG1004)."""
    if not evidence:
        return
    from graphgen.lowering.check.evidence import read_evidence

    for text in read_evidence(evidence).figures.get((device.name, device.lnc), ()):
        note(f"measured by a device kit, {text}")


def _measured(given: list[str], functions: list[Function]) -> dict[str, float]:
    """Milliseconds by program (GG0705 for an unknown program, or a number that is not positive)."""
    found: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        programs = [f.name for f in functions if name in (f.name, f.phase)]
        try:
            milliseconds = float(value)
        except ValueError:
            milliseconds = 0.0
        if not programs or milliseconds <= 0:
            names = ", ".join(f.name for f in functions)
            raise GraphgenError(
                "GG0705", f"--measured {text} is not a time of a program", help=f"programs: {names}"
            )
        found.update(dict.fromkeys(programs, milliseconds))
    return found


def _report(
    device: Accelerator, module: Module, lines: list[Roofline], measured: dict[str, float]
) -> Report:
    ranks = f"{module.ranks} rank{'s' * (module.ranks != 1)}"
    head = (
        f"@{module.name} on {device.name} ({device.core}, LNC {device.lnc}), {ranks}: "
        f"{device.flops['bf16'] / 1e12:.0f} TFLOP/s in bf16, "
        f"{device.hbm_bandwidth / 1e9:.0f} GB/s, {device.hbm_bytes / 1e9:.1f} GB a core\n"
    )
    head += levels_text(device)
    if copies := weight_copies(module):
        head += f"{copies_remark(copies)}\n"
    programs = [part for line in lines for part in _program(device, module, line, measured)]
    return [head, *programs]


def _program(
    device: Accelerator, module: Module, line: Roofline, measured: dict[str, float]
) -> list[str | Table]:
    function = line.function
    rows = [
        [
            _name(g.first, g.last),
            str(g.count),
            *_cells(g.each),
            f"{1e3 * g.count * g.each.seconds:.3f}",
        ]
        for g in line.groups
    ]
    headers = ["layers", "count", "compute ms", "memory ms", "link ms", "bound", "all ms"]
    layers = Table(headers, rows, 6)
    unit = "to the first token" if function.phase == "prefill" else "a step"
    total, took, seen = line.total, measured.get(function.name), ""
    if took is not None:
        share = 1e5 * line.seconds / took
        seen = f"measured {took:g} ms: the roofline is {share:.1f} % of it\n"
    risk = " (over neuronx-cc's limit of 5,000,000)" if total.instructions > INSTRUCTIONS else ""
    head = f"@{function.name}: {milliseconds(line.seconds)} {unit}, at least\n{seen}"
    held = _held(module, line)
    foot = (
        f"  {_flops(total.flops)}, {_bytes(total.bytes)} of device memory, "
        f"{total.link_bytes / 1e6:.3f} MB over links{_between(device, total)}\n"
        f"  memory: {f'{held / 1e9:.2f} GB' if held >= 1e7 else size(int(held))} "
        f"of {device.hbm_bytes / 1e9:.1f} GB\n"
        f"  instructions: at least {total.instructions:,}{risk}\n"
    )
    return [head, layers, foot]


def _flops(count: float) -> str:
    return f"{count / 1e9:.2f} GFLOP" if count >= 1e7 else f"{number(int(count))} FLOP"


def _bytes(count: float) -> str:
    return f"{count / 1e9:.3f} GB" if count >= 1e6 else size(int(count))


def _between(device: Accelerator, total: RooflineCost) -> str:
    return f", {total.node_bytes / 1e6:.3f} MB of a node to others" if device.node_ranks else ""


def _name(first: str, last: str) -> str:
    if not first:
        return "outside of layers"
    return first if first == last else f"{first} to {last}"


def _cells(each: RooflineCost) -> list[str]:
    times = (each.compute_s, each.memory_s, each.link_s)
    return [*(f"{1e3 * seconds:.4f}" for seconds in times), each.bound]


def _held(module: Module, line: Roofline) -> int:
    """Arguments, and the worst moment between."""
    return program_memory(module, line.function).total


def _json(
    device: Accelerator, module: Module, lines: list[Roofline], measured: dict[str, float]
) -> Json:
    from graphgen.lowering.cost.roofline import op_groups

    return {
        "target": device.name,
        "lnc": device.lnc,
        "ranks": module.ranks,
        "levels": [asdict(level) for level in device.levels],
        "second_copies": sum(item.bytes for item in weight_copies(module)),
        "sources": dict(device.sources),
        "programs": [
            {
                "name": line.function.name,
                "phase": line.function.phase or None,
                "seconds": line.seconds,
                **_share(line, measured.get(line.function.name)),
                **_memory(module, line),
                "core_bytes": device.hbm_bytes,
                "total": {**asdict(line.total), "bound": line.total.bound},
                "groups": [
                    {
                        "first": group.first or None,
                        "last": group.last or None,
                        "count": group.count,
                        "seconds": group.each.seconds,
                        **asdict(group.each),
                        "bound": group.each.bound,
                    }
                    for group in line.groups
                ],
                "op_groups": [
                    {**asdict(group), "bound": group.bound}
                    for group in op_groups(module, line.function, device)
                ],
            }
            for line in lines
        ],
    }


def _memory(module: Module, line: Roofline) -> dict[str, Json]:
    memory = program_memory(module, line.function)
    return {"memory_bytes": memory.total, "live": memory_json(memory)}


def _share(line: Roofline, took: float | None) -> dict[str, Json]:
    if took is None:
        return {}
    return {"measured_s": took / 1e3, "share": 1e3 * line.seconds / took}
