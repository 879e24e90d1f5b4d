"""Convolutions of JAX and PyTorch: read from each form that XLA writes, and computed alike."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from jax import lax

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import Function, Module, tensor
from graphgen.ir.dtype import f32
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo

X = np.random.default_rng(1).standard_normal((2, 8, 7, 4)).astype(np.float32)
W = np.random.default_rng(2).standard_normal((3, 2, 2, 6)).astype(np.float32)


def strided(x: jax.Array, w: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NCHW")
    return lax.conv_general_dilated(
        x, w, (2, 1), [(1, -1), (0, 2)], (1, 2), (2, 1), numbers, feature_group_count=2
    )


def value(module: Module) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    function = module.programs()[0]
    names = [arg.name or "" for arg in function.args]
    (out,) = evaluate(function, dict(zip(names, (X, W), strict=True))).values()
    return out


def test_every_form_of_it_is_read():
    lowered = jax.jit(strided).lower(X, W)
    wanted = np.asarray(jax.jit(strided)(X, W))
    ir, computation = (lowered.compiler_ir(dialect) for dialect in ("stablehlo", "hlo"))
    assert ir is not None
    assert computation is not None
    generic = ir.operation.get_asm(print_generic_op_form=True)
    texts = [lowered.as_text(), str(generic)]
    hlo = computation.as_hlo_text()
    modules = [*map(read_stablehlo, texts), read_hlo(parse_hlo_text(hlo))]
    for module in list(modules):
        function = module.programs()[0]
        assert [op.name for op in function.ops].count("convolution") == 1
        modules.append(read_stablehlo(emit_stablehlo(module, function)))
        modules.append(read_hlo(parse_hlo_text(print_hlo_text(emit_hlo(module, function)))))
    found = {
        op.attrs for module in modules for op in module.programs()[0].ops if op.name[:4] == "conv"
    }
    assert len(found) == 1
    for module in modules:
        np.testing.assert_allclose(value(module), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
def test_it_computes_what_torch_does(groups: int, transposed: bool):
    random = np.random.default_rng(3)
    x = random.standard_normal((2, 4, 9)).astype(np.float32)
    w = random.standard_normal((4, 6 // groups, 3) if transposed else (6, 4 // groups, 3))
    w = w.astype(np.float32)
    function = Function("f")
    b = Builder(function)
    image, taps = (function.block.add_arg(tensor(f32, a.shape), n) for a, n in ((x, "x"), (w, "w")))
    if not transposed:
        how = torch.nn.functional.conv1d
        made = b.convolution(
            image, taps, "bf0_oi0->bf0", strides=[2], padding=[(1, 1)], feature_groups=groups
        )
    else:
        how = torch.nn.functional.conv_transpose1d
        # The groups of the kernel's inputs become groups of its outputs.
        kernel = b.reshape(taps, (groups, 4 // groups, 6 // groups, 3))
        kernel = b.reshape(b.transpose(kernel, [0, 2, 1, 3]), (6, 4 // groups, 3))
        made = b.convolution(
            image,
            kernel,
            "bf0_oi0->bf0",
            padding=[(1, 1)],
            lhs_dilation=[2],
            reversal=[1],
            feature_groups=groups,
        )
    function.outputs = [("y", made)]
    wanted = how(torch.tensor(x), torch.tensor(w), stride=2, padding=1, groups=groups).numpy()
    out = evaluate(function, {"x": x, "w": w})["y"]
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


def test_a_window_that_is_not_the_kernels_is_no_convolution():
    text = """HloModule m
ENTRY %main (x: f32[1,4,2], w: f32[3,2,2]) -> f32[1,2,2] {
  %x = f32[1,4,2] parameter(0)
  %w = f32[3,2,2] parameter(1)
  ROOT %y = f32[1,2,2] convolution(%x, %w), window={size=2}, dim_labels=b0f_0io->b0f
}
"""
    module = read_hlo(parse_hlo_text(text))
    assert module.meta["opaque"] == "convolution: its window is [2], its kernel [3] (1)"


def test_a_mistake_names_the_operand():
    function = Function("f")
    x = function.block.add_arg(tensor(f32, (1, 4, 2)), "x")
    w = function.block.add_arg(tensor(f32, (3, 4, 2)), "w")
    with pytest.raises(GraphgenError) as caught:
        Builder(function).convolution(x, w, "b0f_0io->b0f")
    assert caught.value.code == "GG0105"
    assert "2 features of lhs, 4 of the kernel in 1 groups" in caught.value.what
