"""Prefill and decode of each mini model compiled by IREE give NumPy's numbers."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.exec import NumpyBackend, run_program
from graphgen.exec.bind import bind_module, isolate
from graphgen.exec.inputs import program_inputs
from graphgen.ir import Function, Module
from graphgen.ir.dtype import f32
from graphgen.lowering.backends.named import backend_called, has_iree
from graphgen.models import SHAPES
from graphgen.models.registry import build
from tests.oracles.minis import MINIS

SIZES = {"B": 2, "S": 4, "R": 2, "C": 8, "M": 8}


def mini(name: str) -> Module:
    return build(SHAPES[name], f32, mini=True)


@pytest.mark.slow
@pytest.mark.skipif(not has_iree(), reason="IREE is not installed: graphgen[iree]")
@pytest.mark.parametrize(
    "name", [MINIS[0], *[pytest.param(n, marks=pytest.mark.exhaustive) for n in MINIS[1:]]]
)
def test_a_mini_on_iree_has_the_numbers_of_numpy(name: str):
    module = mini(name)
    for function in module.programs():
        bound = bind_module(isolate(module, function), SIZES)
        compare(bound, bound.function(function.name))


def compare(module: Module, function: Function) -> None:
    given = program_inputs(module, function, {}, 0, per_rank=False).shared
    wanted = run_program(module, function, given, NumpyBackend())
    found = run_program(module, function, given, backend_called("iree"))
    for one, other in zip(wanted, found, strict=True):
        expected, made = (np.asarray(each.array, np.float64) for each in (one, other))
        scale = max(np.abs(expected).max(), 1e-3)
        np.testing.assert_allclose(
            made, expected, rtol=0, atol=2e-5 * scale, err_msg=one.entry.name
        )
