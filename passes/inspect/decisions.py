"""Summary of a pipeline's decisions: rules applied and nearest failures, per scope.

Two models that differ in depth and width only should get the same decisions in every layer. So
numbers of layers, and sizes in reasons, are left out: a decision is a pass, a rule, a program and a
scope such as ``model.layers.N.mlp``, with the times it was taken in each layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.passes.core.journal import Journal, MatchFailure, Rewrite

# A part of a dotted name that is a number, and a number in a sentence.
_PART = re.compile(r"(?<=\.)\d+(?=\.|$)|(?<=\.)\d+(?=[-\s])")
# The suffix of sizes in the names of pack functions.
_SIZES = re.compile(r"(?<=\.)\d+(x\d+)+(?=\.|$)")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]\d+)?(?![\w.]*\w)")


@dataclass(frozen=True, slots=True, order=True)
class DecisionSite:
    """Scope of a decision.

    Attributes:
        pass_name, rule: by whom; numbers of layers are ``N``.
        function: in which function; sizes in its name are ``N``.
        scope: in which module scope, with ``N`` for the number of a layer.
    """

    pass_name: str
    rule: str
    function: str
    scope: str


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of one run of a pipeline.

    Attributes:
        made: site -> (applications in one layer -> number of layers with that count).
        near: for each rule that looked, why it did not apply where it came nearest, with ``N`` for
            sizes.
    """

    made: Mapping[DecisionSite, Mapping[int, int]] = field(
        default_factory=dict[DecisionSite, Mapping[int, int]]
    )
    near: Mapping[DecisionSite, str] = field(default_factory=dict[DecisionSite, str])


def decisions(journal: Journal) -> Decisions:
    """The decisions that a journal has on record."""
    times: dict[DecisionSite, Counter[tuple[str, str]]] = {}
    for item in journal.applications:
        # Which layer it was is in the scope, or in what the rule says it did.
        layers = times.setdefault(site_of(item), Counter())
        layers[item.rule, item.loc.scope] += 1
    made = {site: Counter(layers.values()) for site, layers in times.items()}
    nearest: dict[DecisionSite, MatchFailure] = {}
    for miss in journal.misses:
        site = site_of(miss)
        best = nearest.get(site)
        if best is None or miss.why.depth > best.why.depth:
            nearest[site] = miss
    near = {site: _NUMBER.sub("N", miss.why.reason) for site, miss in nearest.items()}
    return Decisions(made, near)


def site_of(item: Rewrite | MatchFailure) -> DecisionSite:
    """The site of a rewrite or failure, without its layer's number."""
    rule = _PART.sub("N", item.rule)
    function = _SIZES.sub("N", item.function)
    return DecisionSite(item.pass_name, rule, function, _PART.sub("N", item.loc.scope))


def differences(one: Decisions, other: Decisions) -> list[str]:
    """Differences between the decisions of two runs; empty where they agree.

    How many layers there are makes no difference, only how often a rule applied in one.
    """
    out: list[str] = []
    for site in sorted(one.made.keys() | other.made.keys()):
        left, right = (sorted(each.made.get(site, {})) for each in (one, other))
        if left != right:
            out.append(f"{_text(site)}: applied {_times(left)} here, {_times(right)} there")
    for site in sorted(one.near.keys() | other.near.keys()):
        left, right = one.near.get(site, "-"), other.near.get(site, "-")
        if left != right:
            out.append(f"{_text(site)}: '{left}' here, '{right}' there")
    return out


def _text(site: DecisionSite) -> str:
    where = f" {site.scope}" if site.scope else ""
    return f"{site.pass_name}: {site.rule} in @{site.function}{where}"


def _times(counts: Sequence[int]) -> str:
    return " or ".join(map(str, counts)) + " times" if counts else "never"
