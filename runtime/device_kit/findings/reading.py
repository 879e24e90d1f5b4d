"""The results of a kit, read: verdicts, contradictions and measured times together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphgen.json_value import Json
from graphgen.runtime.device_kit.findings.contradictions import Contradiction, contradictions
from graphgen.runtime.device_kit.findings.evidence_file import add_evidence, evidence_of
from graphgen.runtime.device_kit.findings.figures import Figure, figures
from graphgen.runtime.device_kit.findings.kit_results import read_results
from graphgen.runtime.device_kit.findings.verdicts import CaseVerdict, verdicts
from graphgen.runtime.device_kit.runner.kit_types import Results


@dataclass(frozen=True, slots=True)
class KitReading:
    """The results of a kit and what they say.

    Attributes:
        results: as they were written.
        verdicts: of each case.
        contradictions: as issues.
        evidence: rows of rules, of uses and of times.
        figures: measured rates.
    """

    results: Results
    verdicts: Sequence[CaseVerdict]
    contradictions: Sequence[Contradiction]
    evidence: Mapping[str, Sequence[Mapping[str, Json]]]
    figures: Sequence[Figure]

    @property
    def counts(self) -> Mapping[str, int]:
        """Cases by the kind of their verdict."""
        return Counter(item.kind for item in self.verdicts)

    def keep(self, path: Path) -> None:
        """Add the evidence to a file (GG0704, GG1004)."""
        rows = {name: [dict(row) for row in items] for name, items in self.evidence.items()}
        add_evidence(path, rows, self.results)


def read_kit_results(path: Path) -> KitReading:
    """Read the results of a kit (GG1004)."""
    results = read_results(path)
    found = verdicts(results["cases"])
    measured = figures(results)
    evidence = evidence_of(found, results, measured)
    return KitReading(results, found, contradictions(found, results), evidence, measured)
