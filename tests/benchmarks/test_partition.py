"""Bytes of ours beside those of XLA's partitioners: how they are counted; ours are never more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.partition import Traffic, annotated, of_hlo, of_ours, tiles

MESH = {"dp": 2, "tp": 4}


def test_layouts_are_written_as_hlo_does():
    assert tiles([(), ()], MESH) == "{replicated}"
    assert tiles([("dp", "tp"), ()], MESH) == "{devices=[8,1]<=[8]}"
    assert tiles([("dp",), ()], MESH) == "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"
    turned = "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"
    assert tiles([(), ("tp",)], MESH) == turned


def test_bytes_of_hlo_are_those_of_rings():
    """Groups as lists, as iotas and as axes of a mesh; a tuple; a permutation."""
    text = """
  %a = f32[4,8]{1,0} all-reduce(%x), replica_groups={{0,1,2,3}}, metadata={op_name="dot.1"}
  %b = (f32[8]{0}, bf16[4]{0}) all-reduce(%x, %y), replica_groups=[4,2]<=[2,4]T(1,0), to_apply=%add
  %c = f32[16]{0} all-gather(%x), replica_groups=mesh['a'=2,'b'=4], d=(0) {'b'}, dimensions={0}
  %d = f32[4]{0} reduce-scatter(%x), replica_groups=[2,4]<=[8], dimensions={0}
  %e = s32[6]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}
  %f = f32[4]{0} add(%x, %y)
"""
    found = of_hlo(text)
    ring = 2 * 128 * 3 // 4
    assert found.by_op == {"dot": ring, "-": (32 + 8) + 48 + 48 + 24}
    assert (found.count, found.received) == (5, ring + 160)


def test_ours_are_the_sums_of_a_tensor_parallel_llama():
    """An all-reduce for the embedding and two a layer, of [4,1,64]; the logits [4,260] gathered."""
    found = of_ours(annotated("llama", "decode", "tp 4"))
    assert found.count == 6
    assert found.received == 5 * (2 * 1024 * 3 // 4) + 4160 * 3 // 4


def test_a_ring_sends_an_exchange_and_blocks():
    """Of keys and values [4,16,4,8] each rank has a quarter, and half of that is elsewhere."""
    found = of_ours(annotated("llama", "prefill", "cp 2 x tp 2, ring"))
    cached = 4 * 16 * 4 * 8 * 4 // 4
    # Two layers: tokens go where their heads are cached, slots come back, and a block is passed on.
    assert found.by_op["self_attn"] == 2 * (2 * 2 * cached // 2 + 2 * cached)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("families", "mesh"), [("llama,gptj", "tp 4"), ("llama,bloom", "cp 2 x tp 2, ring")]
)
def test_ours_are_never_more(tmp_path: Path, families: str, mesh: str):
    path = tmp_path / "rows.json"
    command = [sys.executable, "-m", "benchmarks.partition", "--only", families]
    subprocess.run(
        [*command, "--mesh", mesh, "--json", str(path)],
        check=True,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "8"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
    )
    rows = json.loads(path.read_text())
    assert len(rows) == 4
    for row in rows:
        kinds = [Traffic(**row[name]) for name in ("ours", "gspmd", "shardy")]
        assert kinds[0].received <= min(kinds[1].received, kinds[2].received), row
