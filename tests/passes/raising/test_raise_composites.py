"""Models from elsewhere: composites are found, and the passes for our own models run on them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from graphgen.eval import evaluate
from graphgen.exec.session import Runner, Workload
from graphgen.ir import Module, Role
from graphgen.ir.clone import clone_module
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.ops import OPS, verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles import jax_llama as plain

STYLES = {"jax": plain.llama, "transformers": plain.llama_hf, "scan": plain.llama_scan}
# What no head tells: how the feed-forward layers lie.
MLP = "*.wg:{-,tp},*.wu:{-,tp},*.wd:{tp,-}"


def split(tp: int, style: str = "jax") -> str:
    # Those of all layers in one array lie the same way in each.
    rules = MLP.replace("{", "{-,") if style == "scan" else MLP
    return f"heads{{tp={tp}}},shard{{tp={tp},rules=[{rules}]}},pad-to-mesh,partition,"


def parameters(style: str) -> Any:
    return plain.stacked(plain.parameters()) if style == "scan" else plain.parameters()


@cache
def _read(style: str) -> Module:
    lowered = jax.jit(STYLES[style]).lower(parameters(style), plain.tokens())
    module = read_stablehlo(lowered.as_text(debug_info=True))
    for name, row in list(module.interface.items()):
        if name.startswith("params."):
            module.interface[name] = replace(row, role=Role.WEIGHT)
    verify(module)
    return module


def raised(style: str) -> Module:
    module = clone_module(_read(style))
    run_pipeline(module, pipeline("imported"))
    return module


def composites(module: Module) -> dict[str, int]:
    ops = [op.name for function in module.functions.values() for op in function.ops]
    return dict(Counter(name for name in ops if OPS[name].composite))


@pytest.mark.parametrize("style", STYLES)
def test_every_idea_is_found(style: str):
    found = composites(raised(style))
    assert found == {"embedding": 1, "rms_norm": 5, "rope": 4, "attention": 2, "silu": 2}


@pytest.mark.parametrize("style", STYLES)
def test_keys_are_read_once_for_their_group(style: str):
    attentions = [op for op in raised(style).function("main").ops if op.name == "attention"]
    assert {op.operands[1].shape[2] for op in attentions} == {plain.KV_HEADS}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.one_in(12)
def test_every_pass_keeps_the_meaning(style: str, tp: int):
    module = raised(style)
    script = make_workload(module, seed=tp)
    checked = validate(clone_module(_read(style)), pipeline("imported"), script)
    first = split(tp, style) if tp > 1 else "quantize-weights{skip=[]},"
    rest = "cse,fuse-projections,lift-weights,legalize,cse,dce"
    checked += validate(module, pipeline(first + rest), script)
    wrong = [v.pass_text for v in checked if not v.ok and "quantize" not in v.pass_text]
    assert wrong == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.one_in(3)
def test_split_over_four_ranks_it_gives_the_numbers_of_jax(style: str):
    params, tokens = parameters(style), plain.tokens()
    wanted = np.asarray(STYLES[style](params, jax.numpy.asarray(tokens)))
    module = raised(style)
    script = script_of(module, params, tokens)
    run_pipeline(module, pipeline(split(4, style) + "lift-weights,legalize,cse"))
    ops = Counter(op.name for op in module.function("main").ops)
    assert {name: ops[name] for name in ops if OPS[name].collective} == {
        # Two a layer, and the embedding's; the logits are put together.
        "all_reduce": 5,
        "all_gather": 1,
    }
    (outcome,) = Runner(module, script).outcomes()
    np.testing.assert_allclose(outcome["result"], wanted, rtol=1e-4, atol=1e-5)


def script_of(module: Module, params: Any, tokens: np.ndarray) -> Workload:
    """The first call of the module's script, with these weights and tokens."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    weights = {
        re.sub(r"[^\w.\-]+", ".", "params" + jax.tree_util.keystr(path)).strip("."): leaf
        for path, leaf in leaves
    }
    script = make_workload(module, seed=0)
    assert set(script.weights) == set(weights)
    call = replace(script.calls[0], inputs={**script.calls[0].inputs, "tokens": tokens})
    return replace(script, weights=weights, calls=(call,))


# ---- what is close and not quite -----------------------------------------------------------------


def lower(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Module:
    args = [np.ones(shape, np.float32) for shape in shapes]
    return read_stablehlo(jax.jit(function).lower(*args).as_text())


def softmax_product(q: Any, k: Any, v: Any, axis: Any = -1) -> Any:
    scores = jax.numpy.einsum("bqhd,bkhd->bhqk", q, k) * 0.5
    return jax.numpy.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis), v)


def heads_of(x: Any) -> Any:
    return x.reshape(2, 4, 4, 4)


