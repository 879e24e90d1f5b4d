"""The outcome of a triage as a table, as JSON, and as a folder with a reproducer that was tried."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from graphgen.atomic_write import write_inside
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.inputs import write_arrays
from graphgen.exec.program_run import needed
from graphgen.ir import Function, Module
from graphgen.json_value import Json
from graphgen.lowering.backends.named import XlaBackend
from graphgen.lowering.backends.triage import RIGHT, WRONG, CompilerVerdict, Triage
from graphgen.lowering.cpu.backend import alone_for_xla, without_channels
from graphgen.lowering.cpu.given_file import HLO, HLO_TEXT, STABLEHLO
from graphgen.lowering.cpu.program import written_text
from graphgen.lowering.stablehlo.read import BYTECODE
from graphgen.report.table import Table

_ENDINGS: Final = {STABLEHLO: ".mlir", HLO: ".pb", HLO_TEXT: ".hlo"}
_COLUMNS = ["backend", "verdict", "where", "NumPy", "backend's", "ops"]


@dataclass(frozen=True, slots=True)
class FileReproducer:
    """The smallest program that shows a verdict, as files.

    Attributes:
        ops: of the program.
        files: contents by name; the program, its inputs and the report.
        shown: the verdict on the files, read again; ``None`` where they do not show it.
    """

    ops: int
    files: Mapping[str, bytes]
    shown: CompilerVerdict | None


def verdict_table(
    verdicts: Sequence[CompilerVerdict], reproducers: Mapping[str, FileReproducer]
) -> Table:
    """A row for each backend."""
    rows = [[v.name, v.state, *_cells(v), _size(reproducers.get(v.name))] for v in verdicts]
    return Table(_COLUMNS, rows)


def _cells(verdict: CompilerVerdict) -> list[str]:
    if verdict.difference is not None:
        also = f", as {', '.join(verdict.agrees)}" if verdict.agrees else ""
        found = verdict.difference
        return [found.place, found.expected, f"{found.found}{also}"]
    return [verdict.error.what if verdict.error is not None else "-", "-", "-"]


def _size(found: FileReproducer | None) -> str:
    return "-" if found is None else str(found.ops)


def verdict_json(verdict: CompilerVerdict, reproducer: FileReproducer | None) -> dict[str, Json]:
    """One verdict."""
    found, error = verdict.difference, verdict.error
    return {
        "backend": verdict.name,
        "verdict": verdict.state,
        "agrees": [*verdict.agrees],
        "difference": None
        if found is None
        else {
            "output": found.output,
            "index": [*found.index],
            "numpy": found.expected,
            "found": found.found,
        },
        "error": None if error is None else {"code": error.code, "what": error.what},
        "reproducer": None
        if reproducer is None
        else {
            "ops": reproducer.ops,
            "files": [*reproducer.files],
            "fails_again": reproducer.shown is not None,
        },
    }


def reproducer_of(
    triage: Triage,
    module: Module,
    verdict: CompilerVerdict,
    read: Callable[[str, bytes], tuple[Module, Function]],
) -> FileReproducer:
    """A minified program as files, which are read again and run.

    Args:
        triage: runs it.
        module: the program alone.
        verdict: on it, with the inputs that show it.
        read: opens a program of a name and content.
    """
    (function,) = module.programs()
    name, content = _as_given(triage, module, verdict) or _written(module, function)
    inputs = dict(verdict.inputs)
    shown = None
    try:
        again, entry = read(name, content)
        # The reader names arguments after the file, in the same order.
        rows, old = needed(again, entry), needed(module, function)
        inputs = {new.name: inputs[row.name] for new, row in zip(rows, old, strict=True)}
        shown = triage.shown(again, entry, verdict, inputs)
    except GraphgenError as error:
        note = f"the file could not be read again: {error.what}"
        verdict = replace(verdict, error=verdict.error or GraphgenError("GG0401", note))
    ops = module.op_count()
    arrays = _npz(inputs)
    report = _report(name, ops, verdict, shown, content, function.name)
    files = {name: content, "inputs.npz": arrays, "report.md": report.encode()}
    return FileReproducer(ops, files, shown)


def _as_given(triage: Triage, module: Module, verdict: CompilerVerdict) -> tuple[str, bytes] | None:
    """The user's file, where a compiler is at fault for nothing smaller than that."""
    backend = triage.backends[verdict.name]
    (function,) = module.programs()
    file = backend.files.find(module, function) if isinstance(backend, XlaBackend) else None
    return None if file is None else (f"program{_ENDINGS[file.form]}", file.data)


def _written(module: Module, function: Function) -> tuple[str, bytes]:
    """The program as StableHLO, or as HLO where only that can say it; IR text where neither can."""
    from graphgen.text import print_module

    try:
        alone, ready = alone_for_xla(module, function, as_is=True)
        without_channels(alone)
        text = written_text(alone, ready)[1]
    except GraphgenError:
        return "program.gg", print_module(module).encode()
    data = text.data if isinstance(text.data, bytes) else text.data.encode()
    return ("program.pb" if text.is_hlo else "program.mlir"), data


def _npz(arrays: Mapping[str, Array]) -> bytes:
    file = io.BytesIO()
    write_arrays(file, arrays)
    return file.getvalue()


def _report(
    file: str,
    ops: int,
    verdict: CompilerVerdict,
    shown: CompilerVerdict | None,
    content: bytes,
    program: str,
) -> str:
    """The report as Markdown."""
    words = ["graphgen", "triage", file, "--inputs", "inputs.npz", "--on", verdict.name]
    lines = [f"# {verdict.name}: {verdict.state} for {ops} ops", ""]
    found = verdict.difference
    if found is not None:
        lines += [
            f"Output `{found.place}` is {found.found}; NumPy, op by op, gives {found.expected}.",
            "",
        ]
    if verdict.error is not None:
        lines += [f"`{verdict.error.what}`", ""]
    if verdict.agrees:
        others = ", ".join(verdict.agrees)
        lines += [f"The same numbers come from {others}: they may share the code at fault.", ""]
    again = "It fails again as a file:" if shown is not None else "As a file it does not fail:"
    lines += [again, "", "```console", f"$ {shlex.join(words)}", "```", ""]
    if not file.endswith(".pb") and not content.startswith(BYTECODE):
        text = content.decode().rstrip()
        lines += [f"The program `@{program}`:", "", "```mlir", text, "```", ""]
    return "\n".join(lines)


def write_reproducers(
    folder: Path, reproducers: Mapping[str, FileReproducer], taken: Mapping[str, str]
) -> list[Path]:
    """Write the files of each reproducer into a folder of its own; returns these folders."""
    made: list[Path] = []
    for name, found in reproducers.items():
        home = folder / taken[name]
        for file, content in found.files.items():
            write_inside(folder, home / file, content, parents=True)
        made.append(home)
    return made


def at_fault(verdicts: Sequence[CompilerVerdict]) -> list[CompilerVerdict]:
    """The verdicts other than right, wrong ones first."""
    return sorted((v for v in verdicts if v.state != RIGHT), key=lambda v: v.state != WRONG)
