"""Rows as integers in blocks: which products read them, what they mean, and the kernel's calls."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, evaluate
from graphgen.ir import Module, dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse, print_module
from tests.passes.kernels.test_grouped_match import module
from tests.passes.kernels.test_select_kernels import configs, names, selected
from tests.passes.quantization.test_quantize_activations import product

BLOCKS = "quantize-activations{scale=blocks}"
INT4 = "quantize-weights{dtype=int4,scheme=group,group_size=32}"
CONFIG = CompileConfig(
    batch=(3,), context=(8,), tokens=(8, 16), activation_quantization_type="blocks"
)


def rounded(x: np.ndarray, size: int) -> np.ndarray:
    """Rows as the pass rounds them."""
    parts = [x[:, at : at + size] for at in range(0, x.shape[1], size)]
    steps = [np.maximum(np.abs(part).max(1, keepdims=True) / 127, 2.0**-126) for part in parts]
    whole = [np.rint(part / step) * step for part, step in zip(parts, steps, strict=True)]
    return np.concatenate(whole, 1)


@pytest.mark.parametrize("narrow", ["s4", "u4", "s8"])
def test_rows_are_integers_with_a_scale_a_group(narrow: str):
    item = module("1,16", "f32[64,3]", narrow, depth=40)
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 40)).astype(np.float32)
    x[1, 16:32] = 0
    x[0, 3] = 1000
    low, high = {"s4": (-8, 8), "u4": (0, 16), "s8": (-128, 128)}[narrow]
    kind = {"s4": "int4", "u4": "uint4", "s8": "int8"}[narrow]
    w = random.integers(low, high, (64, 40)).astype(getattr(ml_dtypes, kind, np.int8))
    s = random.uniform(0.5, 1, (64, 3)).astype(np.float32)
    given = {"x": x, "w": w, "s": s, "z": np.zeros((64, 3), np.uint8)}
    wide = w.astype(np.float64) * np.repeat(s, 16, 1)[:, :40]
    plain = evaluate(item.function("f"), given, NATIVE)["y"]
    run_pipeline(item, parse_pipeline(BLOCKS))
    made = evaluate(item.function("f"), given, NATIVE)["y"]
    np.testing.assert_allclose(made, rounded(x.astype(np.float64), 16) @ wide.T, rtol=1e-4)
    assert not np.allclose(made, plain, rtol=1e-4)
    # In double precision nothing is rounded.
    exact = evaluate(item.function("f"), given, MEANING)["y"]
    np.testing.assert_allclose(exact, x.astype(np.float64) @ wide.T, rtol=1e-6)


def test_the_kernel_takes_in_the_rounding():
    item = module("1,16", "f32[64,3]", depth=40)
    run_pipeline(item, parse_pipeline(BLOCKS))
    made = selected(item)
    (config,) = configs(made)
    assert (config["group"], config["x_group"]) == (16, 16)
    assert {"quantize", "dequantize"} & set(names(made, "f")) == set()
    verdicts = validate(item, parse_pipeline("select-kernels"), make_workload(item, seed=3))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []


def test_blocks_that_are_no_groups_of_the_weight_stay_ops():
    item = module("1,16", "f32[64,2]")
    run_pipeline(item, parse_pipeline(BLOCKS))
    text = print_module(item)
    assert "block=[1,16] : s8[2,32], f32[2,2]" in text
    other = parse(
        text.replace(
            "block=[1,16] : s8[2,32], f32[2,2]", "block=[1,8] : s8[2,32], f32[2,4]"
        ).replace("block=[1,16] dtype=f32 : f32[2,32]", "block=[1,8] dtype=f32 : f32[2,32]")
    )
    (config,) = configs(selected(other))
    assert (config["group"], config["x_group"]) == (16, 0)
    assert {"quantize", "dequantize"} <= set(names(other, "f"))


@pytest.mark.parametrize(
    ("element", "weights", "named"),
    [("f8e4m3", "", ""), ("s8", ",weights=[up]", " called up")],
)
def test_other_weights_are_refused(element: str, weights: str, named: str):
    passes = parse_pipeline(f"quantize-activations{{scale=blocks{weights}}}")
    with pytest.raises(GraphgenError, match=f"integers of 4 or 8 bits{named}") as caught:
        run_pipeline(product(element), passes)
    assert caught.value.code == "GG0304"


def mini(kind: str = "f32") -> Module:
    return build(known_shape("llama-3.1-8b"), dtype(kind), mini=True)


@pytest.mark.parametrize(
    ("quantization", "kernels", "tp"),
    [(INT4, "on", 1), (INT4, "off", 2), ("quantize-weights", "on", 2)],
)
@pytest.mark.one_in(3)
def test_every_pass_keeps_the_meaning(quantization: str, kernels: str, tp: int):
    item = mini("bf16")
    passes = default(replace(CONFIG, quantization=quantization, kernels=kernels, tp=tp))
    verdicts = validate(item, passes, make_workload(item))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    (own,) = [v for v in verdicts if v.pass_text.startswith("quantize-activations")]
    assert own.rounding.relative > 1e-3


def test_norms_and_gates_go_into_the_calls_with_the_rounding():
    item = mini("bf16")
    run_pipeline(item, default(replace(CONFIG, quantization=INT4, kernels="on")))
    program = next(f for f in item.programs() if f.phase == "decode")
    made = [config for config in configs(item, program.name) if config.get("x_group") == 32]
    forms = {(config["norm"], config["gated"]) for config in made}
    assert forms == {(True, False), (False, False), (True, True)}
    assert not any(op.name in ("quantize", "dequantize") for op in program.ops)


def test_products_of_one_input_share_its_numbers():
    item = mini()
    phases = "canonicalize,quantize-weights,specialize{batch=[2],context=[8],tokens=[8]}"
    run_pipeline(item, parse_pipeline(f"{phases},lift-weights,{BLOCKS},dce"))
    program = next(f for f in item.programs() if f.phase == "decode")
    # Of q, k and v one, of o, of gate and up one, and of down, in two layers.
    assert sum(op.name == "quantize" for op in program.ops) == 2 * 4
