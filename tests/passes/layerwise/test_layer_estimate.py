"""The estimate of a layer-by-layer validation, by hand for a machine of known speed."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.exec.session import ProgramCall, Workload
from graphgen.passes.layerwise import layer_estimate
from graphgen.passes.layerwise.layer_estimate import LayerEstimate, estimate
from graphgen.text import parse

DOT = "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[B,4]  # m.py:3"
TEXT = f"""\
module @m level=logical {{
  input %positions : s32[B,1]
  input %x : f32[B,4]
  weight %w : f32[4,4]
  weight %norm : f32[4]
  output %y : f32[B,4]
}}

func @f phase=decode {{
  arg %x : f32[B,4]
  arg %w : f32[4,4]
  arg %norm : f32[4]
  %a = dot_general(%x, %w) {DOT} layers.0.mlp
  %b = dot_general(%a, %w) {DOT} layers.1.mlp
  %c = dot_general(%b, %w) {DOT} layers.2.mlp
  %d = dot_general(%c, %w) {DOT} head
  return y = %d
}}
"""
# Flops of one product for B rows.
PRODUCT = 2 * 4 * 4


def test_an_estimate_counts_weights_flops_and_streams(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layer_estimate, "_speed", lambda: (100.0, 2.0))
    calls = [
        ProgramCall("decode", {"B": rows}, {"positions": np.zeros((rows, 1), np.int32)})
        for rows in (1, 2)
    ]
    found = estimate(parse(TEXT), Workload({}, tuple(calls)), passes=5)
    total, elements = 4 * 3 * PRODUCT, 4 * 4 + 4
    assert (found.weight_bytes, found.flops) == (4 * elements, total)
    # Every weight is read once a call. Each pass runs the head and one layer of three, twice.
    once = elements * 100.0 * 2 + total * 2.0
    assert found.seconds == pytest.approx(once * (1 + 5 * 2 * (1 / 4 + 1 / 3)))
    streams = 3 * 3 * 4 * 4  # three layers, three tokens, four numbers of four bytes
    assert found.memory == (1200 << 20) + 4 * elements + streams


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.4, "3 s"), (89.4, "89 s"), (90, "2 min"), (601, "10 min")]
)
def test_an_estimate_in_words(seconds: float, text: str):
    found = LayerEstimate(16_000_000_000, 5_000_000_000, seconds, 3_200_000_000)
    assert str(found) == (
        f"16.0 GB of weights, 5 GFLOP a run of all layers; about {text} and 3.2 GB of memory"
    )
