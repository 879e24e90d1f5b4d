"""Verdicts and bisections as text: a table, and a paragraph for each fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from graphgen.report.table import Table

if TYPE_CHECKING:
    from graphgen.passes.core.journal import Rewrite
    from graphgen.passes.proof.pass_proof import PassProof
    from graphgen.passes.proof.prove_bounds import IndexProof
    from graphgen.passes.proof.refinement_result import RefinementProof
    from graphgen.passes.validate import Verdict
    from graphgen.passes.validate.bisect import Culprit
    from graphgen.passes.validate.narrow_rounding import DeclaredBudget
    from graphgen.passes.validate.rewrite_verdict import RewriteSummary
    from graphgen.passes.validate.verdict import RaisedError, RunDifference


def proof_lines(verdicts: Sequence[Verdict]) -> Iterator[str | Table]:
    """Per pass how many programs are proved, and the first that is not; then the indices."""
    proofs = [(verdict.pass_text, verdict.proof) for verdict in verdicts if verdict.proof]
    if not proofs:
        return
    rows: list[tuple[str, ...]] = []
    for text, proof in proofs:
        first = proof.first
        open_ = "" if first is None else f"@{first[0]} {first[1]}"
        real = f", {proof.real} in real arithmetic" if proof.real else ""
        rows.append((text, f"{proof.proved} of {len(proof.programs)}{real}", open_))
    yield "programs before and after, compared for all sizes and inputs:"
    yield Table(("pass", "proved", "first that is not proved"), rows)
    whole = verdicts[-1].pipeline
    if whole is not None:
        yield _pipeline_text(whole)
    indices = verdicts[-1].indices
    if indices is not None:
        yield _index_text(indices)


def _pipeline_text(proof: RefinementProof) -> str:
    """One line: the outputs and states that are proved from the first module to the last."""
    counts = Counter(str(claim.status) for claim in proof.claims)
    text = ", ".join(f"{number} {status}" for status, number in counts.items())
    open_ = f"; first open: {proof.open[0]}" if proof.open else ""
    return f"outputs and states, from the first module to the last: {text or 'none'}{open_}\n"


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


# By values of ``RewriteStatus``, which is not imported before a command runs.
_TITLES = {
    "wrong": "wrong when checked alone",
    "right in its context (searched)": "right in its context (searched)",
    "undecided": "unknown",
}

# By values of the ``Status`` of a proof.
_REFUTED = {
    "refuted": "refuted",
    "refuted wrongly": "prover error: this model of the solver is not a counterexample",
}

_HEADERS = (
    "pass", "meaning", "max abs", "ulp", "cosine", "rounding", "budget", "rewrites", "verdict",
)  # fmt: skip


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """One row for each pass; no numbers for a pass that raised an exception.

    Where layers were compared one by one, the last column counts them.
    """
    rows = [_row(verdict) for verdict in verdicts]
    if not any(verdict.layers for verdict in verdicts):
        return Table(_HEADERS, rows, 6)
    counted = [(*row, _layers(verdict)) for row, verdict in zip(rows, verdicts, strict=True)]
    return Table((*_HEADERS, "layers run"), counted, 6)


def _layers(verdict: Verdict) -> str:
    found = verdict.layers
    if found is None:
        return "-"
    alike = len(found.changed) - len(found.run)
    return f"{len(found.run)} of {len(found.changed) + len(found.unchanged)}, {alike} alike"


def _row(verdict: Verdict) -> tuple[str, ...]:
    if verdict.raised is not None:
        return (verdict.pass_text, *["-"] * 7, verdict.state)
    return (
        verdict.pass_text,
        f"{verdict.meaning.relative:.1e}",
        f"{verdict.rounding.max_abs:.1e}",
        f"{verdict.rounding.ulp:.3g}",
        f"{verdict.rounding.cosine:.6f}",
        f"{verdict.rounding.relative:.1e}",
        f"{verdict.budget:.0e}",
        _rewrites(verdict),
        verdict.state,
    )


def _rewrites(verdict: Verdict) -> str:
    """``70/75, 2 searched, 3 by calls``: how many of the rewrites are right when checked alone.

    Changes of the interface are checked by calls of the whole program only.
    """
    found = verdict.rewrites
    if found is None:
        return "-"
    others = (
        (found.searched, "searched"),
        (found.unchecked, "by calls"),
    )
    return ", ".join([f"{found.right}/{found.total}", *[f"{n} {word}" for n, word in others if n]])


def verdict_faults(
    verdicts: Sequence[Verdict], not_run: Sequence[str] = (), notes: Sequence[str] = ()
) -> Iterator[str]:
    """A paragraph for each fault, and for choices that rounding changed.

    Args:
        verdicts: in order.
        not_run: the passes after one that raised.
        notes: what each call of the workload is made for.
    """
    for verdict in verdicts:
        wrong = not (verdict.means_the_same and verdict.within_budget)
        if verdict.approximation:
            yield f"{verdict.pass_text}: {verdict.approximation}\n"
        elif wrong:
            yield _wrong_numbers(verdict, notes)
        yield from _flips(verdict)
        if verdict.rewrites is not None:
            yield from _checked_alone(verdict.rewrites, verdict.guilty if wrong else None)
        if verdict.proof is not None:
            yield from _refuted(verdict, verdict.proof)
        if verdict.declared is not None and not verdict.budget_explained:
            yield _unexplained(verdict.pass_text, verdict.declared)
        if verdict.silent:
            yield silent_text(verdict.pass_text)
        if verdict.varies is not None:
            yield varies_text(verdict.pass_text, verdict.varies)
        if verdict.raised is not None:
            yield raised_text(verdict.pass_text, verdict.raised, not_run)


def _wrong_numbers(verdict: Verdict, notes: Sequence[str]) -> str:
    from graphgen.passes.equiv.deviation import MEANING_BUDGET

    kept = verdict.means_the_same
    worst = verdict.rounding if kept else verdict.meaning
    what = "rewrite that goes over the budget" if kept else "first wrong rewrite"
    lines = [f"{what}: {verdict.guilty or f'{verdict.pass_text}, as a whole'}"]
    lines += blame_notes(verdict.together, verdict.recovered)
    first = verdict.first or worst
    why = first.beyond(verdict.budget if kept else MEANING_BUDGET)
    lines += [f"  {why}"] if why else []
    note = notes[first.call] if first.call < len(notes) else ""
    lines.append(f"  seen at: {first.name} of call {first.call}{f' ({note})' if note else ''}")
    if (first.name, first.call) != (worst.name, worst.call):
        lines[-1] += f", relative {first.relative:.1e}"
        lines.append(f"  worst at: {worst.name} of call {worst.call}, {worst.relative:.1e}")
    if verdict.layers is not None:
        lines.append(f"  layers: {', '.join(item.label for item in verdict.layers.wrong)}")
    return "\n".join([*lines, ""])


def blame_notes(together: Sequence[Rewrite], recovered: int) -> list[str]:
    """Indented lines on a rewrite that is not wrong by itself, or not wrong ever since.

    Args:
        together: the smallest wrong set, empty where one rewrite is enough.
        recovered: the number of rewrites after which the module was right again; 0 for none.
    """
    lines: list[str] = []
    if together:
        from graphgen.passes.core.fuel import fuel_ranges

        numbers = [f"#{item.number}" for item in together]
        lines.append(f"  wrong only together: {', '.join(numbers[:-1])} and {numbers[-1]}")
        lines += [f"    {item}" for item in together]
        chosen = fuel_ranges([item.number for item in together])
        lines.append(f"  only these are made with --fuel '{together[0].pass_name}={chosen}'")
    if recovered:
        lines.append(f"  wrong in between as well: with the first {recovered} it is right again")
    return lines


def _flips(verdict: Verdict) -> Iterator[str]:
    """Choices that differ from the reference: replayed within the margin, or wrong."""
    from graphgen.passes.equiv.deviation import MEANING_BUDGET

    for bound, found in (
        (MEANING_BUDGET, verdict.choices),
        (verdict.budget, verdict.rounded_choices),
    ):
        what = f"choices: {verdict.pass_text}: "
        if found.replayed:
            flipped = f"{found.replayed} of {found.compared} choices flipped within {bound:.0e}"
            yield f"{what}{flipped}, replayed\n"
        if found.wrong and not verdict.ok:
            yield f"{what}{found.wrong} of {found.compared} flipped outside of {bound:.0e}\n"


def _checked_alone(found: RewriteSummary, known: Rewrite | None) -> Iterator[str]:
    """The first rewrite of each status that is not right, with its counterexample.

    Not again for ``known``, the rewrite that the numbers of the calls have named.
    """
    for status, title in _TITLES.items():
        every = [check for check in found.remarkable if check.status.value == status]
        named = [check for check in every if str(check.rewrite) == str(known)]
        for check in every[:1] if not named else []:
            lines = [f"{title}: {check.rewrite}", f"  {check.reason}"]
            if check.counterexample is not None:
                text = check.counterexample.text
                lines += [f"  {line}" for line in text.splitlines()]
            if len(every) > 1:
                lines.append(f"  and {len(every) - 1} more (--json lists them)")
            yield "\n".join([*lines, ""])


def _refuted(verdict: Verdict, found: PassProof) -> Iterator[str]:
    """The programs that a proof found arguments for, with the arguments."""
    for name, proof in found.programs.items():
        if proof.status in _REFUTED:
            sizes = ", ".join(f"{key}={value}" for key, value in proof.counterexample.items())
            what = f"{_REFUTED[proof.status]}: {verdict.pass_text}"
            lines = [f"{what}: {proof.output} of @{name}, at {sizes}"]
            lines += [f"  {proof.why}"] if proof.why else []
            if name in verdict.examples:
                lines += [f"  {line}" for line in verdict.examples[name].text.splitlines()]
            yield "\n".join([*lines, ""])


def _unexplained(item: str, found: DeclaredBudget) -> str:
    """The fault of a plugin's pass with a budget above what the element types explain."""
    return (
        f"budget not explained: {item} may round by {found.declared:.1e}; the element types "
        f"explain {found.explained:.1e}\n"
        "  help: declare the rounding that the pass makes in this module; a larger budget hides "
        "wrong numbers\n"
    )


