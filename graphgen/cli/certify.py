"""``--prove`` of commands that write programs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import note
from graphgen.cli.files import STANDARD

if TYPE_CHECKING:
    from graphgen.passes.proof.refinement_result import RefinementProof

ProveIt = Annotated[
    bool,
    typer.Option(
        "--prove", help="Write a certificate that every rank computes what the model does."
    ),
]


def require_file(output: str, *, prove: bool) -> None:
    """Refuse a proof of what goes to standard output."""
    if prove and output == STANDARD:
        raise typer.BadParameter("needs -o: the certificate is a file", param_hint="'--prove'")


def require_proved(certificate: tuple[Path, RefinementProof] | None) -> None:
    """Print a note on a certificate, if there is one; exit with 1 where not all is proved."""
    if certificate is None:
        return
    path, found = certificate
    counts = Counter(str(claim.status) for claim in found.claims)
    states = ", ".join(f"{number} {status}" for status, number in counts.items())
    note(f"wrote {path}: {states or 'nothing to prove'}")
    for claim in found.open[:_SHOWN]:
        note(str(claim))
    if not found.complete:
        raise typer.Exit(1)


# Claims that are not proved, of which the certificate has all.
_SHOWN = 3
