"""Asynchronous instructions run where they start, as XLA's synchronous ones do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.eval import evaluate_ranks
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo.synchronous_form import as_synchronous, has_asynchronous
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from tests.graphgen.cli.conftest import done

SUM = "s { p = f32[] parameter(0)\n q = f32[] parameter(1)\n ROOT t = f32[] add(p, q) }\n"
GROUP = """comms {
  a = f32[2] parameter(0)
  b = f32[2] parameter(1)
  c = f32[2] all-reduce(a), replica_groups={{0,1}}, to_apply=s
  d = f32[2] negate(b)
  ROOT t = (f32[2], f32[2]) tuple(c, d)
}
"""
CASES = {
    "group": "g = ((f32[2], f32[2]), (f32[2], f32[2]), s32[]) async-start(x, x), calls=comms\n"
    "h = (f32[2], f32[2]) async-done(g)\nc = f32[2] get-tuple-element(h), index=0\n"
    "d = f32[2] get-tuple-element(h), index=1\nROOT r = f32[2] add(c, d)",
    "short": "g = ((f32[2]), f32[2], s32[]) negate-start(x)\nu = ((f32[2]), f32[2], s32[]) "
    "negate-update(g)\nROOT r = f32[2] negate-done(u)",
    "all-reduce": "g = f32[2] all-reduce-start(x), replica_groups={{0,1}}, to_apply=s\n"
    "ROOT r = f32[2] all-reduce-done(g)",
    "all-gather": "g = (f32[2], f32[4]) all-gather-start(x), dimensions={0}, "
    "replica_groups={{0,1}}\nROOT r = f32[4] all-gather-done(g)",
    "permute": "g = (f32[2], f32[2], u32[], u32[]) collective-permute-start(x), "
    "source_target_pairs={{0,1},{1,0}}\nROOT r = f32[2] collective-permute-done(g)",
    "copy": "g = (f32[2], f32[2], u32[]) copy-start(x)\nROOT r = f32[2] copy-done(g)",
}
X = [np.array([1, 2], np.float32), np.array([10, 20], np.float32)]
WANTED = {
    "group": [X[0] + X[1] - X[0], X[0] + X[1] - X[1]],
    "short": [-X[0], -X[1]],
    "all-reduce": [X[0] + X[1]] * 2,
    "all-gather": [np.concatenate(X)] * 2,
    "permute": X[::-1],
    "copy": X,
}


def text(name: str) -> str:
    head = f"HloModule m, replica_count=2\n{SUM}{GROUP if name == 'group' else ''}"
    return f"{head}ENTRY e {{\nx = f32[2] parameter(0)\n{CASES[name]}\n}}\n"


@pytest.mark.parametrize("name", CASES)
def test_what_is_started_runs_where_it_starts(name: str, tmp_path: Path):
    module = read_hlo(parse_hlo_text(text(name)))
    assert has_asynchronous(module)
    made = as_synchronous(module, module.function("e"))
    assert not has_asynchronous(made)
    ran = evaluate_ranks(made.programs()[0], [{"x": x} for x in X], module=made)
    for found, wanted in zip(ran, WANTED[name], strict=True):
        np.testing.assert_array_equal(next(iter(found.values())), wanted)
    file = tmp_path / "m.hlo"
    file.write_text(text(name))
    assert "f32[" in done("run", file).stdout
