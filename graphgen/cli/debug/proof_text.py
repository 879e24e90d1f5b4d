"""Text of proofs: the programs proved equal across each pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from graphgen.report.table import Table

if TYPE_CHECKING:
    from graphgen.passes.verify.proof.prove_bounds import IndexProof
    from graphgen.passes.verify.verdict import Verdict


def proof_lines(verdicts: Sequence[Verdict]) -> Iterator[str | Table]:
    """Per pass how many programs are proved, and the first that is not; then the indices."""
    proofs = [(verdict.pass_text, verdict.proof) for verdict in verdicts if verdict.proof]
    if not proofs:
        return
    rows: list[tuple[str, ...]] = []
    for text, proof in proofs:
        first = proof.first
        open_ = "" if first is None else f"@{first[0]} {first[1]}"
        rows.append((text, f"{proof.proved} of {len(proof.programs)}", open_))
    yield "programs before and after, compared for all sizes and inputs:"
    yield Table(("pass", "proved", "first that is not proved"), rows)
    indices = verdicts[-1].indices
    if indices is not None:
        yield _index_text(indices)


def _index_text(indices: Mapping[str, Sequence[IndexProof]]) -> str:
    """One line: how many indices of the last module are within bounds, and the others by kind."""
    found = [proof for proofs in indices.values() for proof in proofs]
    kinds = Counter(_open_text(proof) for proof in found if not proof.proved)
    text = f"indices within bounds for all sizes: {len(found) - kinds.total()} of {len(found)}"
    open_ = [kind if count == 1 else f"{count} x {kind}" for kind, count in kinds.items()]
    return f"{text}; open: {'; '.join(open_)}\n" if open_ else f"{text}\n"


def _open_text(proof: IndexProof) -> str:
    index = proof.index
    return f"{proof.op.name} {proof.why}, bounds [{index.low}, {index.high}]"
