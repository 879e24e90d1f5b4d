"""Contradictions between a device and the rules, as issues that are ready to be filed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.json_value import Json
from graphgen.runtime.device_kit.verdicts import CONTRADICTS, WRONG, CaseVerdict
from graphgen.runtime.kit_runner.kit_types import Comparison, Results
from graphgen.runtime.kit_runner.log_text import counted


@dataclass(frozen=True, slots=True)
class Contradiction:
    """One issue.

    Attributes:
        title: what happened, on which target.
        verdict: of the case.
        body: everything that is needed to look into it, as Markdown.
    """

    title: str
    verdict: CaseVerdict
    body: str

    def to_json(self) -> dict[str, Json]:
        """The issue as JSON."""
        case = self.verdict.case
        return {
            "title": self.title,
            "case": case["name"],
            "op": case["subject"]["op"] or None,
            "dtype": case["subject"]["dtype"] or None,
            "expects": case["subject"]["expects"],
            "outcome": self.verdict.outcome,
            "codes": [*case["compilation"]["codes"]],
            "hlo": case["hlo"],
            "rules": [
                {"rule": item["rule"], "trust": item["trust"], "source": item["source"]}
                for item in self.verdict.rules
            ],
            "log_tail": case["compilation"]["log_tail"],
            "body": self.body,
        }


def contradictions(found: Sequence[CaseVerdict], results: Results) -> list[Contradiction]:
    """An issue for each verdict that contradicts, in the order of the cases."""
    return [
        Contradiction(_title(item, results), item, _body(item, results))
        for item in found
        if item.kind == CONTRADICTS
    ]


def _title(item: CaseVerdict, results: Results) -> str:
    subject = item.case["subject"]
    what = f"{subject['op']} of {subject['dtype']}" if subject["op"] else item.case["name"]
    code = f" ({item.code})" if item.code else ""
    rules = ", ".join(rule["rule"] for rule in item.rules)
    against = f", against {rules}" if rules else ""
    return f"{results['target']}: {what}: {item.outcome}{code}{against}"


def _body(item: CaseVerdict, results: Results) -> str:
    case, facts = item.case, results["facts"]
    lines = [
        f"Case `{case['name']}` of kit `{results['kit'][:12]}`: {item.what}.",
        "",
        f"* target {results['target']}, LNC {results['lnc']}, {facts['instance'] or 'no instance'}",
        f"* neuronx-cc {facts['compiler']}, driver {facts['driver'] or 'unknown'}, "
        f"executed by {facts['execution'] or 'nothing'}",
        f"* HLO `{case['hlo']}`",
    ]
    lines += [
        f"* rule `{rule['rule']}`: {rule['severity'] or 'accepts'}, "
        f"trust {rule['trust'] or 'none'}, source {rule['source'] or 'none'}"
        for rule in item.rules
    ]
    if item.outcome == WRONG:
        lines += [_wrong(output) for output in case["execution"]["outputs"] if not output["right"]]
    if case["execution"]["why"]:
        lines.append(f"* execution: {case['execution']['why']}")
    tail = case["compilation"]["log_tail"]
    return "\n".join([*lines, "", "```", tail, "```", ""] if tail else [*lines, ""])


def _wrong(output: Comparison) -> str:
    place = f"element {output['at']} is {output['got']}, expected {output['want']}"
    verb = "is" if output["wrong"] == 1 else "are"
    every = counted(output["count"], "element")
    count = f"{output['wrong']} of {every} of `{output['name']}` {verb} wrong"
    return f"* {count}; {place}" if output["count"] else f"* `{output['name']}`: {output['note']}"
