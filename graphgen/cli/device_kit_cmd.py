"""``graphgen device-kit``: write test programs for people with a device, and read the results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from graphgen.cli.command_errors import GuardedCommand
from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.files import check_output
from graphgen.cli.shared_options import AsJson
from graphgen.errors import GraphgenError
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.runtime.device_kit.reading import KitReading

COMMAND: Final = Command("neuron", "Write a test kit for a device, read its results.")

_WRITE = "write"


class _WritesByDefault(TyperGroup):
    """The group; without the name of a subcommand, options are those of ``write``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words, with ``write`` in front where they begin with an option of its."""
        if args and args[0].startswith("-") and args[0] != "--help":
            args = [_WRITE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_WritesByDefault,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="""Write a kit that tests the rules of 'graphgen check' on a device, or read its results.

    Options without a subcommand are those of write.

    \b
    Examples:
      graphgen device-kit -o kit.tar.gz
      graphgen device-kit -o small.tar.gz --target trn2 --only 'op/dot*'
      graphgen device-kit read results.json -o evidence.json
      graphgen device-kit read results.json --json
    """,
)


@app.command(_WRITE, cls=GuardedCommand)
def write(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="KIT.tar.gz", help="File to write the kit to.")
    ],
    target: Annotated[
        list[str] | None,
        typer.Option("--target", help="A device; several times for several. All but trn3."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PATTERN", help="Cases such as op/add or '*/bf16'."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one archive that somebody with a device and the Neuron SDK runs with one command.

    It has every op for every element type of the rules, rewrites of legalize before and after,
    small models, and the compiler's options one at a time: HLO, inputs, expected outputs, and a
    runner that needs Python alone. The runner has only been run with a
    stand-in for the SDK.

    \b
    Examples:
      graphgen device-kit -o kit.tar.gz
      graphgen device-kit write -o kit.tar.gz --target trn2 --json
      graphgen device-kit -o models.tar.gz --only model
    """
    from graphgen.runtime.device_kit.build_kit import build_kit, wanted_by
    from graphgen.runtime.device_kit.kit_archive import write_kit
    from graphgen.runtime.kit_runner.log_text import counted
    from graphgen.runtime.kit_runner.sdk_facts import TARGETS
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.targets import accelerator

    check_output(str(output))
    # By default those of known instances; --target trn3 makes a kit for that one, too.
    devices = [accelerator(name) for name in dict.fromkeys(target or TARGETS.values())]
    with TerminalProgress().task("making the cases"):
        builder = build_kit(devices, wanted_by(only or []))
    counts = {name: len(rows["cases"]) for name, rows in builder.targets.items()}
    if not any(counts.values()):
        raise GraphgenError(
            "GG0705",
            f"no case is called like {', '.join(only or [])}",
            help="names are such as op/add/bf16, rewrite/integer-dot/before, flag/-O1",
        )
    nbytes = write_kit(output, builder)
    facts: dict[str, Json] = {"kit": str(output), "bytes": nbytes, "cases": {**counts}}
    shown = ", ".join(f"{counted(count, 'case')} for {name}" for name, count in counts.items())
    text = f"wrote {output}: {shown}; there: tar xzf, then python3 run.py\n"
    emit(as_json, lambda: facts, lambda: text)


@app.command("read", cls=GuardedCommand)
def read(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS.json", help="The file that run.py wrote.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Evidence to add to, for check --evidence."
        ),
    ] = None,
    issues: Annotated[
        Path | None,
        typer.Option(
            "--issues", metavar="DIR", help="Write each contradiction as a Markdown file."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report the rules that a device confirmed or contradicted, and its measurements.

    Contradictions come as issues that are ready to be filed: title, op, type, HLO, the end of the
    log, the rule and its source. The rules themselves stay as they are: -o keeps the evidence in a
    file of yours, which 'graphgen check --evidence FILE' (or GRAPHGEN_EVIDENCE) reads.

    \b
    Examples:
      graphgen device-kit read results.json
      graphgen device-kit read results.json --json
      graphgen device-kit read results.json -o evidence.json --issues issues
    """
    from graphgen.runtime.device_kit.reading import read_kit_results
    from graphgen.runtime.device_kit.report import reading_json, reading_report

    reading = read_kit_results(results)
    if output is not None:
        reading.keep(output)
    if issues is not None:
        _write_issues(issues, reading)
    emit(as_json, lambda: reading_json(reading), lambda: reading_report(reading))


def _write_issues(folder: Path, reading: KitReading) -> None:
    from graphgen.atomic_write import write_inside

    for number, item in enumerate(reading.contradictions, 1):
        name = item.verdict.case["name"].replace("/", "-")
        text = f"# {item.title}\n\n{item.body}"
        write_inside(folder, folder / f"{number:03}-{name}.md", text.encode(), parents=True)
    note(f"wrote {len(reading.contradictions)} issues to {folder}")
