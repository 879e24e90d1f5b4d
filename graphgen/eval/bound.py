"""Evaluating by hand: symbols take the sizes of what is given, lists of numbers are arrays."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

import numpy as np

from graphgen.analysis.calls import inlined
from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import Array, numpy_dtype
from graphgen.eval.evaluate import evaluate
from graphgen.eval.symbol_sizes import bound_by
from graphgen.ir import Function, Module, TensorType
from graphgen.ir.dtype import Kind


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
        near = get_close_matches(str(unknown[0]), known, n=1)
        raise GraphgenError(
            "GG0402",
            f"@{function.name} has no input %{unknown[0]}",
            help=f"did you mean {near[0]}?" if near else f"it takes {', '.join(known) or 'none'}",
        )
    return {name: as_array(name, known[name], value) for name, value in given.items()}


def as_array(name: str, type_: TensorType, value: object) -> Array:
    """What is given for the input ``name`` as an array of its element type.

    Raises:
        GraphgenError: GG0402 for what is no array of numbers, and for numbers that the type cannot
            hold: parts of one in integers, ones out of range, complex ones.
    """
    try:
        given = np.asarray(value)
    except Exception as error:  # arrays of other libraries raise what they like
        raise _no_numbers(name, str(error)) from error
    if given.dtype.kind in "OUSM" or given.dtype.names is not None:
        what = "it is None" if value is None else f"it is a {type(value).__name__}"
        raise _no_numbers(name, _not_a_number(given) or what)
    kind = type_.dtype
    if given.dtype.kind == "c" and kind.kind is not Kind.COMPLEX:
        raise GraphgenError("GG0402", f"%{name} is {type_.text}, and was given complex numbers")
    with np.errstate(all="ignore"):
        made = given.astype(numpy_dtype(kind))
        if kind.is_number and given.dtype != made.dtype:
            _check_held(name, type_, given, made)
    return made


def _not_a_number(given: Array) -> str:
    """The first element that is none, converted as NumPy would: its own words for why."""
    try:
        given.astype(np.float64)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _no_numbers(name: str, why: str) -> GraphgenError:
    return GraphgenError(
        "GG0402", f"%{name} is no array of numbers: {why}", help="give a NumPy array or lists"
    )


def _check_held(name: str, type_: TensorType, given: Array, made: Array) -> None:
    """Refuse numbers that became others (GG0402); floats may be rounded, not become infinite."""
    if type_.dtype.is_float:
        lost = np.isinf(made.astype(np.float64)) & np.isfinite(given.astype(np.float64))
    elif given.dtype.kind == "b":
        return
    else:
        lost = made != given
    if lost.any():
        first = given[lost].flat[0]
        raise GraphgenError("GG0402", f"%{name} is {type_.text}, which cannot hold {first}")
