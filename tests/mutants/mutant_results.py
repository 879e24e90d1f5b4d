"""Results of mutants as a file of JSON lines, and the judged survivors."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.json_lines import JsonLines
from tests.mutants.mutant_run import Outcome
from tests.mutants.mutations import Mutation

SURVIVORS = Path(__file__).with_name("survivors.json")
KILLED_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a person on a survivor.

    Attributes:
        kind: ``equivalent`` where no test can see the fault, ``work`` where one should.
        reason: one sentence.
    """

    kind: str
    reason: str


def verdicts() -> dict[str, Verdict]:
    """Judged survivors by the key of their mutation."""
    rows = json.loads(SURVIVORS.read_text(encoding="utf-8"))
    found: dict[str, Verdict] = {}
    for row in rows:
        assert row["kind"] in ("equivalent", "work"), row
        assert row["reason"], row
        key = f"{row['file']} | {row['text']} | {row['change']} | {row.get('occurrence', 1)}"
        found[key] = Verdict(row["kind"], row["reason"])
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """The state of the checkout that an outcome was found in.

    Attributes:
        revision: the commit, for people only.
        source: digest of the mutated file.
        tests: digest of the tests that belong to it.
        enough: CPU seconds of tests that a survivor was given.
    """

    revision: str
    source: str
    tests: str
    enough: float


class Results:
    """Outcomes in a file of JSON lines, which is written whole after each.

    An outcome holds for the digests it was found with: of the mutated file and, unless the mutant
    was killed, of its tests; and a survivor only for as many seconds of tests.
    """

    def __init__(self, path: Path) -> None:
        self.file = JsonLines(path)
        self.rows: dict[str, Mapping[str, object]] = {
            str(row["key"]): row for row in self.file.read()
        }

    def known(
        self, mutation: Mutation, source: str, tests: Callable[[], str], enough_s: float
    ) -> bool:
        """Whether the outcome of a mutant is there and still holds.

        Args:
            mutation: the fault.
            source: digest of its file.
            tests: gives the digest of the tests that belong to the file, which takes long.
            enough_s: CPU seconds of tests that a survivor is to be given.
        """
        row = self.rows.get(mutation.key)
        if row is None or row["source"] != source:
            return False
        spent = row.get("enough", 0.0)
        enough = isinstance(spent, float) and spent >= enough_s
        return bool(row["killed"]) or (enough and row["tests"] == tests())

    def killers(self, file: str) -> set[str]:
        """Files of tests that killed mutants of a file."""
        killing = [row for row in self.rows.values() if row["file"] == file and row["killed"]]
        return {str(row["by"]).partition("::")[0] for row in killing}

    def test_seconds(self) -> dict[str, float]:
        """CPU seconds of each file of tests, the most that it took."""
        found: dict[str, float] = {}
        for row in self.rows.values():
            spent = row.get("spent", {})
            assert isinstance(spent, dict)
            for test, seconds in spent.items():
                found[test] = max(found.get(test, 0.0), seconds)
        return found

    def add(self, mutation: Mutation, judged: Judged, outcome: Outcome) -> None:
        """Keep an outcome and write the file."""
        place = {"key": mutation.key, "file": mutation.file, "line": mutation.line}
        spent = {test: round(seconds, 1) for test, seconds in outcome.spent.items()}
        found = {**asdict(outcome), "seconds": round(outcome.seconds, 1), "spent": spent}
        self.rows[mutation.key] = {**place, **asdict(judged), **found}
        self.file.write(self.rows.values())


@dataclass(frozen=True, slots=True)
class Survivor:
    """A mutant that no test saw, with its judgement where there is one."""

    mutation: Mutation
    reached: bool
    verdict: Verdict | None

    def as_text(self) -> str:
        """The place, the change and the judgement, on one line each."""
        judged = f"{self.verdict.kind}: {self.verdict.reason}" if self.verdict else "not judged"
        reached = "" if self.reached else " (no test executes it)"
        place = f"{self.mutation.file}:{self.mutation.line}: {self.mutation.change}{reached}"
        return f"{place}\n    {self.mutation.text}\n    {judged}"


@dataclass(frozen=True, slots=True)
class Count:
    """How many mutants of one package are in a sample, were run and were killed."""

    package: str
    chosen: int
    run: int
    killed: int

    @property
    def share(self) -> str:
        """The killed part of those that were run, in percent."""
        return f"{100 * self.killed / self.run:.1f} %" if self.run else "none"


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of a sample by package, its survivors, and how many outcomes are out of date."""

    packages: Sequence[Count]
    survivors: Sequence[Survivor]
    outdated: int

    @property
    def total(self) -> Count:
        """The counts of all packages."""
        rows = self.packages
        sums = (sum(getattr(row, name) for row in rows) for name in ("chosen", "run", "killed"))
        return Count("all", *sums)

    @property
    def good_enough(self) -> bool:
        """Whether all were run, 90 % were killed and every survivor is judged."""
        total = self.total
        judged = all(survivor.verdict for survivor in self.survivors)
        return judged and total.run == total.chosen and total.killed >= KILLED_SHARE * total.run

    def as_text(self) -> str:
        """Survivors, a table by package, then the counts."""
        listed = [survivor.as_text() for survivor in self.survivors]
        table = [f"{'package':<10}{'mutants':>8}{'run':>6}{'killed':>8}{'share':>9}"]
        table += [
            f"{row.package:<10}{row.chosen:>8}{row.run:>6}{row.killed:>8}{row.share:>9}"
            for row in [*self.packages, self.total]
        ]
        kinds = [s.verdict.kind if s.verdict else "not judged" for s in self.survivors]
        judged = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
        ending = [f"survivors: {judged}"] if judged else []
        if self.outdated:
            ending.append(f"{self.outdated} outcomes are older than the file or its tests")
        return "\n".join([*listed, *table, *ending])

    def as_json(self) -> dict[str, object]:
        """The same, for a program to read."""
        total = self.total
        return {
            "chosen": total.chosen,
            "run": total.run,
            "killed": total.killed,
            "outdated": self.outdated,
            "packages": [asdict(row) for row in self.packages],
            "survivors": [
                {
                    **asdict(survivor.mutation),
                    "reached": survivor.reached,
                    "verdict": asdict(survivor.verdict) if survivor.verdict else None,
                }
                for survivor in self.survivors
            ],
        }


def report(
    chosen: Sequence[Mutation],
    results: Results,
    judged: Mapping[str, Verdict],
    outdated: Collection[str] = (),
) -> Summary:
    """Count the outcomes of a sample that are there.

    Args:
        chosen: the sample.
        results: outcomes of these and others.
        judged: survivors with a judgement, by key.
        outdated: keys whose outcome is not that of the checkout as it is.
    """
    run = [(m, results.rows[m.key]) for m in chosen if m.key in results.rows]
    survivors = [
        Survivor(mutation, bool(row["reached"]), judged.get(mutation.key))
        for mutation, row in run
        if not row["killed"]
    ]
    packages = sorted({_package(mutation) for mutation in chosen})
    counts = [_count(package, chosen, run) for package in packages]
    old = sum(mutation.key in outdated for mutation, _ in run)
    return Summary(counts, survivors, old)


def _count(
    package: str, chosen: Sequence[Mutation], run: Sequence[tuple[Mutation, Mapping[str, object]]]
) -> Count:
    ended = [bool(row["killed"]) for mutation, row in run if _package(mutation) == package]
    mine = sum(_package(mutation) == package for mutation in chosen)
    return Count(package, mine, len(ended), sum(ended))


def _package(mutation: Mutation) -> str:
    return mutation.file.partition("/")[0]
