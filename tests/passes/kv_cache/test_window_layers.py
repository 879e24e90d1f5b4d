"""Layers with a window that stay as they are, and why."""

from __future__ import annotations

import pytest

from graphgen.passes.core import NoMatch, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.kv_cache.roll_window_cache import RollWindowCache
from graphgen.text import parse, print_module
from tests.passes.kv_cache.test_roll_window_cache import PREFILL

# In the order of the conditions.
REFUSED = {
    "the cache is not one of plain rows": ("(%positions, %p) w", "(%positions, %positions) w"),
    "the layer reads all positions": ("window=4 ", ""),
    "this is not read from a cache": ("attention(%x, %1", "attention(%x, %x"),
    "it is not read after its update": ("cache_read(%0,", "cache_read(%k,"),
    "it is not a state": (
        "%0 = kv_update(%k",
        "%z = negate(%k) : f32[2,8,1,4]\n  %0 = kv_update(%z",
    ),
    "it is written, read and masked at different positions": (
        "kv_update(%k, %x, %seq_ids, %positions)",
        "kv_update(%k, %x, %lengths, %positions)",
    ),
    "it is not the caller who says the positions": ("%positions", "%at"),
    "the update is not what is kept": ("return k = %0", "return k = %k"),
    "something else reads it": ("  return k", "  %z = negate(%1) : f32[2,6,1,4]\n  return k"),
    "the 8 slots of a row are no more than the ring needs, 8": ("window=4", "window=8"),
}


def refused(reason: str) -> NoMatch:
    """Why a layer in which one condition is not met stays as it is."""
    right, other = REFUSED[reason]
    module = parse(PREFILL.replace(right, other))
    before = print_module(module)
    run_pipeline(module, [RollWindowCache()], journal=(journal := Journal()))
    assert print_module(module) == before
    miss = journal.nearest("roll-layer")
    assert miss is not None
    return miss.why


@pytest.mark.parametrize("reason", REFUSED)
def test_a_layer_is_left_alone(reason: str):
    assert refused(reason).reason == reason


def test_each_condition_is_nearer_than_those_before():
    depths = [refused(reason).depth for reason in REFUSED]
    assert depths == sorted(set(depths))


def test_programs_have_to_agree():
    other = PREFILL[PREFILL.index("func @f") :].replace("@f phase=prefill", "@g phase=decode")
    reasons = {
        "its window is another one in another program": ("window=4", "window=5"),
        "another program does something else with the cache": ("window=4 ", ""),
    }
    for reason, (right, wrong) in reasons.items():
        module = parse(f"{PREFILL}\n{other.replace(right, wrong)}")
        run_pipeline(module, [RollWindowCache()], journal=(journal := Journal()))
        assert reason in [miss.why.reason for miss in journal.misses]
        assert journal.applications == []