def budget_text(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """A line with the budgets of graphgen's passes that are above what element types explain."""
    found = [(one.pass_text, one.declared) for one in verdicts]
    listed = [
        f"{name} {each.declared:.0e} ({each.explained:.0e})"
        for name, each in found
        if each is not None and not each.plugin and not each.is_explained
    ]
    if listed:
        yield f"budgets above what the element types explain, in brackets: {', '.join(listed)}\n"


def finite_text(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """A line with the passes whose rewrites were checked for finite floats only."""
    if listed := [one.pass_text for one in verdicts if one.finite_math_only]:
        yield f"rewrites checked for finite floats only: {', '.join(listed)}\n"


def silent_text(item: str) -> str:
    """The fault of a pass that records no rewrite."""
    return (
        f"silent: {item} changed the module and recorded no rewrite\n"
        "  help: change graphs through the Rewriter (replace, erase, note): only rewrites that it "
        "counts can be checked, explained and blamed\n"
    )


def varies_text(item: str, found: RunDifference) -> str:
    """The fault of a pass of which two runs differ."""
    place = f" in line {found.line}" if found.line else ""
    return (
        f"not repeatable: {item} run twice on one module differs{place}\n"
        f"  first run:  {found.first or '(nothing)'}\n"
        f"  second run: {found.second or '(nothing)'}\n"
        "  help: let no random number, clock, counter or order of a set decide\n"
    )


def raised_text(item: str, found: RaisedError, not_run: Sequence[str] = ()) -> str:
    """The fault of a pass that raises, and the passes after it."""
    lines = [f"raised: {item}: {found.failure}"]
    lines.append(f"  raised by: {found.during}")
    if found.where:
        lines.append(f"  --> {found.where}")
    lines += [f"   |  {line}" for line in found.note.splitlines()]
    lines += [f"  help: {line.strip().removeprefix('help: ')}" for line in found.help.splitlines()]
    if not_run:
        lines.append(f"  not run: {', '.join(not_run)}")
    return "\n".join([*lines, ""])


def bisection_text(found: Culprit | None, *, rounding: bool) -> str:
    """The finding of ``graphgen bisect``.

    Args:
        found: the finding; ``None`` for none.
        rounding: whether budgets of rounding were checked, not the meaning.
    """
    if found is None:
        kept = "every pass keeps its rounding budget\n"
        return kept if rounding else "nothing is wrong at the end of the pipeline\n"
    parts = [_culprit(found, rounding)] if found.wrong else []
    if found.silent and found.wrong:
        parts.append(silent_text(str(found.item)))
    if found.varies is not None:
        parts.append(varies_text(str(found.item), found.varies))
    if found.raising is not None:
        where = "" if found.wrong else "; nothing is wrong before it"
        head = f"pass {found.raising.number + 1} raises an exception{where}\n"
        parts.append(head + raised_text(str(found.raising.item), found.raising.error))
    return "".join(parts)


# Words for the state of a verdict in front of the pass at fault.
_FOUND = {
    "over budget": "over its rounding budget after",
    "WRONG rewrite": "a wrong rewrite by",
    "not repeatable": "not repeatable:",
    "silent": "silent:",
}


def _culprit(found: Culprit, rounding: bool) -> str:
    state = found.verdict.state if found.verdict is not None else ""
    state = "over budget" if rounding else state
    lines = [f"{_FOUND.get(state, 'wrong after')} pass {found.number + 1}: {found.item}"]
    item = found.application
    if item is None:
        lines.append(f"  the pass as a whole is to blame: it {_why_whole(found)}")
    else:
        lines.append(f"  guilty: {item}")
        lines.append(f"  in @{item.function}, by the rule at {item.source}")
        lines += blame_notes(found.together, found.recovered)
    if found.recovered_pass:
        lines.append(f"  wrong before as well, and right again after pass {found.recovered_pass}")
    if found.first is not None:
        lines.append(f"  first wrong op: {found.first.right.text}")
        lines.append(f"  instead of:     {found.first.left.text}")
    alone = found.verdict.rewrites.wrong if found.verdict and found.verdict.rewrites else None
    if state == "WRONG rewrite" and alone is not None:
        lines.append(f"  wrong when checked alone, {alone.reason}")
        if alone.counterexample is not None:
            lines += [f"  {line}" for line in alone.counterexample.text.splitlines()]
    return "\n".join([*lines, ""])


def _why_whole(found: Culprit) -> str:
    if found.silent:
        return "records no rewrite"
    return "does not stop half-way" if found.varies is None else "is not repeatable"
