"""Binding: sizes for symbols, and arrays of the user for typed inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from graphgen.analysis import called, free_symbols
from graphgen.analysis.calls import inlined
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.eval.arithmetic import Array, numpy_dtype
from graphgen.eval.evaluate import bind_to_shapes, evaluate
from graphgen.exec.weights import prepared_names, weight_programs
from graphgen.ir import Dim, Function, Module, TensorType, Value
from graphgen.ir.clone import bind_function
from graphgen.ir.dtype import Kind


def isolate(module: Module, function: Function) -> Module:
    """A new module of ``function`` and what running it needs; functions are shared, not copied.

    It keeps the functions that ``function`` calls, those that prepare the weights it reads, the
    interface rows all these name, and the functions that pack and unpack those rows.
    """
    kept = {function.name: function}
    read = {value.name for value in function.args}
    if prepared_names(module) & read:
        kept |= {f.name: f for f in weight_programs(module)}
    names = {value.name for f in kept.values() for value in f.args}
    names |= {name for f in kept.values() for name, _ in f.outputs}
    rows = {name: row for name, row in module.interface.items() if name in names}
    packs = {name for row in rows.values() for name in (row.pack, row.unpack) if name}
    run = {f.name for name in (*kept, *packs) for f in called(module, module.function(name))}
    functions = {n: f for n, f in module.functions.items() if n in kept or n in packs | run}
    return Module(module.name, module.level, module.mesh, functions, rows, module.meta)


def bind_module(module: Module, sizes: Mapping[str, int]) -> Module:
    """A copy of ``module`` with every symbol bound.

    Args:
        module: its programs must agree on the symbols; see :func:`isolate`.
        sizes: symbol -> size.

    Raises:
        GraphgenError: GG0106 naming the symbols without a size.
    """
    missing = free_symbols(module.functions.values()) - sizes.keys()
    if missing:
        wanted = ",".join(f"{name}=..." for name in sorted(missing))
        raise GraphgenError(
            "GG0106",
            f"no size for {', '.join(sorted(missing))}",
            help=f"give them: --dims {wanted}",
        )
    made = Module(module.name, module.level, module.mesh, {}, {}, module.meta)
    for name, function in module.functions.items():
        own: dict[str, Dim] = {**sizes, **function.dims}
        made.functions[name] = bind_function(function, own, own if function.phase else {})
    fixed = {name: size for f in module.programs() for name, size in f.dims.items()}
    values: dict[str, Dim] = {**sizes, **fixed}
    for name, row in module.interface.items():
        made.interface[name] = row.bind(values)
    return made


def evaluate_bound(
    module: Module | None, function: Function, given: Mapping[str, object]
) -> dict[str, Array]:
    """Evaluate ``function`` in NumPy with its symbols bound by the shapes of ``given``.

    Args:
        module: has the functions it calls; ``None`` where it calls none.
        function: any function.
        given: arrays or nested lists by name.

    Returns:
        The outputs by name.

    Raises:
        GraphgenError: GG0402 an input that is missing, unknown or of another shape; two that give
            a symbol two sizes.
    """
    flat = function if module is None else inlined(module, function)
    arrays = _arrays(flat, given)
    given_to = {v: arrays[v.name] for v in flat.args if v.name in arrays}
    return evaluate(bind_to_shapes(flat, given_to), arrays, module=module)


def _arrays(function: Function, given: Mapping[str, object]) -> dict[str, Array]:
    known = {value.name or "": value.type for value in function.args}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise GraphgenError(
            "GG0402",
            f"@{function.name} has no input %{unknown[0]}",
            help=did_you_mean(str(unknown[0]), known) or f"it takes {', '.join(known) or 'none'}",
        )
    return {name: array_of(name, known[name], value) for name, value in given.items()}


def typed_array(
    array: Array,
    type_: TensorType,
    shape: tuple[int, ...],
    refuse: Callable[[str], GraphgenError],
) -> Array:
    """``array`` as one of the kind of ``type_``, not converted yet.

    A file written with ``numpy.savez`` stores bf16 as two raw bytes (``V2``).

    Args:
        array: the user's.
        type_: its element type is the one wanted.
        shape: the shape wanted.
        refuse: makes the error of what the array is, such as ``float32[2, 3]``.
    """
    wanted = numpy_dtype(type_.dtype)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        array = array.view(wanted)
    floats = array.dtype.kind == "f" or array.dtype == wanted
    fits = floats if type_.dtype.is_float else np.can_cast(array.dtype, wanted, "same_kind")
    if array.shape != shape or not fits:
        raise refuse(f"{array.dtype}{list(array.shape)}")
    return array


def given_array(array: Array, type_: TensorType, name: str) -> Array:
    """An array from a file, converted to ``type_``, the type of the input ``name``.

    Raises:
        GraphgenError: GG0402 for another shape, an element type of another kind, or values that
            ``type_`` cannot hold.
    """

    def refuse(has: str) -> GraphgenError:
        return GraphgenError(
            "GG0402",
            f"input %{name} must be {type_.text}, given {has}",
            help="--dims sets the sizes of the program's symbols",
        )

    array = typed_array(array, type_, type_.dims, refuse)
    with np.errstate(over="ignore"):
        out = array.astype(numpy_dtype(type_.dtype))
    if type_.dtype.is_float:
        kept = np.array_equal(np.isfinite(array), np.isfinite(out))
    else:
        kept = np.array_equal(array, out)
    if not kept:
        raise GraphgenError("GG0402", f"input %{name}: a value does not fit {type_.dtype}")
    return out


def array_of(name: str, type_: TensorType, value: object) -> Array:
    """``value``, anything NumPy reads, as an array of the element type of the input ``name``.

    Raises:
        GraphgenError: GG0402 for what is not an array of numbers, and for numbers that the type
            cannot hold: fractions in integers, ones out of range, complex ones.
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
    """The reason why the first element is not a number; empty if all are."""
    if any(isinstance(item, Value) for item in given.flat):
        return "it is a value of a graph, which has no numbers yet"
    try:
        given.astype(np.float64)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _no_numbers(name: str, why: str) -> GraphgenError:
    return GraphgenError(
        "GG0402", f"%{name} is not an array of numbers: {why}", help="give a NumPy array or lists"
    )


def _check_held(name: str, type_: TensorType, given: Array, made: Array) -> None:
    """Refuse numbers changed by the conversion (GG0402); floats may be rounded, not overflow."""
    if type_.dtype.is_float:
        lost = np.isinf(made.astype(np.float64)) & np.isfinite(given.astype(np.float64))
    elif given.dtype.kind == "b":
        return
    else:
        lost = made != given
    if lost.any():
        first = given[lost].flat[0]
        raise GraphgenError("GG0402", f"%{name} is {type_.text}, which cannot hold {first}")
