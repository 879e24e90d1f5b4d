"""Evaluating by hand: symbols take the sizes of what is given, lists of numbers are arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphgen.analysis.calls import inlined
from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import Array, numpy_dtype
from graphgen.eval.evaluate import evaluate
from graphgen.eval.symbol_sizes import bound_by
from graphgen.ir import Function, Module, TensorType


def evaluate_bound(
    module: Module | None, function: Function, given: Mapping[str, object]
) -> dict[str, Array]:
    """The outputs of ``function``.

    Args:
        module: has the functions it calls; ``None`` where it calls none.
        function: its symbols are bound by the shapes of ``given``.
        given: arrays or nested lists by name.

    Raises:
        GraphgenError: GG0402 an input that is missing, unknown or of another shape; two that give
            a symbol two sizes.
    """
    flat = function if module is None else inlined(module, function)
    arrays = _arrays(flat, given)
    given_to = {v: arrays[v.name] for v in flat.args if v.name in arrays}
    return evaluate(bound_by(flat, given_to), arrays, module=module)


def _arrays(function: Function, given: Mapping[str, object]) -> dict[str, Array]:
    known = {value.name or "": value.type for value in function.args}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise GraphgenError(
            "GG0402",
            f"@{function.name} has no input %{unknown[0]}",
            help=f"it takes {', '.join(known) or 'none'}",
        )
    return {name: _array(name, known[name], value) for name, value in given.items()}


def _array(name: str, type_: TensorType, value: object) -> Array:
    try:
        return np.asarray(value).astype(numpy_dtype(type_.dtype))
    except (TypeError, ValueError) as error:
        raise GraphgenError("GG0402", f"%{name} is no array of numbers: {error}") from error
