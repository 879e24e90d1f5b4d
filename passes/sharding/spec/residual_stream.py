"""The residual stream of a program: hidden states of all tokens, between attention and MLP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from graphgen.ir import HELD_ROLES, Function, Module, Value
from graphgen.passes.sharding.spec.logical_axes import HIDDEN, SEQUENCE, ModelAxes
from graphgen.passes.weights.derived import PreparedValues

_NORMS = ("layer_norm", "rms_norm")


def residual_stream(
    module: Module, function: Function, axes: ModelAxes
) -> Iterator[tuple[Value, int]]:
    """Yield values of the residual stream [B,S,E] and their norms, each with its dimension S.

    ``axes`` are those of the module.

    These are the values that several ops or a norm reads, and the results of norms. A value that
    one addition reads is left out: ranks may hold addends of it, which are summed once, later.
    """
    prepared = PreparedValues(module, function, {}, HELD_ROLES)
    readers = Counter(value for op in function.block for value in op.operands)
    normalized = {value for op in function.block if op.name in _NORMS for value in op.operands}
    for op in function.block:
        for value in op.results:
            names = [axes.of(value, dim) for dim in range(value.type.rank)]
            tokens = [dim for dim, found in enumerate(names) if SEQUENCE in found]
            hidden = any(HIDDEN in found for found in names)
            if not tokens or not hidden or prepared.of_weights(value):
                continue
            if op.name in _NORMS or value in normalized or readers[value] > 1:
                yield value, tokens[0]
