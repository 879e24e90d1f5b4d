"""Prepare weights and states: run the weight programs and the pack functions of each rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphgen.eval import NATIVE, Arithmetic, Array, evaluate, rank_index
from graphgen.exec.adapters import prepare_slots
from graphgen.ir import ADAPTER_RANK, RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Function, Module, Role


def weight_programs(module: Module) -> list[Function]:
    """``@weights.global``, ``@weights.rank`` and ``@adapter.rank``, as far as they are there."""
    names = (WEIGHTS_GLOBAL, WEIGHTS_RANK, ADAPTER_RANK)
    return [module.functions[name] for name in names if name in module.functions]


def prepared_names(module: Module) -> set[str]:
    """Names of the params that the weight programs make."""
    return {name for function in weight_programs(module) for name, _ in function.outputs}


def prepare_weights(
    module: Module, given: Mapping[str, Array], ranks: int, arithmetic: Arithmetic = NATIVE
) -> list[dict[str, Array]]:
    """Run the weight programs, and that of adapters for each slot.

    Args:
        module: has them, or has none.
        given: checkpoint tensors, and those of adapters, by name, in logical types.
        ranks: how many there are.
        arithmetic: element types of floats.

    Returns:
        Per rank, the prepared params by name.
    """
    made = _of_checkpoint(module, given, ranks, arithmetic)
    if ADAPTER_RANK not in module.functions:
        return made
    slots = prepare_slots(module, given, ranks, arithmetic)
    return [one | own for one, own in zip(made, slots, strict=True)]


def _of_checkpoint(
    module: Module, given: Mapping[str, Array], ranks: int, arithmetic: Arithmetic
) -> list[dict[str, Array]]:
    whole: dict[str, Array] = {}
    if WEIGHTS_GLOBAL in module.functions:
        whole = evaluate(module.functions[WEIGHTS_GLOBAL], given, arithmetic)
    if WEIGHTS_RANK not in module.functions:
        return [whole for _ in range(ranks)]
    per_rank = module.functions[WEIGHTS_RANK]
    return [
        whole | evaluate(per_rank, {**given, **whole, RANK: rank_index(rank)}, arithmetic)
        for rank in range(ranks)
    ]


def default_layouts(module: Module) -> dict[str, Array]:
    """The layouts that serve any calls, by name."""
    made = {row.name: module.function(row.pack) for row in module.entries(Role.LAYOUT)}
    return {name: next(iter(evaluate(f, {}).values())) for name, f in made.items()}


def pack_state(
    function: Function,
    whole: Array,
    rank: int,
    arithmetic: Arithmetic = NATIVE,
    layouts: Mapping[str, Array] | None = None,
) -> Array:
    """The part of the logical state ``whole`` that ``rank`` keeps, by its pack function."""
    known = {**(layouts or {}), RANK: rank_index(rank)}
    given = {value.name or "": known.get(value.name or "", whole) for value in function.args}
    (part,) = evaluate(function, given, arithmetic).values()
    return part


def unpack_state(
    function: Function,
    parts: Sequence[Array],
    arithmetic: Arithmetic = NATIVE,
    layouts: Mapping[str, Array] | None = None,
) -> Array:
    """The logical state of the parts of all ranks, by its unpack function.

    A masked array where the parts do not keep all of it.
    """
    argument, *others = function.args
    given = {value.name or "": (layouts or {})[value.name or ""] for value in others}
    held_by = parts[: argument.type.dims[0]]
    given[argument.name or ""] = held_by[0][None] if len(held_by) == 1 else np.stack(held_by)
    whole, *held = evaluate(function, given, arithmetic).values()
    if not held or held[0].all():
        return whole
    kept = held[0].reshape(*held[0].shape, *[1] * (whole.ndim - held[0].ndim))
    return np.ma.masked_array(whole, np.broadcast_to(~kept, whole.shape))
