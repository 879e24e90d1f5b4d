"""``graphgen cache``: compilations that are kept, by this tool and by AWS's."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_errors import GuardedCommand
from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.shared_options import AsJson
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.lowering.compile_cache.cache_entry import CacheEntry
    from graphgen.lowering.compile_cache.neuron_cache import NeuronCache
    from graphgen.report.table import Table

COMMAND: Final = Command("neuron", "List, verify and prune the compile cache.")

CacheDir = Annotated[
    str,
    typer.Argument(
        metavar="[DIR]",
        help="Or a URL; by default NEURON_COMPILE_CACHE_URL, then /var/tmp/neuron-compile-cache.",
    ),
]

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="""Manage the cache of 'graphgen compile', in the layout of AWS's tools.

    \b
    Examples:
      graphgen cache list
      graphgen cache verify /shared/neuron-cache --json
      graphgen cache prune --failed --dry-run
      graphgen cache export -o /mnt/usb/neuron-cache
    """,
)


@app.command("list", cls=GuardedCommand)
def list_(folder: CacheDir = "", as_json: AsJson = False) -> None:
    """List compilations with their state, size and program.

    \b
    Examples:
      graphgen cache list
      graphgen cache list /shared/neuron-cache --json
    """
    cache = _cache(folder)
    entries = [*cache.entries()]
    emit(as_json, lambda: _listed(cache, entries), lambda: _table(cache, entries))


@app.command("verify", cls=GuardedCommand)
def verify(folder: CacheDir = "", as_json: AsJson = False) -> None:
    """Read every file of finished compilations. Exit status 1 if one is damaged.

    Damaged compilations are never used; prune removes them.

    \b
    Examples:
      graphgen cache verify
      graphgen cache verify /shared/neuron-cache --json
    """
    cache = _cache(folder)
    entries = [entry for entry in cache.entries() if entry.state == "done"]
    damaged = {entry.name: text for entry in entries if (text := entry.damage())}
    facts: Callable[[], Json] = lambda: {"verified": len(entries), "damaged": damaged}  # noqa: E731
    lines = [f"{name}: {text}" for name, text in damaged.items()]
    summary = f"{len(entries) - len(damaged)} of {len(entries)} compilations are whole"
    emit(as_json, facts, lambda: "\n".join([*lines, summary, ""]))
    if damaged:
        raise typer.Exit(1)


@app.command("prune", cls=GuardedCommand)
def prune(
    folder: CacheDir = "",
    failed: Annotated[
        bool, typer.Option("--failed", help="Remove failures that have not expired as well.")
    ] = False,
    unused_days: Annotated[
        float | None,
        typer.Option("--unused-days", metavar="N", min=0, help="And what was not used for N days."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove expired failures, unfinished and damaged compilations.

    Those that a process works on stay.

    \b
    Examples:
      graphgen cache prune --dry-run
      graphgen cache prune --failed --unused-days 30 --json
    """
    cache = _cache(folder)
    gone: dict[str, Json] = {}
    nbytes = 0
    for entry in [*cache.entries()]:
        reason = _reason(cache, entry, failed=failed, unused_days=unused_days)
        if not reason:
            continue
        held = entry.nbytes
        if dry_run or cache.remove_if_free(entry):
            gone[entry.name] = reason
            nbytes += held
    verb = "would remove" if dry_run else "removed"
    lines = [f"{name}: {reason}" for name, reason in gone.items()]
    text = "\n".join([*lines, f"{verb} {len(gone)} compilations of {_size(nbytes)}", ""])
    emit(as_json, lambda: {"removed": gone, "bytes": nbytes, "dry_run": dry_run}, lambda: text)


@app.command("export", cls=GuardedCommand)
def export(
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="A cache, new or not, or a URL.")
    ],
    folder: CacheDir = "",
    version: Annotated[
        str, typer.Option("--compiler-version", metavar="V", help="Of this version alone.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Copy finished compilations to another cache, whole or not at all.

    The copy is found from any folder, machine and user; AWS's tools read its layout.

    \b
    Examples:
      graphgen cache export -o /mnt/usb/neuron-cache
      graphgen cache export -o s3://bucket/neuron-cache
      graphgen cache export /shared/neuron-cache -o mine --compiler-version 2.27.5334.0 --json
    """
    cache, target = _cache(folder), _cache(output)
    chosen = [
        entry
        for entry in cache.entries()
        if entry.state == "done" and version in ("", entry.version) and not entry.damage()
    ]
    copied = [entry.name for entry in chosen if target.take(entry)]
    emit(
        as_json,
        lambda: {"copied": copied, "there_before": len(chosen) - len(copied)},
        lambda: f"copied {len(copied)} compilations, {len(chosen) - len(copied)} were there\n",
    )


def _cache(folder: str) -> NeuronCache:
    from graphgen.lowering.compile_cache.shared_cache import VARIABLE, open_cache

    return open_cache(folder, os.environ.get(VARIABLE))


def _reason(
    cache: NeuronCache, entry: CacheEntry, *, failed: bool, unused_days: float | None
) -> str:
    """Why an entry goes; empty for one that stays."""
    if entry.state in ("expired", "unfinished", "empty"):
        return entry.state
    if entry.state == "failed" and failed:
        return "failed"
    if entry.state == "done" and (damage := entry.damage()):
        return damage
    days = cache.unused_days(entry)
    if unused_days is not None and entry.state == "done" and days >= unused_days:
        return f"not used for {days:.0f} days"
    return ""


def _size(nbytes: int) -> str:
    from graphgen.report.units import size

    return size(nbytes)


def _listed(cache: NeuronCache, entries: list[CacheEntry]) -> Json:
    return {
        "cache": cache.name,
        "entries": [
            {
                "name": entry.name,
                "compiler": entry.version,
                "state": entry.state,
                "bytes": entry.nbytes,
                "program": entry.record.program if entry.record else None,
                "seconds": entry.record.seconds if entry.record else None,
                "peak_bytes": entry.record.peak_bytes if entry.record else None,
                "failure": dict(entry.record.failure) if entry.record else None,
                "unused_days": round(cache.unused_days(entry), 3),
            }
            for entry in entries
        ],
    }


def _table(cache: NeuronCache, entries: list[CacheEntry]) -> list[str | Table]:
    from graphgen.report.table import Table

    rows = [
        [
            *(entry.name, entry.state, _size(entry.nbytes)),
            entry.record.program if entry.record else "written by another tool",
        ]
        for entry in entries
    ]
    counts = Counter(entry.state for entry in entries)
    summary = ", ".join(f"{count} {state}" for state, count in counts.items()) or "empty"
    return [Table(["compilation", "state", "size", "program"], rows), f"{cache.name}: {summary}\n"]
