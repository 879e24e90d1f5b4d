"""All failures of a compilation as one error, and failures that a cache holds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphgen.errors import GraphgenError
from graphgen.lowering.compile_cache.cache_entry import LOG, CacheEntry, expiry
from graphgen.lowering.neuronx_cc.compiler_failure import CompilerFailure, failure_of_json, log_tail
from graphgen.lowering.neuronx_cc.program_plan import PlannedProgram


def failed(failures: Sequence[CompilerFailure], count: int) -> GraphgenError:
    """The error (GG1002) of all programs that did not compile.

    Args:
        failures: at least one.
        count: of all programs.
    """
    first = failures[0]
    codes = sorted({item.code for item in failures if item.code})
    shown = f" ({', '.join(codes)})" if codes else ""
    remedies = {item.remedy for item in failures}
    several = "the remedy of each is above"
    return GraphgenError(
        "GG1002",
        f"{len(failures)} of {count} programs did not compile{shown}",
        where=first.where or first.log,
        note="\n".join(line for item in failures for line in _lines(item)),
        help=f"{first.remedy if len(remedies) == 1 else several}; "
        "finished programs are kept, and are not compiled again",
    )


def _lines(item: CompilerFailure) -> Iterator[str]:
    code = f" [{item.code}]" if item.code else ""
    yield f"{item.program}: {item.kind}{code}: {item.what}"
    if item.op or item.where:
        yield f"  op: {' '.join(part for part in (item.op, item.where) if part)}"
    if item.rule:
        how = "predicted it" if item.predicted else "is about it, and did not fire"
        yield f"  graphgen check: the rule {item.rule} {how}"
    elif item.code:
        yield "  graphgen check: it has no rule about it"
    yield f"  remedy: {item.remedy}"
    if item.log:
        yield f"  log: {item.log}"
    yield from (f"    {line}" for line in item.tail.splitlines())


def failed_before(program: str, entry: CacheEntry) -> CompilerFailure:
    """The failure that a cache holds, of this tool or of another one."""
    record, log = entry.record, entry.folder / LOG
    hours = max(0.0, expiry(entry.folder, record) - time.time()) / 3600
    remark = f"it failed before; it is tried again in {hours:.0f} h, or now with --retry-failed"
    if record is not None and record.failure:
        known = failure_of_json(record.failure)
        remedy = f"{known.remedy} ({remark})"
        return replace(known, program=program, remedy=remedy, log=str(log))
    tail = log_tail(log.read_text("utf-8", "replace"))
    what = "the cache has a failure that another tool wrote"
    return CompilerFailure(program, "failed", what, remark, tail=tail, log=str(log))


def predicted(programs: Sequence[PlannedProgram]) -> GraphgenError:
    """The error (GG1003) of programs that the rules of ``graphgen check`` refuse."""
    refused = [program for program in programs if program.errors]
    lines = dict.fromkeys(
        f"{program.name}: {item.rule} {item.code}: {item.what} {item.where}".strip()
        + (f"; fix: {item.fix}" if item.fix else "")
        for program in refused
        for item in program.errors[:3]
    )
    return GraphgenError(
        "GG1003",
        f"neuronx-cc will refuse {len(refused)} of {len(programs)} programs, by the rules of check",
        where=refused[0].errors[0].where,
        note="\n".join(lines),
        help="graphgen check explains each; --no-check compiles them all the same",
    )
