"""Inlining composites from templates: one decomposition for each distinct composite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.build import Builder
from graphgen.composites import DECOMPOSITIONS, Decomposition, decompose
from graphgen.ir import Attrs, Function, Loc, Op, TensorType, Value
from graphgen.ops import OPS
from passes.core import Rewriter, Rule


def _itself(op: Op) -> Decomposition:
    """The decomposition of a simple op: the op."""

    def emit(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
        return b.emit(op.name, operands, dict(attrs)).results

    return emit


_Signature = tuple[str, Attrs, tuple[TensorType, ...]]


class Inliner:
    """Replaces composites by their decompositions.

    Layers repeat, so what an op becomes is made once for each op, attributes and operand types, and
    copied for every further use.

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
        self._templates: dict[_Signature, Function | None] = {}

    def run(self, function: Function) -> None:
        """Inline every composite of ``function``, and rewrite the roots of the rules."""
        for op in function.block:
            if OPS[op.name].composite or op.name in self._roots:
                self._inline(function, op, self.rewriter)

    def _template(self, op: Op) -> Function | None:
        """What ``op`` becomes; ``None`` where it stays as it is."""
        key = (op.name, op.attrs, tuple([value.type for value in op.operands]))
        if key not in self._templates:
            self._templates[key] = self._make(op)
        return self._templates[key]

    def _make(self, op: Op) -> Function | None:
        """Decompose a composite, or take the op alone; then let the rules at it."""
        made = decompose(op, self.forms.get(op.name, _itself(op)))
        # What happens inside a template is no rewrite of the module: neither counted nor recorded.
        rewriter = Rewriter(self.rewriter.pass_name)
        for inner in made.block:
            if OPS[inner.name].composite:
                self._inline(made, inner, rewriter)
        rewriter.apply_rules(made, self.rules)
        return made if rewriter.applications or OPS[op.name].composite else None

    def _inline(self, function: Function, op: Op, rewriter: Rewriter) -> None:
        template = self._template(op)
        if template is None:
            return
        where: Loc = op.loc.through(rewriter.pass_name)
        mapping: dict[Value, Value] = dict(zip(template.args, op.operands, strict=True))
        for inner in template.block:
            operands = tuple([mapping[value] for value in inner.operands])
            types = [result.type for result in inner.results]
            copy = Op(inner.name, operands, types, inner.attrs, where)
            function.block.insert_before(copy, op)
            mapping.update(zip(inner.results, copy.results, strict=True))
        rewriter.replace(function, op, [mapping[value] for _, value in template.outputs])
