"""``graphgen doctor``: check the parts of this machine that graphgen uses."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.shared_options import AsJson
from graphgen.errors import GraphgenError

COMMAND: Final = Command("machine", "Show what is used on this machine, what is missing.")


def doctor(
    build_kernels: Annotated[
        bool, typer.Option("--build-kernels", help="Compile the kernels for CPUs first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the parts of this machine that graphgen uses, and missing ones.

    Versions, the CPU's instruction sets that matter, the kernels with what each uses here or why it
    is not used, optional packages, and neuronx-cc.

    \b
    Examples:
      graphgen doctor
      graphgen doctor --build-kernels
      graphgen doctor --json
    """
    if build_kernels:
        _build()
    from graphgen.lowering.cpu.machine_facts import machine_json, machine_report

    emit(as_json, machine_json, machine_report)


def _build() -> None:
    """Compile the kernels, unless the library is that of the sources (GG0707)."""
    from graphgen.lowering.cpu_kernels.build_kernels import BuildError, build, compiler, is_current
    from graphgen.lowering.cpu_kernels.kernel_library import kernel_library

    if is_current():
        note("the kernels are those of the sources: nothing is compiled")
        return
    note(f"compiling the kernels with {compiler() or 'a C++ compiler'}, which takes half a minute")
    try:
        made = build()
    except BuildError as error:
        raise GraphgenError(
            "GG0707",
            f"the kernels cannot be built: {error}",
            help="without them XLA's products are used, which are slower",
        ) from error
    kernel_library.cache_clear()
    note(f"wrote {made}")
