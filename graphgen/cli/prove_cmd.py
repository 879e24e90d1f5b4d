"""``graphgen prove``: prove two modules equal, on every rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import AsJson, Narrow, narrow_types
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.passes.proof.refinement_result import RefinementProof

COMMAND: Final = Command("debug", "Prove that two modules compute the same.", error_status=2)

Left = Annotated[str, typer.Argument(metavar="[A]", help="The reference module.")]
Right = Annotated[
    str,
    typer.Argument(metavar="[B]", help="The module to check, such as A after passes; - is stdin."),
]
# Places whose rounding differs that the text names; all are in the JSON.
_PLACES = 12


Check = Annotated[
    Path | None,
    typer.Option("--check", metavar="CERTIFICATE", help="Prove again what a certificate states."),
]


Relate = Annotated[
    list[str] | None,
    typer.Option(
        "--relate", metavar="NAME:{tp,-}", help="Layout of a value of A on the ranks of B."
    ),
]
Domains = Annotated[
    list[str] | None,
    typer.Option("--domain", metavar="NAME=[0,9]", help="Values that callers give; assumed."),
]


def prove(
    left: Left = "",
    right: Right = "",
    relate: Relate = None,
    domain: Domains = None,
    narrow: Narrow = "",
    check: Check = None,
    as_json: AsJson = False,
) -> None:
    """Prove that every rank's program of B computes what A does, for all inputs and weights.

    Outputs and states are compared in terms of the model, through B's interface table: its packed
    states and prepared weights. Each is proved; or proved in real arithmetic, that is but for
    rounding, with the places whose rounding differs; or unknown, with the ops at which the relation
    is lost. Nothing that the passes have recorded is used.
    With --narrow, numbers in these types are not rounded: a payload times its scale is the number.
    The scale is proved to cover the largest magnitude if it is measured; else the output names the
    range that is assumed.
    --check proves again what a certificate states that 'compile --prove' or 'lower --prove' wrote,
    from the files beside it; what was edited is refused (GG0710).
    Exit status 0 when all are proved, also in real arithmetic, 1 when not, 2 on an error.

    \b
    Examples:
      graphgen build smollm2 --mini -o a.gg
      graphgen opt a.gg -p 'small{tp=2,target=trn2}' -o b.gg
      graphgen prove a.gg b.gg
      graphgen prove a.gg b.gg --json
      graphgen prove a.gg quantized.gg --narrow s8
      graphgen lower a.gg --target trn2 --to hlo -o programs/ --prove
      graphgen prove --check programs/proved.certificate.json
    """
    from graphgen.lowering.certificate import check_certificate

    if check is not None:
        if left or right or narrow:
            what = "takes no modules and no types: it names them"
            raise typer.BadParameter(what, param_hint="'--check'")
        found = check_certificate(check)
    elif not left or not right:
        raise typer.BadParameter("give two modules, or --check CERTIFICATE", param_hint="'A B'")
    else:
        found = _proved(left, right, relate or [], domain or [], narrow)
    emit(as_json, lambda: _facts(found), lambda: _text(found))
    if not found.complete:
        raise typer.Exit(1)


def _proved(
    left: str, right: str, relate: list[str], domain: list[str], narrow: str
) -> RefinementProof:
    """Prove two modules equal; of what is left open, look for numbers that refute it."""
    from graphgen.lowering.rank_program import (
        as_whole_program,
        is_foreign,
        parse_layouts,
        with_domains,
        with_known_loops,
    )
    from graphgen.passes.equiv.refute import with_counterexamples
    from graphgen.passes.proof.refinement import prove_refinement

    before, after = with_domains(read_module(left), domain), read_module(right)
    relation = ""
    layouts = parse_layouts(relate)
    if is_foreign(after) and len(before.programs()) == 1:
        before = with_known_loops(before)
        after, relation = as_whole_program(before, after, layouts)
    elif layouts:
        raise typer.BadParameter("is for a program of another tool", param_hint="'--relate'")
    kept = narrow_types(narrow)
    found = prove_refinement(before, after, kept)
    found = with_counterexamples(before, after, found, narrow=kept)
    assumed = (*found.assumptions, *[f"the elements of {text}" for text in domain])
    return replace(found, assumptions=assumed, relation=relation or found.relation)


def _facts(found: RefinementProof) -> dict[str, Json]:
    from graphgen.passes.proof.verdict_json import verdicts

    return verdicts(found)


def _text(found: RefinementProof) -> str:
    lines: list[str] = []
    for program in dict.fromkeys(claim.program for claim in found.claims):
        counts = Counter(str(c.status) for c in found.claims if c.program == program)
        states = ", ".join(f"{number} {status}" for status, number in counts.items())
        lines.append(f"@{program}: {states}")
    lines.append(f"interface: {found.relation}")
    lines += [f"assumed: {text}" for text in found.assumptions]
    places = list(found.rounding_places())
    lines += [f"rounding differs at: {place}" for place in places[:_PLACES]]
    if len(places) > _PLACES:
        lines.append(f"rounding differs at: {len(places) - _PLACES} more places")
    lines += [str(claim) for claim in found.open]
    return "\n".join(lines) + "\n"
