"""Neuron's custom calls in NumPy, beside torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate
from graphgen.text import parse

Tensors = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]


def called(target: str, config: str, given: list[Array], results: str) -> list[Array]:
    """What a program of one call gives."""
    kinds = {"float32": "f32", "float64": "f64"}
    args = [
        f"  arg %x{i} : {kinds[str(array.dtype)]}[{','.join(map(str, array.shape))}]"
        for i, array in enumerate(given)
    ]
    count = results.count("[")
    made = [f"%y{i}" for i in range(count)]
    reads = ", ".join(f"%x{i}" for i in range(len(given)))
    attrs = f'target="{target}"' + (f' config="{config}"' if config else "")
    types = results.replace("],", "], ")
    call = f"  {', '.join(made)} = custom_call({reads}) {attrs} results=[{results}] : {types}"
    returns = [f"  return {name[1:]} = {name}" for name in made]
    text = "\n".join(["module @m level=target {", "}", "", "func @f {", *args, call, *returns, "}"])
    function = parse(text + "\n").function("f")
    found = evaluate(function, {f"x{i}": array for i, array in enumerate(given)})
    return list(found.values())


RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((2, 3, 8), np.float32)
Y = RANDOM.standard_normal((2, 3, 8), np.float32)
W = RANDOM.standard_normal(8, np.float32)
W3 = RANDOM.standard_normal(3, np.float32)
EPS = np.asarray(1e-5, np.float32)
SAME = "f32[2,3,8]"
F = torch.nn.functional


def norm_over(dim: int) -> Tensors:
    def norm(x: torch.Tensor, w: torch.Tensor, eps: torch.Tensor) -> torch.Tensor:
        moved = x.movedim(dim, -1)
        return F.rms_norm(moved, [moved.shape[-1]], w, float(eps)).movedim(-1, dim)

    return norm


def softmax_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    given = x.clone().requires_grad_()
    torch.softmax(given, 2).backward(grad)
    assert given.grad is not None
    return given.grad


@pytest.mark.parametrize(
    ("target", "config", "given", "results", "wanted"),
    [
        ("AwsNeuronRmsNorm", "2", [X, W, EPS], SAME, norm_over(2)),
        ("AwsNeuronRmsNorm", "1", [X, W3, EPS], SAME, norm_over(1)),
        ("AwsNeuronSoftmax", "2", [X], SAME, lambda x: torch.softmax(x, 2)),
        ("AwsNeuronSoftmax", "1", [X], SAME, lambda x: torch.softmax(x, 1)),
        ("AwsNeuronTopK", "3", [X], "f32[2,3,3],u32[2,3,3]", lambda x: torch.topk(x, 3)),
        ("AwsNeuronArgMax", "2", [X], "u32[2,3]", lambda x: torch.argmax(x, 2)),
        ("AwsNeuronArgMin", "1", [X], "u32[2,8]", lambda x: torch.argmin(x, 1)),
        ("AwsNeuronGelu", "", [X], SAME, F.gelu),
        ("AwsNeuronGeluApprxTanh", "", [X], SAME, lambda x: F.gelu(x, approximate="tanh")),
        ("AwsNeuronSilu", "", [X], SAME, F.silu),
        ("AwsNeuronErf", "", [X], SAME, torch.erf),
        ("AwsNeuronTransferWithStaticRing", "", [X], SAME, lambda x: x),
        ("AwsNeuronModuleMarkerStart-Forward", "", [X, W], f"{SAME},f32[8]", lambda x, w: (x, w)),
    ],
)
def test_as_torch_has_it(
    target: str, config: str, given: list[Array], results: str, wanted: Tensors
):
    expected = wanted(*[torch.from_numpy(np.asarray(array)) for array in given])
    made = called(target, config, given, results)
    every = expected if isinstance(expected, tuple) else (expected,)
    for one, other in zip(made, every, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=2e-5, atol=2e-6)


def test_the_gradient_of_softmax():
    out = torch.softmax(torch.from_numpy(X), 2).numpy()
    (made,) = called("AwsNeuronSoftmaxBackward", "2", [Y, out], SAME)
    wanted = softmax_backward(torch.from_numpy(Y), torch.from_numpy(X))
    np.testing.assert_allclose(made, wanted.numpy(), rtol=1e-4, atol=1e-6)


def test_of_equal_values_the_first_is_taken():
    x = np.asarray([[1, 3, 3, 2]], np.float32)
    values, indices = called("AwsNeuronTopK", "3", [x], "f32[1,3],u32[1,3]")
    np.testing.assert_array_equal(values, [[3, 3, 2]])
    np.testing.assert_array_equal(indices, [[1, 2, 3]])
    assert indices.dtype == np.uint32


def test_results_are_rounded_as_stated():
    (made,) = called("AwsNeuronSilu", "", [X], "bf16[2,3,8]")
    assert made.dtype.itemsize == 2


def test_a_configuration_that_is_no_number():
    with pytest.raises(GraphgenError, match="its configuration is 'two', not a number") as caught:
        called("AwsNeuronSoftmax", "two", [X], SAME)
    assert caught.value.code == "GG0403"
