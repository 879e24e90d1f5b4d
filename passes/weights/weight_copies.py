"""Weights that a rank holds twice: programs of another phase than decode want them in other parts.

Of modules whose weights are prepared (``lift-weights``), which read tensors of the interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphgen.ir import WEIGHTS_GLOBAL, WEIGHTS_RANK, Module, Role, Value


@dataclass(frozen=True, slots=True)
class WeightCopy:
    """One further tensor.

    Attributes:
        name: of the row of the interface.
        tensors: of the checkpoint that it is made of; decode reads another tensor of each.
        programs: that read it, in order.
        bytes: on each rank.
    """

    name: str
    tensors: tuple[str, ...]
    programs: tuple[str, ...]
    bytes: int


def weight_copies(module: Module) -> list[WeightCopy]:
    """The tensors that decode does not read, made of checkpoint tensors that it does read.

    None without a decode program.
    """
    made_of = _sources(module)
    readers: dict[str, list[str]] = {}
    decode: set[str] = set()
    for function in module.programs():
        for value in function.args:
            row = module.interface.get(value.name or "")
            if row is not None and row.role in (Role.WEIGHT, Role.PARAM):
                readers.setdefault(row.name, []).append(function.name)
                if function.phase == "decode":
                    decode.add(row.name)
    known = {tensor for name in decode for tensor in made_of.get(name, {name})}
    found: list[WeightCopy] = []
    for name, programs in readers.items():
        tensors = made_of.get(name, {name})
        if name not in decode and tensors <= known:
            size = module.interface[name].physical.nbytes
            found.append(WeightCopy(name, tuple(sorted(tensors)), tuple(programs), size))
    return found


def copies_remark(copies: list[WeightCopy]) -> str:
    """One sentence on the second copies; empty without any."""
    if not copies:
        return ""
    programs = dict.fromkeys(name for item in copies for name in item.programs)
    names = ", ".join([f"@{name}" for name in list(programs)[:3]])
    return (
        f"{sum(item.bytes for item in copies):,} bytes on each rank are second copies of "
        f"{len(copies)} weights, laid out for {names}{' and others' if len(programs) > 3 else ''} "
        f"otherwise than for decode: {copies[0].name}{' ...' if len(copies) > 1 else ''}"
    )


def _sources(module: Module) -> Mapping[str, set[str]]:
    """The checkpoint tensors of each prepared tensor."""
    found: dict[str, set[str]] = {}
    for home in (WEIGHTS_GLOBAL, WEIGHTS_RANK):
        function = module.functions.get(home)
        if function is None:
            continue
        # Sets by value in program order; an argument of @weights.rank may be a fact of the other.
        of: dict[Value, set[str]] = {}
        for value in function.args:
            row = module.interface.get(value.name or "")
            plain = {row.name} if row is not None and row.role is Role.WEIGHT else set[str]()
            of[value] = found.get(value.name or "", plain)
        for op in function.block:
            every = set[str]().union(*[of[value] for value in op.operands])
            of.update(dict.fromkeys(op.results, every))
        found.update({name: of[value] for name, value in function.outputs})
    return found
