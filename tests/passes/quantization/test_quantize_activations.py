"""Activations in 8 bits: their numbers, which products take them, and what a target computes."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Array, evaluate
from graphgen.ir import Module, dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.targets import find_target, target_names
from graphgen.text import parse
from graphgen.text.printer import print_function

ONE = CompileConfig(
    batch=(3,),
    context=(8,),
    tokens=(8, 16),
    quantization="quantize-weights",
    activation_quantization_type="dynamic",
)


def product(element: str, kind: str = "f32") -> Module:
    """A product of rows [2,4] with a narrow weight [3,4]."""
    return parse(
        f"module @m level=canonical {{\n  input %x : {kind}[2,4]\n  weight %q : {element}[3,4]\n"
        f"  output %y : f32[2,3]\n}}\n\nfunc @f phase=decode {{\n  arg %x : {kind}[2,4]\n"
        f"  arg %q : {element}[3,4]\n  %w = convert(%q) dtype={kind} : {kind}[3,4]\n"
        "  %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 "
        ": f32[2,3]\n  return y = %y\n}\n"
    )


X = np.array([[1.0, -3.0, 0.26, 0.0], [1000.0, 2.0, -500.0, 4.0]], np.float32)
Q = np.array([[1, 2, 3, 4], [-8, 7, -6, 5], [0, 0, 0, 1]])


def made(element: str, options: str, x: Array = X, *, meaning: bool = False) -> Array:
    module = product(element)
    run_pipeline(module, parse_pipeline(f"quantize-activations{{{options}}}"))
    kinds = {"s8": np.int8, "f8e4m3": ml_dtypes.float8_e4m3, "f8e5m2": ml_dtypes.float8_e5m2}
    given = {"x": x, "q": Q.astype(kinds[element])}
    return evaluate(module.function("f"), given, MEANING if meaning else NATIVE)["y"]


@pytest.mark.parametrize("native", ["", "native=[s8]"])
def test_int8_rows_have_a_scale_each(native: str):
    scale = np.abs(X).max(1, keepdims=True) / 127
    wanted = np.rint(X / scale) @ Q.T * scale
    np.testing.assert_allclose(made("s8", native), wanted, rtol=1e-6)


@pytest.mark.parametrize("native", ["", "native=[f8e4m3]"])
def test_f8_rows_are_multiples_of_a_240th_of_the_largest(native: str):
    scale = np.abs(X).max(1, keepdims=True) / np.float32(240)
    numbers = (X / scale).astype(ml_dtypes.float8_e4m3).astype(np.float32)
    np.testing.assert_allclose(made("f8e4m3", native), numbers @ Q.T * scale, rtol=1e-6)


def test_peers_n18_a_product_is_one_of_narrow_numbers_where_the_target_has_it():
    """NxD Inference quantizes weights and computes in 16 bits all the same."""
    for native, kind in (("native=[s8]", "s8"), ("", "f32")):
        module = product("s8")
        run_pipeline(module, parse_pipeline(f"quantize-activations{{{native}}}"))
        (dot,) = [op for op in module.function("f").ops if op.name == "dot_general"]
        assert [value.dtype.name for value in dot.operands] == [kind, kind]


def test_a_bound_clips_before_the_scale_is_found():
    clipped = np.clip(X, -4, 4)
    wanted = made("s8", "", clipped)
    np.testing.assert_array_equal(made("s8", "clamp_bound=4.0"), wanted)
    assert not np.allclose(made("s8", ""), wanted)


def test_rows_of_zeros_stay_zeros():
    np.testing.assert_array_equal(made("s8", "", np.zeros_like(X)), np.zeros((2, 3)))


def test_nothing_is_rounded_in_double_precision():
    np.testing.assert_allclose(made("s8", "native=[s8]", meaning=True), X @ Q.T, rtol=1e-9)


def mini(kind: str = "f32") -> Module:
    return build(known_shape("llama-3.1-8b"), dtype(kind), mini=True)


@pytest.mark.parametrize(
    ("element", "target", "tp"), [("int8", "cpu", 2), ("f8e4m3", "trn2", 1), ("f8e5m2", "cpu", 1)]
)
@pytest.mark.one_in(3)
def test_every_pass_keeps_the_meaning(element: str, target: str, tp: int):
    module = mini("bf16")
    quantization = f"quantize-weights{{dtype={element}}}"
    passes = default(replace(ONE, quantization=quantization, target=target, tp=tp))
    verdicts = validate(module, passes, make_workload(module))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    (own,) = [v for v in verdicts if v.pass_text.startswith("quantize-activations")]
    assert own.rounding.relative > 1e-3


def count(module: Module, name: str) -> int:
    program = next(f for f in module.programs() if f.phase == "decode")
    return sum(op.name == name for op in program.ops)


def test_peers_n3_projections_stay_fused_and_norms_quantize():
    """NxD Inference drops the fusion of q, k and v where activations are quantized."""
    module = mini()
    phases = "canonicalize,quantize-weights,specialize{batch=[2],context=[8],tokens=[8]}"
    run_pipeline(module, parse_pipeline(f"{phases},fuse-projections,quantize-activations,dce"))
    # Of each of two layers q-k-v, o, gate-up and down; the head keeps its type.
    assert count(module, "dot_general") == 2 * 4 + 1
    assert count(module, "rms_norm_quantize") == 2 * 2
    assert count(module, "rms_norm") == 1


def test_chosen_weights_alone_have_narrow_rows():
    """Names are those of the checkpoint, also where weights are fused."""
    phases = "canonicalize,quantize-weights,specialize{batch=[2],context=[8],tokens=[8]}"
    text = f"{phases},fuse-projections,quantize-activations{{weights=[%s]}},dce"
    module = mini()
    run_pipeline(module, parse_pipeline(text % "*.mlp.*"))
    # The norms before the MLPs; those before attention, and the last one, give wide rows.
    assert count(module, "rms_norm_quantize") == 2
    assert count(module, "rms_norm") == 2 + 1
    with pytest.raises(GraphgenError, match=r"a weight of 8 bits called \*.ffn.\*"):
        run_pipeline(mini(), parse_pipeline(text % "*.ffn.*"))


def test_products_of_one_input_share_its_numbers():
    module = mini()
    phases = "canonicalize,quantize-weights,specialize{batch=[2],context=[8],tokens=[8]}"
    run_pipeline(module, parse_pipeline(f"{phases},lift-weights,quantize-activations,dce"))
    # q, k and v read one norm, gate and up another.
    assert count(module, "rms_norm_quantize") == 2 * 2
    assert count(module, "quantize") == 2 * 2


def test_ranks_scale_their_own_part_of_a_row():
    module = mini()
    run_pipeline(module, default(replace(ONE, tp=2)))
    program = next(f for f in module.programs() if f.phase == "decode")
    kinds = [op.attrs.text("kind") for op in program.ops if op.name == "all_reduce"]
    # No largest element is exchanged: the sums of two layers and the embeddings are all there is.
    assert kinds == ["add"] * 5


def test_a_norm_that_others_read_stays():
    text = print_function(product("s8").function("f"), locs=False)
    assert "rms_norm" not in text
    module = parse(
        "module @m level=canonical {\n  input %x : f32[2,4]\n  weight %n : f32[4]\n"
        "  weight %q : s8[3,4]\n  output %h : f32[2,4]\n  output %y : f32[2,3]\n}\n\n"
        "func @f phase=decode {\n  arg %x : f32[2,4]\n  arg %n : f32[4]\n  arg %q : s8[3,4]\n"
        "  %h = rms_norm(%x, %n) epsilon=1e-05 : f32[2,4]\n"
        "  %w = convert(%q) dtype=f32 : f32[3,4]\n"
        "  %y = dot_general(%h, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 "
        ": f32[2,3]\n  return h = %h\n  return y = %y\n}\n"
    )
    run_pipeline(module, parse_pipeline("quantize-activations"), journal=(journal := Journal()))
    assert "others read the norm too" in {miss.why.reason for miss in journal.misses}


def test_without_narrow_weights_it_is_refused():
    with pytest.raises(GraphgenError, match="no product has a weight of 8 bits") as caught:
        run_pipeline(mini(), default(replace(ONE, quantization="")))
    assert caught.value.code == "GG0304"
    with pytest.raises(GraphgenError, match="is not a bound"):
        run_pipeline(product("s8"), parse_pipeline("quantize-activations{clamp_bound=-1.0}"))


def test_native_types_are_those_of_the_target():
    for name in target_names():
        (item,) = [
            each
            for each in default(replace(ONE, target=name))
            if each.name == "quantize-activations"
        ]
        native = find_target(name).narrow_products
        assert str(item) == f"quantize-activations{{native=[{','.join(native)}]}}"
        assert native
