"""Programs that measure a core's rates: products of its matrix unit, and reading its memory.

A weight is the identity and is an argument, so that nothing is saved and the result is known
exactly: the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graphgen.eval import numpy_dtype
from graphgen.ir import dtype
from graphgen.runtime.device_kit.kit_program import KitProgram, kit_program
from graphgen.targets import Accelerator
from graphgen.text import parse

_KINDS = ("bf16", "f16", "f32", "f8e4m3")
# Products in a row, and their size; rows and columns that are read.
_PRODUCTS, _SIZE, _READ = 8, 2048, 8192
_MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Rate:
    """A figure that a case measures.

    Attributes:
        name: of the case.
        figure: in words, with the unit.
        amount: of work, in units of the figure and seconds.
    """

    name: str
    figure: str
    amount: float

    def published(self, device: Accelerator) -> float:
        """The published figure, in the same unit; 0 where there is none."""
        kind = self.name.rpartition("/")[2]
        if kind == _MEMORY:
            return device.hbm_bandwidth / 1e9
        return device.flops.get("fp8" if kind.startswith("f8") else kind, 0.0) / 1e12


def rates(size: int = _SIZE, read: int = _READ) -> list[Rate]:
    """All figures."""
    flops = 2 * _PRODUCTS * size**3
    found = [
        Rate(f"rate/products/{kind}", f"products of {kind}, TFLOP/s", flops / 1e12)
        for kind in _KINDS
    ]
    return [*found, Rate(f"rate/{_MEMORY}", "memory, GB/s", 2 * read * read / 1e9)]


def rate_programs(size: int = _SIZE, read: int = _READ) -> Iterator[KitProgram]:
    """The programs, for any target."""
    for kind in _KINDS:
        yield _products(kind, size)
    module = parse(_module([f"arg %x : bf16[{read},{read}]"], [
        f"%y = reduce(%x) dimensions=[1] kind=maximum : bf16[{read}]",
    ]))  # fmt: skip
    x = np.broadcast_to(np.arange(read)[:, None] % 128, (read, read)).astype(_numpy("bf16"))
    yield kit_program(
        f"rate/{_MEMORY}", module, module.function("f"), {"x": x}, {"y": x[:, 0].copy()}
    )


def _products(kind: str, size: int) -> KitProgram:
    ops: list[str] = []
    for number in range(_PRODUCTS):
        before = f"%{number - 1}" if number else "%x"
        after = "%y" if number == _PRODUCTS - 1 else f"%{number}"
        ops.append(
            f"{after} = dot_general({before}, %w) lhs_contracting_dims=[1] "
            f"rhs_contracting_dims=[0] dtype={kind} : {kind}[{size},{size}]"
        )
    args = [f"arg %x : {kind}[{size},{size}]", f"arg %w : {kind}[{size},{size}]"]
    module = parse(_module(args, ops))
    x = np.broadcast_to(np.arange(size) % 13 - 6.0, (size, size)).astype(_numpy(kind))
    w = np.eye(size).astype(_numpy(kind))
    name = f"rate/products/{kind}"
    return kit_program(name, module, module.function("f"), {"x": x, "w": w}, {"y": x})


def _module(args: list[str], ops: list[str]) -> str:
    lines = ["module @kit level=target {", "}", "", "func @f {"]
    return "\n".join([*lines, *[f"  {line}" for line in [*args, *ops]], "  return y = %y", "}", ""])


def _numpy(kind: str) -> np.dtype[np.generic]:
    return numpy_dtype(dtype(kind))
