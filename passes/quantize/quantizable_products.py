"""The products whose weights can be quantized, and why the other weights stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from graphgen.ir import Module, Op
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.weights.derived import PreparedValues, WeightNumbers
from graphgen.passes.weights.materialization import weight_of


class QuantizableProducts:
    """The products of a module with a weight that nothing else reads.

    A weight is kept in one form: one that some program reads otherwise stays as it is, unless
    copies are allowed.

    Args:
        module: its programs are all considered.
        skip: weights that keep their type: parts of dotted names, as in ``layers.0.mlp``.
        copies: whether products of a weight that is read elsewhere too count.
    """

    def __init__(self, module: Module, skip: Sequence[str], *, copies: bool = False) -> None:
        self._skip = tuple(skip)
        self._copies = copies
        numbers: WeightNumbers = {}
        self.programs = [
            PreparedValues(module, function, numbers) for function in module.programs()
        ]
        self._read_otherwise: set[int] = set()
        for prepared in self.programs:
            found = {
                prepared.number(op.operands[1])
                for op in prepared.function.block
                if op.name == "dot_general" and self._why_not(op, prepared) is None
            }
            self._read_otherwise |= set(prepared.read) - found

    def why_not(self, op: Op, prepared: PreparedValues) -> NoMatch | None:
        """Why the weight of a ``dot_general`` stays as it is, ``None`` where it need not."""
        why = self._why_not(op, prepared)
        if why is not None:
            return why
        weight = op.operands[1]
        if not self._copies and prepared.number(weight) in self._read_otherwise:
            what = "another program of the module reads the weight otherwise"
            return no_match(what, weight, depth=8)
        return None

    def _why_not(self, op: Op, prepared: PreparedValues) -> NoMatch | None:
        """The same as far as one program can tell."""
        lhs, rhs = op.operands[0], weight_of(op)
        if not rhs.dtype.is_float or rhs.dtype.bits <= 8:
            return no_match(f"its right operand is {rhs.dtype} already", rhs)
        if not prepared.of_weights(rhs):
            return no_match("its right operand is not made of weights alone", rhs, depth=2)
        if lhs in prepared:
            return no_match("its left operand is made of weights itself", lhs, depth=3)
        if op.attrs.integers("rhs_batch_dims"):
            return no_match("it has batch dimensions", rhs, depth=4)
        outputs = rhs.type.rank - len(op.attrs.integers("rhs_contracting_dims"))
        if outputs != 1:
            return no_match(f"the weight has {outputs} output dimensions, not 1", rhs, depth=5)
        for name in prepared.sources(rhs):
            for pattern in self._skip:
                if names(pattern, name):
                    return no_match(f"skip={pattern} names {name}", rhs, depth=6)
        if not self._copies and prepared.readers(rhs) != 1:
            return no_match(
                "the weight is read elsewhere too, and would be kept twice", rhs, depth=7
            )
        return None


def names(pattern: str, weight: str) -> bool:
    """True if a run of the weight's dotted parts matches the pattern, part by part."""
    wanted, parts = pattern.split("."), weight.split(".")
    return any(
        all(fnmatchcase(part, want) for part, want in zip(parts[at:], wanted, strict=False))
        for at in range(len(parts) - len(wanted) + 1)
    )
