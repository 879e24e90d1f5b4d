"""Tensors of adapters: which a module has, and how one adapter is prepared for each rank."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphgen.eval import NATIVE, Arithmetic, Array, evaluate, numpy_dtype, rank_index
from graphgen.ir import ADAPTER_RANK, RANK, Entry, Module, Role

LORA_A, LORA_B = ".lora_A", ".lora_B"


def adapter_rows(module: Module) -> dict[str, tuple[Entry, Entry]]:
    """The projections that have adapters, each with the rows of its A and its B.

    The logical types are A [slots, r, in] and B [slots, out, r], of an embedding A [slots, r, V];
    those of experts have the experts after the slots.
    """
    interface = module.interface
    names = [
        row.name.removesuffix(LORA_A)
        for row in module.entries(Role.SLOTTED)
        if row.name.endswith(LORA_A)
    ]
    return {name: (interface[name + LORA_A], interface[name + LORA_B]) for name in names}


def resident_rows(module: Module) -> list[Entry]:
    """The rows of the tensors that the programs read, with a slot for each adapter."""
    used = {value.name for function in module.programs() for value in function.args}
    return [row for row in module.entries(Role.SLOTTED) if row.name in used]


def whole_adapter(module: Module, parts: Mapping[str, Array]) -> dict[str, Array]:
    """One adapter as ``@adapter.rank`` takes it: with a slot axis of 1, zeros for what is absent.

    Args:
        module: has the rows.
        parts: A [r', in] and B [out, r'] by name, with r' of at most the module's rank; of experts
            [E, r', in] and [E, out, r'].
    """
    found: dict[str, Array] = {}
    for a, b in adapter_rows(module).values():
        for row in (a, b):
            whole = np.zeros((1, *row.logical.dims[1:]), numpy_dtype(row.logical.dtype))
            if row.name in parts:
                given = parts[row.name]
                whole[0][tuple(slice(0, size) for size in given.shape)] = given
            found[row.name] = whole
    return found


def prepare_adapter(
    module: Module, whole: Mapping[str, Array], ranks: int, arithmetic: Arithmetic = NATIVE
) -> list[dict[str, Array]]:
    """Run ``@adapter.rank`` on one adapter.

    Args:
        module: has the function, or needs none.
        whole: of :func:`whole_adapter`.
        ranks: how many there are.
        arithmetic: element types of floats.

    Returns:
        Per rank, a part [1, ...] for each of :func:`resident_rows`.
    """
    names = [row.name for row in resident_rows(module)]
    function = module.functions.get(ADAPTER_RANK)
    made = [
        evaluate(function, {**whole, RANK: rank_index(rank)}, arithmetic) if function else {}
        for rank in range(ranks)
    ]
    return [{name: one[name] if name in one else whole[name] for name in names} for one in made]


def prepare_slots(
    module: Module, tensors: Mapping[str, Array], ranks: int, arithmetic: Arithmetic = NATIVE
) -> list[dict[str, Array]]:
    """All slots at once: per rank, each of :func:`resident_rows` [slots, ...].

    Args:
        module: as of :func:`prepare_adapter`.
        tensors: A and B of all slots by name, in logical types.
        ranks, arithmetic: as of :func:`prepare_adapter`.
    """
    rows = [row for pair in adapter_rows(module).values() for row in pair]
    if not rows:
        return [{} for _ in range(ranks)]
    slots = rows[0].logical.dims[0]
    each = [
        prepare_adapter(
            module,
            {row.name: tensors[row.name][slot : slot + 1] for row in rows},
            ranks,
            arithmetic,
        )
        for slot in range(slots)
    ]
    return [
        {name: np.concatenate([one[rank][name] for one in each]) for name in each[0][rank]}
        for rank in range(ranks)
    ]
