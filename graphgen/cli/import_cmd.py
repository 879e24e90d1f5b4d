"""``graphgen import``: programs of other frontends as a module that every pass accepts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import note, write_report
from graphgen.cli.files import STANDARD, check_output, write_file
from graphgen.cli.module_file import open_module_file, write_module
from graphgen.cli.shared_options import check_outputs
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.json_value import Json
from graphgen.numbers import is_digits, whole_number
from graphgen.report.table import Report, Table, render

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.passes.inspect.explain import FailureReason

COMMAND: Final = Command("model", "Import a model of PyTorch or JAX, or a program.")


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help="StableHLO, an HLO proto or HLO text, a program of torch.export (.pt2); or "
        "FILE.py:function, which returns jax.jit(f).lower(...), an exported program, or a model "
        "of torch and its arguments. Several programs of one model: prefill=SOURCE decode=SOURCE.",
    ),
]
Weights = Annotated[
    list[str] | None,
    typer.Option("--weight", metavar="PATTERN", help="Arguments that are weights: 'params.*'."),
]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="IN=OUT",
        help="An input and the output that is its new value, kept from call to call: "
        "'cache.*=result.1.*'. Donated buffers are found.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--rename",
        metavar="OLD=NEW",
        help="Call an input or output otherwise: result.0=logits; decode:token=tokens.",
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="S=61,...",
        help="Sizes that become symbols: what they were traced with. A function that takes "
        "them is traced twice.",
    ),
]

NotRaised = Annotated[bool, typer.Option("--no-raise", help="Leave the ops as they were read.")]
SavedWeights = Annotated[
    str | None,
    typer.Option(
        "--save-weights",
        metavar="FILE.npz",
        help="File for the weights that programs of torch hold, for run --inputs.",
    ),
]


def import_(
    sources: Sources,
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE.gg", help="File to write; - is stdout.")
    ] = STANDARD,
    weight: Weights = None,
    state: States = None,
    rename: Names = None,
    dim: Dims = None,
    save_weights: SavedWeights = None,
    no_raise: NotRaised = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON; needs -o FILE.gg.")
    ] = False,
) -> None:
    """Import a model of PyTorch or JAX, or programs of another compiler.

    Norms, activations, rope, lookups, attention and cache updates are found in what they were
    lowered to and become one op each, so that heads are laid out, weights quantized and models
    split as if they had been built here. Loops over layers are written out. Near misses are shown
    with the reason. Which arguments are weights is for you to say.

    \b
    Examples:
      graphgen import model.mlir --weight 'params.*' -o model.gg
      graphgen import prefill=model.py:prefill decode=model.py:decode --weight 'params.*' \\
        --state 'cache.*=result.1.*' --rename result.0=logits --dim B=3,S=61,M=127 -o model.gg
      graphgen import exported.pt2 --save-weights weights.npz -o model.gg
      graphgen import graph.hlo --no-raise -o graph.gg
    """
    from graphgen.lowering.import_programs import ImportOptions, import_programs, joined

    check_outputs(output, as_json, "-o FILE.gg")
    wanted = ImportOptions(weight or [], state or [], rename or [], raising=not no_raise)
    if save_weights is not None:
        check_output(save_weights)
    held: dict[str, Array] = {}
    programs = import_programs(sources, wanted, _sizes(dim or []), held, _read)
    module = joined(programs)
    _save(save_weights, held)
    _tell_returned(module)
    _tell_domains(module)
    _write(module, output, as_json=as_json, raising=not no_raise)


def _write(module: Module, output: str, *, as_json: bool, raising: bool) -> None:
    """Write the module and a report on raised composites."""
    from graphgen.lowering.import_programs import composite_counts
    from graphgen.passes.inspect.result_json import reason_json
    from graphgen.passes.raising.near_misses import near_misses

    near = near_misses(module) if raising else ()
    counts = composite_counts(module) if raising else {}
    total = {name: sum(each.values()) for name, each in counts.items()}
    shown = output != STANDARD and not as_json and raising
    if shown:
        told = ", ".join(f"{count} {name}" for name, count in total.items()) or "nothing"
        note(f"found {told}")
    more: dict[str, Json] = {
        "found": {**total},
        "by_program": {name: {**each} for name, each in counts.items()},
        "near_misses": [reason_json(reason) for reason in near],
        "domains": {**_domains(module)},
    }
    write_module(module, output, as_json=as_json, more=more)
    if shown:
        write_report(_report(module, counts, near))


def _read(name: str) -> tuple[Module, Mapping[str, Array]]:
    return open_module_file(name)[1:]


def _save(name: str | None, held: Mapping[str, Array]) -> None:
    """Write the weights if requested (GG0705 if the programs have none)."""
    from graphgen.exec.inputs import write_arrays

    if name is None:
        return
    if not held:
        raise GraphgenError(
            "GG0705",
            "no weights come with these programs",
            where="--save-weights",
            help="programs of torch.export have theirs",
        )
    write_file(name, lambda file: write_arrays(file, held))


def _sizes(texts: Sequence[str]) -> dict[str, int]:
    """``B=3,S=61`` as sizes (GG0705)."""
    found: dict[str, int] = {}
    for item in (item for text in texts for item in text.split(",")):
        name, _, size = item.strip().partition("=")
        if not name.isidentifier() or not is_digits(size):
            raise GraphgenError("GG0705", f"--dim {item}: no size", help="write --dim B=3,S=61")
        found[name] = whole_number(size)
    return found


def _tell_returned(module: Module) -> None:
    """Print a note on inputs that are returned updated and are not declared as states."""
    from graphgen.passes.raising.rename_interface import returned_inputs

    pairs = [f"{given}={back}" for given, back in returned_inputs(module).items()]
    if pairs:
        more = f" and {len(pairs) - 1} more" if len(pairs) > 1 else ""
        note(f"an input comes back updated: --state {pairs[0]}{more} would keep it")


def _tell_domains(module: Module) -> None:
    """Print a note on the domains of inputs, which their readers imply."""
    shown = [f"{name} {text}" for name, text in _domains(module).items()]
    if shown:
        more = f" and {len(shown) - 4} more" if len(shown) > 4 else ""
        note(
            f"domains of inputs, outside of which their readers fail: {', '.join(shown[:4])}{more}"
        )


def _domains(module: Module) -> dict[str, str]:
    rows = module.interface.values()
    return {row.name: row.domain.text for row in rows if row.domain is not None}


def _report(
    module: Module, counts: dict[str, dict[str, int]], near: Sequence[FailureReason]
) -> Report:
    """Composites, a column per program, and the near misses."""
    programs = [function.name for function in module.programs()]
    rows = [[name, *(str(each[p]) for p in programs)] for name, each in sorted(counts.items())]
    text = ""
    for reason in near:
        times = f" ({reason.count} ops)" if reason.count > 1 else ""
        text += f"not {reason.rule.removeprefix('raise-')}: {reason.reason}{times}\n"
        text += f"  looked at: {reason.root}\n  --> @{reason.function} {reason.loc!r}\n"
    if not rows:
        return text
    return "".join(
        render(part, sys.stdout)
        for part in (Table(["composite", *programs], rows, len(programs)), text)
    )
