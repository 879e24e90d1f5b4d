"""Kernels of Neuron for 8-bit numbers: what becomes a call, which limit keeps it, what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate
from graphgen.ir import dtype
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.models import build, read_model_config
from graphgen.passes.core import run_pipeline
from graphgen.passes.kernels.select_kernels import SelectKernels
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import workload_for
from tests.passes.kernels.neuron_kernels import (
    NARROW_MLP,
    ROWS,
    manifest,
    of_narrow_mlp,
    of_rows,
)
from tests.passes.kernels.test_neuron_kernels import LLAMA, called, reasons

_NARROW = {"quantization": "quantize-weights{dtype=f8e4m3}", "target": "trn2"}


def config_of(path: str, batch: int = 1, **more: object) -> CompileConfig:
    sizes = {"batch": (batch,), "context": (8,), "tokens": (8,), "kernel_artifacts": path}
    settings = {**_NARROW, "activation_quantization_type": "dynamic", **sizes, **more}
    return CompileConfig(**settings)  # pyright: ignore[reportArgumentType]


def both(folder: Path, batch: int = 1, bound: float = 0.0) -> str:
    """A manifest of both kernels, for a prompt of eight tokens and for a step."""
    found: list[Mapping[str, object]] = []
    for length in (8, 1):
        found += [
            of_narrow_mlp(folder, batch, length, bound),
            of_rows(folder, batch, length, bound),
        ]
    return manifest(folder, found)


def test_an_mlp_and_the_norm_before_queries_are_calls(tmp_path: Path):
    item = build(LLAMA, dtype("bf16"), mini=True)
    run_pipeline(item, default(config_of(both(tmp_path))))
    for program in item.programs():
        # Norms before queries, keys and values; the kernel of the MLP has its own norm inside.
        assert called(item, program.name) == {"narrow_mlp": 2, "rows": 2}
        text = print_hlo_text(emit_hlo(item, program))
        assert text.count('custom_call_target="AwsNeuronCustomNativeKernel"') == 4


@pytest.mark.parametrize(("batch", "tp"), [(2, 1), (1, 2)])
def test_they_mean_what_they_replace(tmp_path: Path, batch: int, tp: int):
    """Whole, and as one of two ranks, where the columns of the last product are scaled later."""
    shape = read_model_config(LLAMA).mini().to_hf()
    item = build({**shape, "intermediate_size": 128 * tp}, dtype("bf16"))
    passes = default(config_of(both(tmp_path, batch, 1.5), batch, tp=tp, quantize_clamp_bound=1.5))
    at = next(n for n, each in enumerate(passes) if isinstance(each, SelectKernels))
    run_pipeline(item, passes[:at])
    (verdict,) = validate(
        item, passes[at : at + 1], workload_for(item, passes[at : at + 1], script="short")
    )
    assert verdict.ok, verdict
    run_pipeline(item, passes[at : at + 1])
    assert called(item, item.programs()[0].name) == {"narrow_mlp": 2, "rows": 2}


def test_the_meaning_of_rows_is_the_formula_of_the_library(tmp_path: Path):
    """A norm, then numbers and the bytes of their scale; a row of zeros has the least scale."""
    item = build(LLAMA, dtype("bf16"), mini=True)
    run_pipeline(item, default(config_of(both(tmp_path))))
    body = item.function("kernel.rows")
    random = np.random.default_rng(3)
    hidden = random.standard_normal((1, 8, 64)).astype(ml_dtypes.bfloat16)
    hidden[0, 5] = 0
    weight = random.standard_normal((1, 64)).astype(ml_dtypes.bfloat16)
    (made,) = evaluate(body, {"hidden": hidden, "norm": weight}).values()
    wide = hidden.astype(np.float32)
    normal = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)
    normal = (normal * weight.astype(np.float32)).astype(ml_dtypes.bfloat16).astype(np.float32)
    scale = np.maximum(np.abs(normal).max(-1, keepdims=True) / 240, 1e-6).astype(np.float32)
    numbers = (normal / scale).astype(ml_dtypes.float8_e4m3)
    given = np.asarray(made).view(np.uint8)
    np.testing.assert_allclose(given[..., 64:].copy().view(np.float32), scale, rtol=1e-2)
    assert given[0, 5, 64:].copy().view(np.float32)[0] == np.float32(1e-6)
    got = np.asarray(made)[..., :64].astype(np.float32)
    # One step of f8e4m3 where the norm is rounded to bf16 otherwise.
    np.testing.assert_allclose(got, numbers.astype(np.float32), rtol=0.13)


def test_each_limit_says_why(tmp_path: Path):
    config = config_of(both(tmp_path))
    three = replace(config, batch=(3,))
    assert "3 rows: the kernel takes 2 at most" in reasons(three, "rmsnorm_quantize")
    assert "no artifact is of the types quant_mlp_isa_kernel(bf16[3,8,64]" in reasons(
        three, "quantized_mlp"
    )
    whole = replace(config, quantization="quantize-weights{dtype=int8}")
    assert "the kernel makes f8e4m3 up to 240, not s8" in reasons(whole, "rmsnorm_quantize")
    two = replace(config, tp=2)
    assert "a rank has 64 columns of the MLP, no multiple of 128" in reasons(two, "quantized_mlp")
    bounded = replace(config, quantize_clamp_bound=1200.0)
    why = "was traced with clamp_bound=0.0, not 1200.0"
    assert why in reasons(bounded, "quantized_mlp")
    assert "was traced with lower_bound=0.0, not 1200.0" in reasons(bounded, "rmsnorm_quantize")


@pytest.mark.parametrize(
    ("word", "kernel"), [("quantized_mlp", NARROW_MLP), ("rmsnorm_quantize", ROWS)]
)
def test_a_kernel_without_artifact_is_refused_by_name(word: str, kernel: str):
    config = config_of("", native_kernels=(word,))
    with pytest.raises(GraphgenError, match=f"'{word}' is {kernel} in NKI, and no artifact"):
        run_pipeline(build(LLAMA, dtype("bf16"), mini=True), default(config))
