"""The front-end benchmark compares one computation with itself: the same numbers, like sizes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.frontend import SHRINKING, Case, Work, cases, compare, count_ops, jax_model
from benchmarks.peers.jax_llama import abstract_params, forward
from benchmarks.rows import Row, table, write_json
from graphgen.config.compile_config import CompileConfig
from graphgen.eval import Array, evaluate
from graphgen.ir import Module, dtype
from graphgen.models import build, known_shape, read_llama
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default

MODEL = "llama-3.1-8b"
SLOTS = 8
IDLE = 2


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.one_in(2)
def test_both_programs_have_about_as_many_ops(phase: str):
    ours, peer = (Work(side, MODEL, phase, layers=8) for side in ("graphgen", "jax"))
    row = compare(Case("eight layers", ours, peer, "jax"), best_of=1)
    mine, theirs = row.extra["ours_ops"], row.extra["peer_ops"]
    assert isinstance(mine, int)
    assert isinstance(theirs, int)
    # Eight layers of norms, projections, rotations and attention; masks and tables weigh little.
    assert mine > 800
    assert abs(theirs - mine) <= 0.2 * mine, f"ours {mine} ops, jax {theirs}"


def test_ops_are_counted_in_either_spelling():
    text = """module @m {
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>) {
    %0 = stablehlo.add %arg0, %arg0 : tensor<4xf32> loc(#loc1)
    %$init.1 = stablehlo.constant dense<0.0> : tensor<f32>
    %1 = "stablehlo.scatter"(%0, %i, %u) <{numbers = #stablehlo.scatter<index_vector_dim = 1>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        stablehlo.return %b : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %2 = call @silu(%1) : (tensor<4xf32>) -> tensor<4xf32>
    %3 = call @silu(%2) : (tensor<4xf32>) -> tensor<4xf32>
    return %3 : tensor<4xf32>
 }
 func.func private @silu(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.logistic %arg0 : tensor<4xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<4xf32>
    return %1 : tensor<4xf32>
 }
}
"""
    assert count_ops(text) == 3 + 2 * 2


@pytest.fixture(scope="module")
def module() -> Module:
    """The mini twin in f32, both phases, two rows, eight slots."""
    made = build(known_shape(MODEL), dtype("f32"), mini=True)
    buckets = CompileConfig(batch=(2,), context=(SLOTS,), tokens=(SLOTS,))
    run_pipeline(made, [p for p in default(buckets) if p.name not in SHRINKING])
    return made


def both(module: Module, phase: str, inputs: dict[str, Array]) -> list[dict[str, Array]]:
    """Logits and caches by graphgen's NumPy reference and by the plain JAX program."""
    (program,) = (f for f in module.programs() if f.phase == phase)
    model = jax_model(read_llama(known_shape(MODEL)).mini())
    names = [[f"model.layers.{i}.self_attn.{x}_cache" for x in "kv"] for i in range(model.layers)]
    logits, caches = jax.jit(partial(forward, model, SLOTS))(
        {name: inputs[name] for name in abstract_params(model)},
        [(inputs[key], inputs[value]) for key, value in names],
        *(inputs[name] for name in ("tokens", "positions", "lengths", "seq_ids")),
    )
    theirs = {"logits": np.asarray(logits)}
    for pair, arrays in zip(names, caches, strict=True):
        theirs |= {name: np.asarray(array) for name, array in zip(pair, arrays, strict=True)}
    return [evaluate(program, inputs), theirs]


def s32(values: list[object]) -> Array:
    return np.array(values, np.int32)


def test_the_peer_computes_what_our_model_computes(module: Module):
    random = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    for value in next(iter(module.programs())).args:
        if value.name and value.dtype is dtype("f32"):
            inputs[value.name] = random.normal(0, 0.5, value.type.dims).astype(np.float32)
    # Five tokens in the first row, three with left padding in the second.
    prompt = {
        "tokens": random.integers(0, 257, (2, SLOTS), np.int32),
        "positions": s32([[0, 1, 2, 3, 4, -1, -1, -1], [-1, -1, -1, -1, -1, 0, 1, 2]]),
        "lengths": s32([5, 3]),
        "seq_ids": s32([0, 1]),
    }
    ours, theirs = both(module, "prefill", {**inputs, **prompt})
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=2e-4, atol=2e-5, err_msg=name)
    # One more token in the first row; the second is idle, so its cache must not change.
    step = {
        "tokens": s32([[7], [9]]),
        "positions": s32([[5], [3]]),
        "lengths": s32([6, 4]),
        "seq_ids": s32([0, IDLE]),
    }
    ours, theirs = both(module, "decode", {**inputs, **ours, **step})
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        live = slice(0, 1) if name == "logits" else slice(None)
        np.testing.assert_allclose(
            array[live], theirs[name][live], rtol=2e-4, atol=2e-5, err_msg=name
        )


def test_every_case_has_its_own_name():
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names) == 11


def test_rows_are_written_whole(tmp_path: Path):
    rows = [Row("a", 0.5, "jax", 1.5, {"ours_ops": 7}), Row("b", 0.25, "jax", 1.0)]
    path = tmp_path / "rows.json"
    path.write_text("old")
    write_json(rows, path)
    common = {"peer": "jax"}
    assert json.loads(path.read_text()) == [
        {"case": "a", "ours_s": 0.5, "peer_s": 1.5, "ratio": 3.0, "ours_ops": 7} | common,
        {"case": "b", "ours_s": 0.25, "peer_s": 1.0, "ratio": 4.0} | common,
    ]
    assert list(tmp_path.iterdir()) == [path]
    assert table(rows, ["ours_ops"]).splitlines() == [
        "case  ours s  peer  peer s  ratio  ours_ops",
        "a      0.500  jax    1.500   3.00         7",
        "b      0.250  jax    1.000   4.00",
    ]
