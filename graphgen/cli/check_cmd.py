"""``graphgen check``: predict diagnostics of neuronx-cc from rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.inspect_files import note_global_sizes
from graphgen.cli.module_file import read_lowered
from graphgen.cli.shared_options import (
    AcceleratorName,
    AsJson,
    CompilerFlags,
    Dims,
    EvidenceFile,
    Lnc,
    ModuleFile,
)
from graphgen.json_value import Json
from graphgen.targets import DEFAULT_ACCELERATOR

if TYPE_CHECKING:
    from graphgen.lowering.check.check import Finding

COMMAND: Final = Command("neuron", "Predict what neuronx-cc will refuse.")


def check(
    file: ModuleFile,
    target: AcceleratorName = DEFAULT_ACCELERATOR,
    lnc: Lnc = 0,
    dims: Dims = "",
    flags: CompilerFlags = "",
    sdk_next: Annotated[
        bool, typer.Option("--sdk-next", help="As announced for the SDK after 2.32.")
    ] = False,
    evidence: EvidenceFile = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show remarks (info) as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict what the compiler will refuse, warn of, or do slowly. Exit status 1 for errors.

    No compiler runs: rules come from AWS's documentation, its open sources and reports, and every
    finding says from which. A module that is not lowered yet is lowered first. With --evidence, the
    results of device kits raise and lower the trust of rules.

    \b
    Examples:
      graphgen check decode.pb --target trn2
      graphgen check mini.gg --target trn1 --flags='--implicit-integer-downcast=none' --json
      graphgen check decode.pb --target trn2 --evidence evidence.json
    """
    from graphgen.lowering.check.check import check as find
    from graphgen.lowering.check.evidence import read_evidence, with_evidence
    from graphgen.lowering.check.predicates import Request
    from graphgen.targets import accelerator

    said = read_evidence(evidence) if evidence else None
    device = accelerator(target, lnc)
    module = read_lowered(file, device.name, dims)
    note_global_sizes(module)
    request = Request(device.name, device.lnc, flags, sdk_next)
    findings = find(module, request)
    if said is not None:
        findings = with_evidence(module, findings, request, said)
    found = [item for item in findings if show_all or item.severity != "info"]
    facts: dict[str, Json] = {"target": device.name, "lnc": device.lnc}
    emit(as_json, lambda: {**facts, "findings": [f.to_json() for f in found]}, lambda: _text(found))
    if any(item.severity == "error" for item in found):
        raise typer.Exit(1)


def _text(found: Sequence[Finding]) -> str:
    """Diagnostics as a compiler prints them; findings that differ in place only share one."""
    if not found:
        return "nothing found, by the rules; no compiler ran\n"
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for item in found:
        groups.setdefault((item.severity, item.rule, item.what, item.fix), []).append(item)
    lines = [line for items in groups.values() for line in _group(items)]
    counts = Counter(item.severity for item in found)
    summary = ", ".join(f"{count} {severity}" for severity, count in counts.items())
    return "\n".join([*lines, f"{summary}; no compiler ran", ""])


def _group(items: Sequence[Finding]) -> list[str]:
    first = items[0]
    code = f"[{first.code}]" if first.code else ""
    times = f"  ({len(items)} times)" if len(items) > 1 else ""
    return [
        f"{first.severity}{code}: {first.rule}: {first.what}{times}",
        f"  --> @{first.function} {first.where}".rstrip(),
        *([f"  fix: {first.fix}"] if first.fix else []),
        *([f"  rewritten by: {first.rewrite}"] if first.rewrite else []),
        f"  trust: {first.trust}" + (f", {first.source}" if first.source else ""),
        "",
    ]
