"""Products of every order of dimensions run on the CPU, in each element type of the result."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from graphgen.eval.arithmetic import NUMPY
from graphgen.exec import NumpyBackend
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.passes.core import run_pipeline
from graphgen.passes.legalize.legalize import Legalize
from graphgen.text import parse

# Sizes of batch, contracted and free dimensions; XLA calls its library for products this large.
SIZES = {"b": [2], "c": [32], "l": [4, 6], "r": [16, 2, 1]}


def sizes(order: str) -> list[int]:
    """The shape of a side whose dimensions are of these kinds."""
    return [SIZES[kind][order[:place].count(kind)] for place, kind in enumerate(order)]


def places(order: str, kind: str) -> str:
    return str([place for place, each in enumerate(order) if each == kind]).replace(" ", "")


def text(orders: list[tuple[str, str]], dtype: str, result: str) -> str:
    """A function with one product for each pair of orders."""
    head, args, body = list[str](), list[str](), list[str]()
    for number, (left, right) in enumerate(orders):
        shapes = [",".join(map(str, sizes(side))) for side in (left, right)]
        batch = [2] * left.count("b")
        free = [n for side, k in ((left, "l"), (right, "r")) for n in SIZES[k][: side.count(k)]]
        out = ",".join(map(str, batch + free))
        for name, shape in zip("xw", shapes, strict=True):
            head.append(f"  input %{name}{number} : {dtype}[{shape}]")
            args.append(f"  arg %{name}{number} : {dtype}[{shape}]")
        head.append(f"  output %y{number} : {result}[{out}]")
        dims = " ".join(
            f"{side}_{kind}_dims={places(order, letter)}"
            for kind, letter in (("batch", "b"), ("contracting", "c"))
            for side, order in (("lhs", left), ("rhs", right))
            if letter in order
        )
        body.append(
            f"  %y{number} = dot_general(%x{number}, %w{number}) {dims} dtype={result} : "
            f"{result}[{out}]"
        )
    returns = [f"  return y{number} = %y{number}" for number in range(len(orders))]
    module = "\n".join(["module @m level=logical {", *head, "}"])
    return "\n".join([module, "", "func @f {", *args, *body, *returns, "}", ""])


def orders(batch: int) -> list[tuple[str, str]]:
    """The orders of both sides with one contracted dimension and 0 to 3 free ones."""
    found: list[tuple[str, str]] = []
    for left, right in product(range(3), range(4)):
        # Free dimensions of a side stay in their order: others are the same product renamed.
        sides = ["b" * batch + "c" + "l" * left, "b" * batch + "c" + "r" * right]
        ways = [sorted({"".join(each) for each in permutations(side)}) for side in sides]
        found += [(one, other) for one in ways[0] for other in ways[1]]
    return found


@pytest.mark.usefixtures("optimized_code")
@pytest.mark.parametrize("result", ["f32", "same"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("batch", [0, 1])
def test_products_in_every_order_of_dimensions(batch: int, dtype: str, result: str):
    kind = dtype if result == "same" else "f32"
    chosen = orders(batch)[:: 1 + 2 * batch]
    module = parse(text(chosen, dtype, kind))
    function = module.function("f")
    rng = np.random.default_rng(0)
    given = {
        arg.name or "": rng.standard_normal(arg.type.dims).astype(NUMPY[dtype])
        for arg in function.block.args
    }
    wanted = NumpyBackend()(module, function, [given])[0]
    backend = CpuBackend(devices=1)(module, function, [given])[0]
    run_pipeline(module, [Legalize()])
    ready = module.function("f")
    legal = compile_program(module, ready).run_numpy([given])[0]
    for found in (backend, legal):
        for name, value in wanted.items():
            near = 1e-2 if result == "same" else 1e-3
            wide = found[name].astype("f4"), value.astype("f4")
            np.testing.assert_allclose(*wide, rtol=near, atol=2e-2)
