"""A collective sums in the type of what it is given, and hands that type back."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import evaluate_ranks, numpy_dtype
from graphgen.ir import DType, Function, Module, tensor
from graphgen.ir.dtype import bf16, f16, f32, s32
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.stablehlo import emit_stablehlo

GROUPS = ((0, 1, 2, 3),)


def program(name: str, kind: DType, reducer: str) -> tuple[Module, Function]:
    module = Module("m", level="target", mesh={"tp": 4})
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(kind, (8, 2)), "x")
    attrs = {"kind": reducer, "replica_groups": GROUPS}
    more = {} if name == "all_reduce" else {"dimension": 0}
    made = Builder(function).emit(name, (x,), {**attrs, **more})
    function.outputs = [("y", made.result)]
    return module, function


@pytest.mark.parametrize("reducer", ["add", "maximum"])
@pytest.mark.parametrize("kind", [f32, bf16, f16, s32], ids=str)
@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter"])
def test_reducer_operand_and_result_are_of_one_type(name: str, kind: DType, reducer: str):
    # transformers-neuronx has a reducer of another type, and hands that back.
    module, function = program(name, kind, reducer)
    text = emit_stablehlo(module, function, locs=False)
    element = "i32" if kind is s32 else kind.name
    assert set(re.findall(r"tensor<(?:\d+x)*([a-z]+\d+)>", text)) - {"i64"} == {element}
    given = (np.arange(64).reshape(4, 8, 2) % 7 - 3).astype(numpy_dtype(kind))
    inputs = [{"x": part} for part in given]
    wide = given.astype(np.float64)
    total = wide.sum(0) if reducer == "add" else wide.max(0)
    ran = compile_program(module, function).run_numpy(inputs)
    for rank, results in enumerate(evaluate_ranks(function, inputs)):
        wanted = total if name == "all_reduce" else total[2 * rank : 2 * rank + 2]
        for made in (results["y"], ran[rank]["y"]):
            assert made.dtype == numpy_dtype(kind)
            np.testing.assert_array_equal(made.astype(np.float64), wanted)
