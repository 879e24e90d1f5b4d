"""``graphgen import``: several programs at once, states, symbols for sizes, near misses."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from graphgen.ir import Role
from graphgen.text import parse
from tests.graphgen.cli.conftest import done, error, facts

MODEL = "tests.oracles.jax_llama_cached"
BOTH = (f"prefill={MODEL}:prefill", f"decode={MODEL}:decode")
NAMES = ("--weight", "params.*", "--state", "cache.*=result.1.*", "--rename", "result.0=logits")


def test_prefill_and_decode_for_every_size(tmp_path: Path):
    out, two = tmp_path / "m.gg", tmp_path / "two.gg"
    result = done("import", *BOTH, *NAMES, "--dim", "B=3,S=6,M=12", "-o", out)
    assert "attention        2       2\n" in result.stdout
    assert "not " not in result.stdout
    module = parse(out.read_text())
    assert module.interface["tokens"].logical.text == "s32[B,S]"
    assert [row.logical.text for row in module.entries(Role.STATE)] == ["f32[B,M,2,8]"] * 4
    rules = "*.wg:{-,tp},*.wu:{-,tp},*.wd:{tp,-}"
    passes = f"specialize{{context=[8],tokens=[16]}},heads{{tp=2}},shard{{tp=2,rules=[{rules}]}}"
    done("opt", out, "-p", f"{passes},pad-to-mesh,partition", "-o", two)
    assert [f.name for f in parse(two.read_text()).programs()] == ["prefill.b1.s8", "decode.b1.c16"]


def test_what_was_found_is_told_as_json(tmp_path: Path):
    told = facts("import", *BOTH, *NAMES, "-o", tmp_path / "m.gg")
    assert told["found"]["kv_update"] == 8
    assert told["by_program"]["kv_update"] == {"prefill": 4, "decode": 4}
    assert told["near_misses"] == []


def test_states_nobody_named_are_told_of(tmp_path: Path):
    result = done("import", f"{MODEL}:decode", "--weight", "params.*", "-o", tmp_path / "m.gg")
    assert "an input comes back updated: --state cache.0.k=result.1.0.k and 3 more" in result.stderr


def test_near_misses_are_told_with_the_reason(tmp_path: Path):
    def close(q: jax.Array, k: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), -1)
        added = c.at[:, :2].add(k)
        return jnp.einsum("bhqk,bkhd->bqhd", weights, k), added

    x = np.ones((2, 2, 3, 4), np.float32)
    source, out = tmp_path / "c.mlir", tmp_path / "c.gg"
    wide = np.ones((2, 6, 3, 4), np.float32)
    source.write_text(jax.jit(close).lower(x, x, wide).as_text(debug_info=True))
    result = done("import", source, "-o", out)
    reason = "not attention: the dimension of the queries that holds heads is not known"
    assert reason in result.stdout
    assert "not kv-update: it adds to what is there" in result.stdout
    assert Path(__file__).name in result.stdout
    near = facts("import", source, "-o", out)["near_misses"]
    assert [item["rule"] for item in near] == ["raise-attention", "raise-kv-update"]


def test_mistakes_are_told(tmp_path: Path):
    out = tmp_path / "m.gg"

    def text(*options: str) -> str:
        return error("import", *BOTH, *options, "-o", out)

    assert "no input is called 'cash.*'" in text("--state", "cash.*=result.1.*")
    assert "no output is called 'result.7.0.k'" in text("--state", "cache.*=result.7.*")
    assert "says no pair" in text("--state", "cache")
    assert "needs one * on both sides" in text("--rename", "cache.*=kept")
    assert "would be called lengths" in text("--rename", "tokens=lengths")
    assert "--dim B: no size" in text("--dim", "B")
    assert "cannot be distinguished" in text("--dim", "S=1")
    assert "says no phase" in error("import", f"{MODEL}:prefill", f"{MODEL}:decode", "-o", out)
    renamed = text("--rename", "decode:tokens=lengths.2", "--rename", "decode:lengths=tokens")
    assert "tokens is the input s32[3,6] of prefill and the input s32[3] of decode" in renamed
    assert not out.exists()


def test_a_file_is_lifted_where_numbers_are_known_to_be_sizes(tmp_path: Path):
    source, out = tmp_path / "s.mlir", tmp_path / "s.gg"
    x = np.ones((3, 61), np.float32)
    source.write_text(jax.jit(lambda x: x[:, -1] * 2).lower(x).as_text())
    done("import", source, "--dim", "B=3,S=61", "-o", out)
    assert "input %arg0 : f32[B,S]" in out.read_text()
    source.write_text(jax.jit(lambda x: x + jnp.arange(61) * 61).lower(x).as_text())
    told = error("import", source, "--dim", "B=3,S=61", "-o", tmp_path / "t.gg")
    assert "it may be the size S, or a number of its own" in told
    assert "import a function that takes the sizes" in told