NEAR: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], str]] = {
    "norm of another value": (
        lambda x, y, w: x * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5) * w,
        [(2, 4), (2, 4), (4,)],
        "no row is divided by the root of its mean square",
    ),
    "norm over all elements": (
        lambda x, w: x * jax.lax.rsqrt((x * x).mean() + 1e-5) * w,
        [(2, 4), (4,)],
        "no row is divided by the root of its mean square",
    ),
    "gate of another value": (
        lambda x, y: x * jax.nn.sigmoid(y),
        [(2, 4), (2, 4)],
        "operand is another value here",
    ),
    "rope that turns the wrong way": (
        lambda x, c, s: jax.numpy.concatenate(
            [x[..., :2] * c + x[..., 2:] * s, x[..., 2:] * c - x[..., :2] * s], -1
        ),
        [(2, 4, 4, 4), (2, 4, 1, 2), (2, 4, 1, 2)],
        "the parts are not a difference and a sum",
    ),
    "rope of unequal halves": (
        lambda x, c, s: jax.numpy.concatenate(
            [x[..., :2] * c - x[..., 2:] * s, x[..., :2] * c + x[..., 2:] * s], -1
        ),
        [(2, 4, 4, 4), (2, 4, 1, 2), (2, 4, 1, 2)],
        "second part is another value here",
    ),
    "tables of whole heads whose halves may differ": (
        lambda x, c, s: x * c + jax.numpy.concatenate([-x[..., 2:], x[..., :2]], -1) * s,
        [(2, 4, 4, 4), (2, 4, 1, 4), (2, 4, 1, 4)],
        "the halves of a table are not known to be equal",
    ),
    "softmax over the queries": (
        lambda q, k, v: softmax_product(heads_of(q), k, v, axis=-2),
        [(2, 4, 16), (2, 4, 4, 4), (2, 4, 4, 4)],
        "no operand is a softmax",
    ),
    "queries whose heads nobody split off": (
        lambda q, k, v: softmax_product(q, k, v),
        [(2, 4, 4, 4), (2, 4, 4, 4), (2, 4, 4, 4)],
        "the dimension of the queries that holds heads is not known",
    ),
    "a lookup of columns": (
        lambda t: t[:, np.array([1, 0])],
        [(4, 4)],
        "it does not look up whole rows of a matrix",
    ),
}


@pytest.mark.parametrize("name", NEAR)
def test_what_is_not_quite_it_stays_and_the_reason_is_told(name: str):
    function, shapes, reason = NEAR[name]
    module = lower(function, *shapes)
    journal = Journal()
    before = module.op_count()
    run_pipeline(module, pipeline("imported"), journal=journal)
    assert composites(module) == {}
    assert module.op_count() <= before
    assert reason in {miss.why.reason for miss in journal.misses}


def test_tiled_keys_are_not_taken_for_repeated_ones():
    def tiled(q: Any, k: Any, v: Any) -> Any:
        wide = [jax.numpy.tile(x, (1, 1, 2, 1)) for x in (k, v)]
        return softmax_product(heads_of(q), *wide)

    module = lower(tiled, (2, 4, 16), (2, 4, 2, 4), (2, 4, 2, 4))
    script = make_workload(module, seed=3)
    verdicts = validate(module, pipeline("imported"), script)
    assert all(verdict.ok for verdict in verdicts)


# ---- the command ---------------------------------------------------------------------------------


def test_import_of_a_file_and_of_a_function(tmp_path: Path):
    source, out = tmp_path / "l.mlir", tmp_path / "l.gg"
    source.write_text(plain.lowered().as_text(debug_info=True))
    result = done("import", source, "--weight", "params.*", "-o", out)
    assert "found 1 embedding, 5 rms_norm, 4 rope, 2 attention, 2 silu" in result.stderr
    weights = parse(out.read_text()).entries(Role.WEIGHT)
    assert len(weights) == 21
    again = tmp_path / "again.gg"
    name = "tests.oracles.jax_llama:lowered"
    told = facts("import", name, "--weight", "params.*", "-o", again)
    assert told["found"]["attention"] == 2
    done("equiv", out, again)
    two = tmp_path / "two.gg"
    done("opt", out, "-p", f"{split(2)}cse", "-o", two)
    done("equiv", out, two)


def test_mistakes_are_told(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text("def no():\n    return 3\n\ndef bad():\n    return 1 / 0\n")
    assert "gives a int" in error("import", f"{file}:no", "-o", tmp_path / "x.gg")
    text = error("import", f"{file}:bad", "-o", tmp_path / "x.gg")
    assert "ZeroDivisionError" in text
    assert "mine.py:5" in text
    assert "has no attribute 'none'" in error("import", f"{file}:none", "-o", tmp_path / "x.gg")
    source = tmp_path / "l.mlir"
    source.write_text(plain.lowered().as_text())
    found = error("import", source, "--weight", "nothing.*", "-o", tmp_path / "x.gg")
    assert "no input is called 'nothing.*'" in found
    assert not (tmp_path / "x.gg").exists()


@pytest.mark.parametrize("ids", ["s32", "s64"])
def test_wide_ids_of_a_lookup_are_clamped_before_they_are_narrowed(ids: str):
    text = f"""\
module @m level=logical {{
  weight %table : f32[5,3]
  input %ids : {ids}[2,1]
  output %y : f32[2,3]
}}

func @main phase=main {{
  arg %table : f32[5,3]
  arg %ids : {ids}[2,1]
  %0 = gather(%table, %ids) offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] \
index_vector_dim=1 slice_sizes=[1,3] : f32[2,3]
  return y = %0
}}
"""
    module = parse(text)
    run_pipeline(module, pipeline("raise-composites"))
    program = module.function("main")
    ops = [op.name for op in program.ops]
    assert "embedding" in ops
    assert ("clamp" in ops) == (ids == "s64")
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    wide = ids == "s64"
    # 2 ** 32 + 1 is the last row, not row 1.
    given = np.array([[(1 << 32) + 1 if wide else 9], [-3]], np.int64 if wide else np.int32)
    made = evaluate(program, {"table": table, "ids": given})["y"]
    np.testing.assert_array_equal(made, table[[4, 0]])
