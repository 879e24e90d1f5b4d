"""``graphgen tnx``: an installed transformers-neuronx over the stand-ins of AWS's modules."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_errors import GuardedCommand
from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.shared_options import AsJson
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.limits import RANKS
from graphgen.numbers import is_digits

if TYPE_CHECKING:
    from graphgen.report.table import Table
    from graphgen.runtime.aws_tnx.family_checks import FamilyResult
    from graphgen.runtime.aws_tnx.shim_library import AskedName

COMMAND: Final = Command("aws", "Run an installed transformers-neuronx here.", error_status=2)

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="""Run an installed transformers-neuronx on this CPU.

    AWS's modules that are missing get stand-ins for the length of the command: PyHLO, a compiler,
    native kernels, tensors on ranks. Modules that are installed are never replaced.

    \b
    Examples:
      graphgen tnx check
      graphgen tnx run generate.py --tp 2
      graphgen tnx verify --family llama --tp 1,2 --json
    """,
)


@app.command("check", cls=GuardedCommand)
def check(as_json: AsJson = False) -> None:
    """List the names of AWS's that the library asks for.

    For each: the real package, a stand-in, or missing.

    Exit status 1 where a name is missing: what uses it does not run here.

    \b
    Examples:
      graphgen tnx check
      graphgen tnx check --json
    """
    from graphgen.runtime.aws_tnx import real_packages
    from graphgen.runtime.aws_tnx.shim_library import asked_names, counts, find_library, state_of

    library, real = find_library(), real_packages()
    names = asked_names(library)
    states = [state_of(name, real) for name in names]
    if not as_json:
        note(library.text)
    emit(
        as_json,
        lambda: {
            "library": str(library.folder),
            "version": library.version,
            "names": [_name_json(n, state) for n, state in zip(names, states, strict=True)],
        },
        lambda: _name_table(names, states),
    )
    if counts(names, real)["missing"]:
        raise typer.Exit(1)


def _name_json(name: AskedName, state: str) -> Json:
    return {
        "module": name.module, "name": name.name, "state": state, "first": name.places[0],
        "places": name.places[1],
    }  # fmt: skip


def _name_table(names: list[AskedName], states: list[str]) -> Table:
    from graphgen.report.table import Table

    rows = [
        (state, name.module, name.name or "-", name.places[0], str(name.places[1]))
        for name, state in zip(names, states, strict=True)
    ]
    return Table(("state", "module", "name", "first", "places"), rows)


@app.command(
    "run",
    cls=GuardedCommand,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python program.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]", help="Arguments of the program.")
    ] = None,
) -> None:
    """Run a program that uses the library.

    The arguments after SCRIPT are the program's.

    \b
    Examples:
      graphgen tnx run generate.py
      graphgen tnx run generate.py --tp 2 --prompt Hello
    """
    import runpy

    from graphgen.runtime.aws_tnx import install
    from graphgen.runtime.aws_tnx.shim_library import find_library

    if not script.is_file():
        raise GraphgenError("GG0705", f"there is no program '{script}'")
    find_library()
    install()
    sys.argv = [str(script), *(arguments or [])]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except GraphgenError:
        raise
    except Exception as error:
        # The program's own error, not one of graphgen.
        traceback.print_exception(error)
        raise typer.Exit(1) from error


@app.command("verify", cls=GuardedCommand)
def verify(
    family: Annotated[
        list[str] | None, typer.Option("--family", metavar="NAME", help="This family; repeatable.")
    ] = None,
    tp: Annotated[str, typer.Option("--tp", metavar="N,...", help="Numbers of ranks.")] = "1,2,4",
    as_json: AsJson = False,
) -> None:
    """Compare the families with Hugging Face, token by token.

    Each is a mini checkpoint with random weights, answering one prompt greedily.

    The families are llama, mistral, mixtral, bloom, gpt2, opt, gpt-neox and gpt-j. Exit status 1
    where tokens differ or a model does not run. Not counted are numbers of ranks that the library
    refuses, and gpt-j, whose tokens are wrong in the library itself: both lists are shown.

    \b
    Examples:
      graphgen tnx verify
      graphgen tnx verify --family llama --family bloom --tp 1,2,3,4
      graphgen tnx verify --json
    """
    from graphgen.runtime.aws_tnx import install
    from graphgen.runtime.aws_tnx.family_checks import FAMILIES, check_families
    from graphgen.runtime.aws_tnx.shim_library import find_library

    degrees = [int(part) for part in tp.split(",") if is_digits(part.strip(), RANKS.most)]
    if not degrees or len(degrees) != tp.count(",") + 1 or min(degrees) < 1:
        raise typer.BadParameter(f"'{tp}' is not a list of numbers of ranks", param_hint="--tp")
    known = [item.name for item in FAMILIES]
    for name in family or []:
        if name not in known:
            help = f"one of: {', '.join(known)}"
            raise GraphgenError("GG0504", f"unknown family '{name}'", help=help)
    library = find_library()
    install()
    note(library.text)
    results = list(check_families(family or [], degrees, note))
    emit(as_json, lambda: [_result_json(item) for item in results], lambda: _result_table(results))
    if any(item.state in ("different", "failed") for item in results):
        raise typer.Exit(1)


def _result_json(item: FamilyResult) -> Json:
    return {
        "family": item.family.name, "tp": item.tp, "state": item.state, "tokens": [*item.tokens],
        "wanted": [*item.wanted], "seconds": round(item.seconds, 2), "error": item.error,
    }  # fmt: skip


def _result_table(results: list[FamilyResult]) -> Table:
    from graphgen.report.table import Table

    rows = [
        (r.family.name, str(r.tp), r.state, f"{r.seconds:.1f}", r.error or _difference(r))
        for r in results
    ]
    return Table(("family", "tp", "state", "seconds", "difference"), rows)


def _difference(item: FamilyResult) -> str:
    if item.state == "library differs":
        return f"{[*item.tokens]}, transformers {[*item.wanted]}"
    pairs = zip(item.tokens, item.wanted, strict=False)
    same = next((i for i, (one, other) in enumerate(pairs) if one != other), None)
    if same is None:
        return "" if item.state == "equal" else f"{len(item.tokens)} of {len(item.wanted)} tokens"
    return f"token {same}: {item.tokens[same]}, not {item.wanted[same]}"
