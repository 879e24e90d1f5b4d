"""Running a program on all ranks: prepare weights and states, run, put the outputs together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphgen.analysis import inlined
from graphgen.errors import GraphgenError
from graphgen.eval import Array, Filled, evaluate, evaluate_ranks, rank_index
from graphgen.ir import (
    RANK,
    WEIGHTS_GLOBAL,
    WEIGHTS_RANK,
    Entry,
    Function,
    Module,
    Role,
    TensorType,
)

Arrays = Mapping[str, Array]
# Runs a function on all ranks: inputs a rank to outputs a rank, by name.
Backend = Callable[[Module, Function, Sequence[Arrays]], Sequence[Arrays]]


@dataclass(frozen=True, slots=True)
class Output:
    """One output as the user of the module sees it.

    Attributes:
        entry: its interface row.
        type: logical type.
        array: the values.
        ranks_differ: a whole output that is not the same on all ranks.
        parts: then, the values of every rank; ``array`` is that of rank 0.
    """

    entry: Entry
    type: TensorType
    array: Array
    ranks_differ: bool
    parts: Sequence[Array] = ()


def ranks_of(module: Module) -> int:
    """How many ranks a program of the module runs on; one before it is partitioned."""
    return module.ranks if module.level in ("sharded", "target") else 1


def on_numpy(module: Module, function: Function, inputs: Sequence[Arrays]) -> Sequence[Arrays]:
    """Evaluate with NumPy."""
    return evaluate_ranks(inlined(module, function), inputs, module=module)


def on_cpu(module: Module, function: Function, inputs: Sequence[Arrays]) -> Sequence[Arrays]:
    """Compile with XLA for this CPU and launch; the module is at level ``target``."""
    from graphgen.lowering.cpu import compile_program, configure

    configure(len(inputs))
    return compile_program(module, function).run_numpy(inputs)


def needed(module: Module, function: Function) -> list[Entry]:
    """The logical inputs, weights and states it takes to run ``function``.

    Prepared params are replaced by the checkpoint tensors they are made of. An argument without an
    interface row (of a function that is no program) is an input of its own.
    """
    found: dict[str, Entry] = {}
    made = _prepared_names(module)
    functions = [function]
    if any(value.name in made for value in function.args):
        functions += [
            module.functions[n] for n in (WEIGHTS_GLOBAL, WEIGHTS_RANK) if _has(module, n)
        ]
    for item in functions:
        for value in item.args:
            name = value.name or ""
            if name not in made and not (name == RANK and name not in module.interface):
                row = Entry(Role.INPUT, name, value.type, value.type)
                found.setdefault(name, module.interface.get(name, row))
    return list(found.values())


def run_program(
    module: Module,
    function: Function,
    logical: Arrays,
    backend: Backend,
    per_rank: Mapping[str, Sequence[Array]] | None = None,
) -> list[Output]:
    """Run a program on all ranks.

    Args:
        module: with every symbol bound.
        function: the program.
        logical: an array for each entry of :func:`needed`.
        backend: :func:`on_numpy` or :func:`on_cpu`.
        per_rank: arguments that each rank has its own array for, as the program takes it.

    Raises:
        GraphgenError: GG0402 inputs that do not fit, GG0403 an op that cannot be evaluated.
    """
    ranks = ranks_of(module)
    prepared = _prepare(module, function, logical, ranks)
    inputs = [_arguments(module, function, logical, prepared[r], r) for r in range(ranks)]
    for name, arrays in (per_rank or {}).items():
        for given, array in zip(inputs, arrays, strict=True):
            given[name] = array
    results = backend(module, function, inputs)
    return [
        _output(module, name, value.type, [result[name] for result in results])
        for name, value in function.outputs
    ]


def _has(module: Module, name: str) -> bool:
    return name in module.functions


def _prepared_names(module: Module) -> set[str]:
    """What @weights.global and @weights.rank make."""
    functions = [module.functions[n] for n in (WEIGHTS_GLOBAL, WEIGHTS_RANK) if _has(module, n)]
    return {name for function in functions for name, _ in function.outputs}


def _prepare(
    module: Module, function: Function, logical: Arrays, ranks: int
) -> list[dict[str, Array]]:
    """Per rank, the params made of the checkpoint's tensors."""
    made = _prepared_names(module)
    if not any(value.name in made for value in function.args):
        return [{} for _ in range(ranks)]
    whole: dict[str, Array] = {}
    if _has(module, WEIGHTS_GLOBAL):
        whole = evaluate(module.functions[WEIGHTS_GLOBAL], logical)
    if not _has(module, WEIGHTS_RANK):
        return [whole for _ in range(ranks)]
    per_rank = module.functions[WEIGHTS_RANK]
    return [
        whole | evaluate(per_rank, {**logical, **whole, RANK: rank_index(r)}) for r in range(ranks)
    ]


def _arguments(
    module: Module, function: Function, logical: Arrays, prepared: Arrays, rank: int
) -> dict[str, Array]:
    out: dict[str, Array] = {}
    for value in function.args:
        name = value.name or ""
        row = module.interface.get(name)
        if name in prepared:
            out[name] = prepared[name]
        elif name == RANK and row is None:
            out[name] = rank_index(rank)
        elif name not in logical:
            continue  # each rank has its own
        elif row is not None and row.pack:
            whole = _kept(row, logical) if row.last else logical[name]
            out[name] = _pack(module.function(row.pack), whole, rank)
        else:
            out[name] = logical[name]
    return out


def _kept(row: Entry, logical: Arrays) -> Array:
    """A cache of which the newest positions are kept: which those are, the call says."""
    whole = logical[row.name]
    if not whole.any():
        return whole
    filled = Filled(*row.logical.dims[:2])
    filled.begin(logical)
    return filled.wound(whole, row.last)


def _pack(function: Function, whole: Array, rank: int) -> Array:
    names = [value.name or "" for value in function.args]
    given = {name: rank_index(rank) if name == RANK else whole for name in names}
    (part,) = evaluate(function, given).values()
    return part


def _output(module: Module, name: str, type_: TensorType, parts: Sequence[Array]) -> Output:
    row = module.interface.get(name, Entry(Role.OUTPUT, name, type_, type_))
    if row.unpack:
        function = module.function(row.unpack)
        (argument,) = function.args
        (whole,) = evaluate(function, {argument.name or "": np.stack(parts)}).values()
        return Output(row, row.logical, whole, ranks_differ=False)
    if row.role in (Role.OUTPUT, Role.STATE) and row.logical is not row.physical:
        raise GraphgenError("GG0205", f"output {name} has changed its type and has no unpack")
    differ = any(part.tobytes() != parts[0].tobytes() for part in parts[1:])
    # @weights.rank gives each rank its own part; shown is that of rank 0.
    return Output(row, type_, parts[0], ranks_differ=differ, parts=parts if differ else ())
