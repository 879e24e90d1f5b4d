"""Inlining composites from templates: one decomposition for each distinct composite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.composites import DECOMPOSITIONS, Decomposition, decompose
from graphgen.ir import Attrs, Function, Op, TensorType, Value
from graphgen.ir.clone import Cloner
from graphgen.ops import OPS
from graphgen.passes.core import Rewriter, Rule
from graphgen.passes.core.journal import Journal, MatchFailure, describe


def _itself(op: Op) -> Decomposition:
    """The decomposition of a simple op: the op."""

    def emit(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
        return b.emit(op.name, operands, dict(attrs)).results

    return emit


_Signature = tuple[str, Attrs, tuple[TensorType, ...]]


@dataclass(frozen=True, slots=True)
class _Template:
    """The replacement of one kind of op.

    Attributes:
        body: operands in, results out.
        label: what was done, for the journal; empty where the op stays as it is.
        misses: what the rules declined to do inside.
    """

    body: Function
    label: str
    misses: Sequence[MatchFailure]


class Inliner:
    """Replaces composites by their decompositions.

    Layers repeat, so what an op becomes is made once for each op, attributes and operand types, and
    copied for every further use. Rewrites and near misses inside a template belong to the rewrites
    that use it.

    Args:
        rewriter: makes the changes.
        forms: the target's own decompositions, preferred over the general ones.
        rules: rewrites of single ops, applied inside the templates; what they do may depend on
            attributes and types only.
    """

    def __init__(
        self, rewriter: Rewriter, forms: Mapping[str, Decomposition], rules: Sequence[Rule]
    ) -> None:
        self.rewriter = rewriter
        self.forms = {**DECOMPOSITIONS, **forms}
        self.rules = rules
        self._roots = {root for rule in rules for root in rule.roots}
        self._templates: dict[_Signature, _Template] = {}

    def run(self, function: Function) -> None:
        """Inline every composite of ``function``, and rewrite the roots of the rules."""
        for op in function.block:
            if self.rewriter.exhausted:
                return
            if OPS[op.name].composite or op.name in self._roots:
                self._inline(function, op, self.rewriter)

    def _template(self, op: Op) -> _Template:
        """The replacement of ``op``."""
        key = (op.name, op.attrs, tuple([value.type for value in op.operands]))
        found = self._templates.get(key)
        if found is None:
            found = self._templates[key] = self._make(op)
        return found

    def _make(self, op: Op) -> _Template:
        """Decompose a composite, or take the op alone; then let the rules at it."""
        made = decompose(op, self.forms.get(op.name, _itself(op)))
        journal = Journal() if self.rewriter.journal is not None else None
        rewriter = Rewriter(self.rewriter.pass_name, journal)
        for inner in made.block:
            if OPS[inner.name].composite:
                self._inline(made, inner, rewriter)
        rewriter.apply_rules(made, self.rules)
        done = [f"inline {op.name}"] if OPS[op.name].composite else []
        if journal is None:
            # Without a journal only the fact of a rewrite matters, not its rules.
            return _Template(made, "rewrite" if done or rewriter.applications else "", [])
        done += dict.fromkeys([item.rule for item in journal.applications])
        return _Template(made, ", ".join(done), journal.misses)

    def _inline(self, function: Function, op: Op, rewriter: Rewriter) -> None:
        template = self._template(op)
        body = template.body
        mapping: dict[Value, Value] = dict(zip(body.args, op.operands, strict=True))
        if not template.label:
            mapping.update(zip([value for _, value in body.outputs], op.results, strict=True))
            self._decline(template, function, op, mapping, rewriter.journal)
            return
        where = op.loc.through(rewriter.pass_name)
        cloner = Cloner(mapping, at=where, names=False, shardings=False)
        copies = [cloner.op(inner, function.block, op) for inner in body.block]
        self._decline(template, function, op, mapping, rewriter.journal)
        results = [mapping[value] for _, value in body.outputs]
        rewriter.replace(function, op, results, template.label, created=copies)

    @staticmethod
    def _decline(
        template: _Template,
        function: Function,
        op: Op,
        mapping: Mapping[Value, Value],
        journal: Journal | None,
    ) -> None:
        """Record what the rules declined inside a template, as if they had declined it here."""
        if journal is None:
            return
        for miss in template.misses:
            at = mapping.get(miss.why.at) if miss.why.at is not None else None
            root = miss.root if OPS[op.name].composite else describe(op)
            why = replace(miss.why, at=at)
            journal.misses.append(
                replace(miss, function=function.name, root=root, loc=op.loc, why=why)
            )
