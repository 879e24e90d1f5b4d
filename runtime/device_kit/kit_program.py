"""A program of a kit: its HLO, its arguments, and the results that the reference gives."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate, numpy_dtype
from graphgen.ir import Function, Module, TensorType
from graphgen.lowering.abi import donated
from graphgen.lowering.hlo import hlo_chunks
from graphgen.runtime.kit_runner.kit_types import Subject
from graphgen.runtime.kit_runner.numbers import element_bytes

# A result is right within this share of an expected element, and of the largest one: a few units
# in the last place of the type for single ops. Functions in f32 are approximated on a device.
TOLERANCE: Mapping[str, float] = {
    "f64": 1e-4,
    "f32": 1e-4,
    "c64": 1e-4,
    "c128": 1e-4,
    "f16": 4e-3,
    "bf16": 1.6e-2,
    "f8e4m3": 0.13,
    "f8e4m3fn": 0.13,
    "f8e5m2": 0.26,
}
# Of every result of a model, by the type that it computes in: roundings of many ops add up.
MODEL_TOLERANCE: Mapping[str, float] = {"f32": 4e-4, "bf16": 0.13}
_RANDOM_OPS = ("rng", "rng_bit_generator")


@dataclass(frozen=True, slots=True)
class KitProgram:
    """One program, the same for every target that takes it in this form.

    Attributes:
        name: of the case, ``group/.../dtype``.
        module: has the program.
        function: the program.
        hlo: its HloModuleProto.
        inputs: arrays by argument, in order; empty for a program that is compiled only.
        outputs: the reference's arrays by result; empty where it does not compute them.
        op, dtype: the use that it tests; empty for whole programs.
        why_not_run: the reason, where it is not executed.
        tolerance: the least one of any result.
        flags: options of the compiler beside the default ones.
        aliases: the argument whose place a result takes.
        claim: the claim that it tests; by default the verdict of the rules on its ops.
    """

    name: str
    module: Module
    function: Function
    hlo: bytes
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    op: str = ""
    dtype: str = ""
    why_not_run: str = ""
    tolerance: float = 0.0
    flags: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    claim: Subject | None = None


def kit_program(
    name: str,
    module: Module,
    function: Function,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array] | None = None,
    *,
    op: str = "",
    dtype: str = "",
    tolerance: float = 0.0,
    flags: str = "",
) -> KitProgram:
    """Emit a program and evaluate it.

    Args:
        name: of the case.
        module: has the program, at level ``target``.
        function: the program.
        inputs: arrays by argument.
        outputs: what it gives; by default it is evaluated.
        op, dtype: the use that it tests.
        tolerance: the least one of any result; that of its type by default.
        flags: more options of the compiler.

    Raises:
        GraphgenError: GG0401 for a program without an HLO form.
    """
    hlo = b"".join(hlo_chunks(module, function, metadata=False))
    why = why_not_run(module, function)
    if outputs is None:
        outputs = {} if why else evaluated_or_nothing(module, function, inputs)
    if not why and not outputs:
        why = "the reference does not compute it"
    names = [name for name, _ in function.outputs]
    aliases = {
        names[result]: function.args[argument].name or ""
        for argument, result in donated(module, function).items()
    }
    return KitProgram(
        name, module, function, hlo, {} if why else inputs, {} if why else outputs, op, dtype, why,
        tolerance, flags, aliases,
    )  # fmt: skip


def ranks_of(module: Module, function: Function) -> int:
    """Ranks of a program: of its module, or as many as its collectives name."""
    named = [1]
    for op in function.block:
        for key in ("replica_groups", "source_target_pairs"):
            if key in op.attrs:
                named += [1 + max(group) for group in op.attrs.groups(key)]
    return max(module.ranks, *named)


def why_not_run(module: Module, function: Function) -> str:
    """The reason why a program is compiled only; empty for one that is executed."""
    if (ranks := ranks_of(module, function)) > 1:
        return f"it is one of {ranks} ranks, and the kit runs one core"
    values = [*function.args, *[value for _, value in function.outputs]]
    for value in values:
        if not element_bytes(value.dtype.name):
            return f"how a device holds {value.dtype.name} is not known"
    if any(op.name in _RANDOM_OPS for op in function.block):
        return "its numbers are random"
    return ""


def evaluated_or_nothing(
    module: Module, function: Function, inputs: Mapping[str, Array]
) -> Mapping[str, Array]:
    """The reference's results; none where it has no rule for an op."""
    try:
        with np.errstate(all="ignore"):
            return evaluate(function, inputs, module=module)
    except GraphgenError:
        return dict[str, Array]()


def some_array(name: str, type_: TensorType, below: int = 0, *, positive: bool = False) -> Array:
    """Random elements that are always the same for a name; none is 0, all are small.

    Args:
        name: of the array.
        type_: of the array.
        below: for integers, 0 to below this one; for others 1 to 7, of either sign.
        positive: no element has a sign.
    """
    random = np.random.default_rng(zlib.crc32(name.encode()))
    kind, dims = numpy_dtype(type_.dtype), type_.dims
    if type_.dtype.name == "pred":
        return random.integers(0, 2, dims).astype(kind)
    if below:
        return random.integers(0, below, dims).astype(kind)
    sign = 1 if positive else random.choice([-1, 1], dims)
    if type_.dtype.is_complex:
        parts = random.uniform(0.25, 2.0, (2, *dims))
        return (sign * (parts[0] + 1j * parts[1])).astype(kind)
    if type_.dtype.is_float:
        return np.asarray(sign * random.uniform(0.25, 3.0, dims)).astype(kind)
    if type_.dtype.name.startswith("u"):
        sign = 1
    return np.asarray(sign * random.integers(1, 8, dims)).astype(kind)
