"""``graphgen launch``: run a command as several processes that share a model's ranks."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import write_error
from graphgen.errors import GraphgenError, printable

COMMAND: Final = Command("launching", "Run a command as several processes.")

# Commands whose work several processes can share.
_SHARED = ("generate", "serve", "perplexity", "benchmark", "accuracy")
# Those that end well by a signal, and those that may hold a conversation.
_DRAINED, _TALKING = ("serve",), ("generate",)

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="-- COMMAND ...",
        help="The command: -- generate MODEL ..., or serve, perplexity, benchmark or accuracy.",
    ),
]
Nodes = Annotated[
    int | None, typer.Option("--nnodes", min=1, help="Machines (default 1, or by WORLD_SIZE).")
]
PerNode = Annotated[
    int | None,
    typer.Option("--nproc-per-node", min=1, help="Processes a machine (1, or LOCAL_WORLD_SIZE)."),
]
NodeRank = Annotated[
    int | None,
    typer.Option("--node-rank", min=0, help="This machine (0, or by NEURON_RANK_ID or RANK)."),
]
Host = Annotated[
    str | None,
    typer.Option("--master-addr", help="Machine 0; or MASTER_ADDR, or NEURON_RT_ROOT_COMM_ID."),
]
Port = Annotated[
    int | None,
    typer.Option("--master-port", min=1, max=65535, help="A free port there; or MASTER_PORT."),
]
Silence = Annotated[
    float,
    typer.Option("--silent-after", min=1, help="Seconds without a sign of life that end it all."),
]
Start = Annotated[
    int, typer.Option("--start-timeout", min=1, help="Seconds to wait for all processes at start.")
]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", help="Of several machines; or GRAPHGEN_LAUNCH_SECRET."),
]
Logs = Annotated[
    Path | None, typer.Option("--log-dir", help="Folder for rank-N.log of each process but 0.")
]


def launch(
    command: Words,
    nnodes: Nodes = None,
    nproc_per_node: PerNode = None,
    node_rank: NodeRank = None,
    master_addr: Host = None,
    master_port: Port = None,
    silent_after: Silence = 6.0,
    start_timeout: Start = 120,
    secret_file: SecretFile = None,
    log_dir: Logs = None,
) -> None:
    """Run a command as several processes that share a model's ranks.

    Each process has --tp, times --pp-degree, divided by the number of processes, and loads the
    weights of these ranks only. Prompts and sampling settings are those of process 0, which
    prints, and answers HTTP. All processes compare weights and configuration before the first
    step. When a process ends or is silent, all of them end.

    \b
    Examples:
      graphgen launch --nproc-per-node 2 -- generate smollm2 --tp 2 --prompt "Hi" --json
      graphgen launch --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 63423 \\
        -- generate smollm2 --tp 2
      graphgen launch --nproc-per-node 2 -- serve smollm2 -tp 2 --port 8080
    """
    from graphgen.runtime.distributed.launch_plan import LaunchFlags, launch_plan, require_address
    from graphgen.runtime.distributed.run_processes import run_processes

    if command[0] not in _SHARED:
        raise GraphgenError(
            "GG0705",
            f"'{command[0]}' does not run as several processes",
            help=f"after -- goes {', '.join(_SHARED[:-1])} or {_SHARED[-1]} with its arguments",
        )
    flags = LaunchFlags(
        *(nnodes, nproc_per_node, node_rank, master_addr, master_port),
        *(silent_after, start_timeout, secret_file),
    )
    plan = launch_plan(flags, os.environ)
    require_address(plan)
    with TemporaryDirectory() if log_dir is None else nullcontext(str(log_dir)) as folder:
        _make_folder(Path(folder))
        drains, reads = command[0] in _DRAINED, command[0] in _TALKING
        end = run_processes(plan, command, Path(folder), drains=drains, reads=reads)
    for index, text in end.reports.items():
        for line in text.splitlines():
            print(printable(f"process {index}: {line}"), file=sys.stderr)
    if end.error is not None:
        write_error(end.error)
    if end.status:
        raise typer.Exit(end.status)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GraphgenError("GG0704", f"cannot make {folder}: {error.strerror}") from error
