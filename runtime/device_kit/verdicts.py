"""The verdict of each case on the rules that spoke about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphgen.runtime.kit_runner.kit_types import (
    ACCEPTED,
    REFUSED,
    UNKNOWN,
    WARNED,
    CaseResult,
    RuleNote,
)

CONFIRMS, CONTRADICTS, LEARNED, UNSURE = "confirms", "contradicts", "learned", "unsure"
# Outcomes of cases.
RIGHT, WRONG, COMPILED, NO_RUN, NOT_LEGAL = (
    "right",
    "wrong numbers",
    "compiles",
    "does not run",
    "refused",
)
_GOOD = (RIGHT, COMPILED)
_INCONCLUSIVE: Final = ""


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """The verdict of one case.

    Attributes:
        case: its result.
        kind: ``confirms``, ``contradicts``, ``learned`` (the rules promise nothing) or ``unsure``.
        outcome: such as ``right`` or ``refused``; empty for one that says nothing.
        rules: those that the verdict is about.
        what: the verdict in words.
    """

    case: CaseResult
    kind: str
    outcome: str
    rules: tuple[RuleNote, ...]
    what: str

    @property
    def code(self) -> str:
        """The compiler's first code."""
        codes = self.case["compilation"]["codes"]
        return codes[0] if codes else ""


def verdicts(cases: Sequence[CaseResult]) -> list[CaseVerdict]:
    """The verdict of every case."""
    return [verdict(case) for case in cases]


def outcome_of(case: CaseResult) -> str:
    """The outcome of a case in one of the words above; empty where it says nothing."""
    end, execution = case["compilation"]["end"], case["execution"]
    if end in ("refused", "bad option"):
        return NOT_LEGAL
    if end != "compiled":
        return _INCONCLUSIVE
    if execution["end"] == "failed":
        return NO_RUN
    if execution["end"] != "ran":
        return COMPILED
    return RIGHT if all(item["right"] for item in execution["outputs"]) else WRONG


def verdict(case: CaseResult) -> CaseVerdict:
    """The verdict of a case."""
    outcome, expects = outcome_of(case), case["subject"]["expects"]
    rules = tuple(case["subject"]["rules"])
    if outcome == _INCONCLUSIVE:
        return CaseVerdict(case, UNSURE, "", (), f"ended by {case['compilation']['end']}")
    blamed = _spoken(rules, expects)
    kind = _kind(expects, outcome)
    if kind == CONFIRMS and outcome == NOT_LEGAL:
        blamed = _with_code(blamed, case["compilation"]["codes"])
        if not blamed:
            predicted = "/".join(item["code"] for item in _spoken(rules, expects))
            got = ", ".join(case["compilation"]["codes"])
            return CaseVerdict(
                case, CONTRADICTS, "another code", (), f"refused with {got}, predicted {predicted}"
            )
    return CaseVerdict(case, kind, outcome, blamed, _words(expects, outcome))


def _spoken(rules: Sequence[RuleNote], expects: str) -> tuple[RuleNote, ...]:
    """The rules that a prediction rests on."""
    wanted = {REFUSED: "error", WARNED: "warn"}.get(expects, "")
    return tuple(item for item in rules if item["severity"] == wanted)


def _with_code(rules: Sequence[RuleNote], codes: Sequence[str]) -> tuple[RuleNote, ...]:
    """The rules that predict one of the codes, or none at all."""
    return tuple(
        item for item in rules if not item["code"] or {*item["code"].split("/")} & {*codes}
    )


def _kind(expects: str, outcome: str) -> str:
    if expects == UNKNOWN:
        return LEARNED
    if expects == REFUSED:
        return CONFIRMS if outcome == NOT_LEGAL else CONTRADICTS
    if expects == WARNED:
        # A warning is about numbers or speed: wrong numbers are what it foretells.
        return CONTRADICTS if outcome in (NOT_LEGAL, NO_RUN) else CONFIRMS
    return CONFIRMS if outcome in _GOOD else CONTRADICTS


def _words(expects: str, outcome: str) -> str:
    said = {
        REFUSED: "the rules say it is refused",
        WARNED: "the rules warn of it",
        UNKNOWN: "the rules promise nothing",
        ACCEPTED: "the rules accept it",
    }[expects if expects in (REFUSED, WARNED, UNKNOWN) else ACCEPTED]
    return f"{said}: {outcome}"
