"""Evidence of devices about the rules: a file that a user keeps, and its effect on findings.

``graphgen device-kit read`` writes it. It has, for each target, how often a rule was confirmed and
contradicted, and uses of ops that were refused or wrong although the rules accept them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from graphgen.atomic_write import read_regular
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.json_value import OTHER_FORM, parse_json
from graphgen.limits import JSON_BYTES
from graphgen.lowering.check.check import Finding
from graphgen.lowering.check.compiler_rules import opcode_of
from graphgen.lowering.check.predicates import Request

KIND, FORMAT = "graphgen evidence", 1
VARIABLE = "GRAPHGEN_EVIDENCE"
_Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RuleEvidence:
    """Cases about one rule on one target.

    Attributes:
        confirmed, contradicted: names of cases.
        compiler: the version of the newest run.
    """

    confirmed: frozenset[str] = frozenset()
    contradicted: frozenset[str] = frozenset()
    compiler: str = ""

    @property
    def verdict(self) -> str:
        """``confirmed``, ``contradicted`` or ``mixed``."""
        if self.confirmed and self.contradicted:
            return "mixed"
        return "contradicted" if self.contradicted else "confirmed"

    @property
    def trust(self) -> str:
        """The trust in a rule with this evidence, in words."""
        by = f"by neuronx-cc {self.compiler}"
        every = len(self.confirmed | self.contradicted)
        counts = f"{len(self.confirmed)} of {every} case{'s' * (every != 1)}"
        return f"device: {self.verdict} {by} ({counts})"


@dataclass(frozen=True, slots=True)
class UseEvidence:
    """A use of an op that the rules accept, and a device did not.

    Attributes:
        outcome: ``refused``, ``does not run`` or ``wrong numbers``.
        code: of the compiler.
        case: that showed it.
        compiler: its version.
        alone: no other case of this op and type went well.
    """

    outcome: str
    code: str
    case: str
    compiler: str
    alone: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """The content of a file.

    Attributes:
        rules: by target and rule.
        uses: by target, op and element type.
        figures: measured rates of a core in words, by target and logical cores.
    """

    rules: Mapping[tuple[str, str], RuleEvidence] = field(
        default_factory=dict[tuple[str, str], RuleEvidence]
    )
    uses: Mapping[tuple[str, str, str], UseEvidence] = field(
        default_factory=dict[tuple[str, str, str], UseEvidence]
    )
    figures: Mapping[tuple[str, int], Sequence[str]] = field(
        default_factory=dict[tuple[str, int], Sequence[str]]
    )


def rule_key(finding: Finding) -> str:
    """The name of a finding's rule; those of statuses and types name the op and the type."""
    if finding.rule == "status":
        return f"status {finding.op}"
    if finding.rule == "dtype":
        return f"dtype {finding.what.rpartition(': ')[2].partition(' ')[0]}"
    return finding.rule


def read_evidence(path: str | Path) -> Evidence:
    """Read a file that ``graphgen device-kit read`` wrote.

    Raises:
        GraphgenError: GG1004 if it cannot be read, or is something else.
    """
    try:
        content = parse_json(read_regular(Path(path), JSON_BYTES))
        return _parsed(cast(_Json, content))
    except (OSError, *OTHER_FORM) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise GraphgenError(
            "GG1004",
            f"'{path}' is not an evidence file: {reason}",
            help="graphgen device-kit read results.json -o FILE writes it",
        ) from error


def _parsed(content: _Json) -> Evidence:
    if content["kind"] != KIND or content["format"] != FORMAT:
        raise ValueError("it is of another kind or format")
    rules: dict[tuple[str, str], RuleEvidence] = {}
    uses: dict[tuple[str, str, str], UseEvidence] = {}
    for row in cast(Sequence[_Json], content["rules"]):
        rules[str(row["target"]), str(row["rule"])] = RuleEvidence(
            frozenset(cast(Sequence[str], row["confirmed"])),
            frozenset(cast(Sequence[str], row["contradicted"])),
            str(row["compiler"]),
        )
    for row in cast(Sequence[_Json], content["uses"]):
        key = (str(row["target"]), str(row["op"]), str(row["dtype"]))
        uses[key] = UseEvidence(
            str(row["outcome"]),
            str(row["code"]),
            str(row["case"]),
            str(row["compiler"]),
            bool(row["alone"]),
        )
    figures: dict[tuple[str, int], list[str]] = {}
    for row in cast(Sequence[_Json], content.get("figures", ())):
        text = f"{row['figure']}: {float(str(row['measured'])):.1f}"
        published = float(str(row["published"]))
        text += f" ({published:.1f} published)" if published else ""
        figures.setdefault((str(row["target"]), int(str(row["lnc"]))), []).append(text)
    return Evidence(rules, uses, figures)


def with_evidence(
    module: Module, found: Sequence[Finding], request: Request, evidence: Evidence
) -> list[Finding]:
    """The findings about a module after devices have spoken, errors first.

    A confirmed rule is trusted as the device is. One that was only contradicted becomes a
    warning. An op that a device refused for the same element type is a finding of its own.
    """
    changed = [_weighed(item, request, evidence) for item in found]
    blamed = {(item.function, item.op, item.where) for item in changed if item.severity == "error"}
    for function in module.programs() or module.functions.values():
        changed += [
            item
            for item in _refused(function, request, evidence)
            if (item.function, item.op, item.where) not in blamed
        ]
    return sorted(changed, key=lambda item: item.severity != "error")


def _weighed(item: Finding, request: Request, evidence: Evidence) -> Finding:
    about = evidence.rules.get((request.target, rule_key(item)))
    if about is None:
        return item
    severity = item.severity
    if about.verdict == "contradicted" and severity == "error":
        severity = "warn"
    return replace(item, severity=severity, trust=about.trust)


def _refused(function: Function, request: Request, evidence: Evidence) -> Iterator[Finding]:
    for op in function.block:
        opcode = opcode_of(op.name, op.attrs)
        kinds = {value.dtype.name for value in (*op.operands, *op.results)}
        for kind in sorted(kinds):
            use = evidence.uses.get((request.target, opcode, kind))
            if use is None:
                continue
            refused = use.outcome == "refused" and use.alone
            yield Finding(
                "error" if refused else "warn",
                "device",
                use.code,
                function.name,
                opcode,
                repr(op.loc),
                f"{opcode} of {kind}: {use.outcome} on {request.target}",
                "write it in another form, and report the case",
                f"device: neuronx-cc {use.compiler}",
                f"device kit, {use.case}",
            )
