"""Activations are those of transformers, by its names."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.activations import ACT2CLS, ACT2FN

from graphgen.build import Builder
from graphgen.eval import NATIVE, evaluate
from graphgen.ir import Function, tensor
from graphgen.ir.dtype import f32
from graphgen.nn import ACTIVATIONS, activate
from graphgen.passes.core import Rewriter
from graphgen.passes.legalize.inline import Inliner

# With weights of their own.
LEARNED = {"prelu", "xielu"}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_that_of_transformers(name: str):
    x = np.concatenate([np.linspace(-12, 12, 241), [-100.0, 100.0, -1e-6, 1e-6]])
    x = x.astype(np.float32)
    theirs = ACT2FN[name](torch.tensor(x)).numpy()
    function = Function("f")
    argument = function.block.add_arg(tensor(f32, x.shape), "x")
    with Builder(function) as b:
        function.outputs = [("y", activate(b, name, argument))]
    whole = evaluate(function, {"x": x}, NATIVE)["y"]
    Inliner(Rewriter("inline"), {}, ()).run(function)
    parts = evaluate(function, {"x": x}, NATIVE)["y"]
    np.testing.assert_allclose(whole, theirs, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(parts, theirs, rtol=2e-6, atol=2e-6)


def test_all_without_weights_are_there():
    assert set(ACTIVATIONS) == set(ACT2CLS) - LEARNED
