"""Arrays of the user's in the place of random ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Module, TensorType
from graphgen.passes.debug.script import Call, Script


def with_arrays(script: Script, module: Module, arrays: Mapping[str, Array]) -> Script:
    """The script with these weights, states at the start, and inputs of every call.

    Args:
        script: for ``module``.
        module: its interface knows the names.
        arrays: by name, in logical types; bf16 may come as two raw bytes, as NumPy's files have it.

    Raises:
        GraphgenError: GG0402 for a name nobody reads, or an array of another shape or kind.
    """
    calls: list[Call] = []
    used: set[str] = set()
    weights, states = dict(script.weights), dict(script.states)
    for held in (weights, states):
        for name in held.keys() & arrays.keys():
            held[name] = _fitting(arrays[name], held[name], name, _type(module, name))
            used.add(name)
    for call in script.calls:
        inputs, parts = dict(call.inputs), dict(call.parts)
        for name in inputs.keys() & arrays.keys():
            inputs[name] = _fitting(arrays[name], inputs[name], name, _type(module, name))
        for name in parts.keys() & arrays.keys():
            one = _fitting(arrays[name], parts[name][0], name, _type(module, name))
            parts[name] = [one] * len(parts[name])
        used |= (inputs.keys() | parts.keys()) & arrays.keys()
        calls.append(replace(call, inputs=inputs, parts=parts))
    unknown = sorted(arrays.keys() - used)
    if unknown:
        known = sorted({*weights, *states, *(name for call in calls for name in call.inputs)})
        raise GraphgenError(
            "GG0402",
            f"there is no input called {', '.join(unknown)}",
            help=f"there are {', '.join(known[:12])}{' ...' if len(known) > 12 else ''}",
        )
    return replace(script, weights=weights, calls=tuple(calls), states=states)


def _type(module: Module, name: str) -> TensorType:
    return module.interface[name].logical


def _fitting(array: Array, like: Array, name: str, type_: TensorType) -> Array:
    wanted = numpy_dtype(type_.dtype)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)
    floats = array.dtype.kind == "f" or array.dtype == wanted
    fits = floats if type_.dtype.is_float else np.can_cast(array.dtype, wanted, "same_kind")
    if array.shape != like.shape or not fits:
        has = f"{array.dtype}{list(array.shape)}"
        wants = f"{type_.dtype.name}{list(like.shape)}"
        raise GraphgenError("GG0402", f"input {name} must be {wants}, given {has}")
    return array.astype(like.dtype)
