"""No correct pipeline of any model is flagged: several seeds, several kinds of calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphgen.compile_config import CompileConfig
from graphgen.ir.dtype import f32
from graphgen.models import SHAPES, build, known_shape
from graphgen.passes.pipelines import default
from graphgen.passes.verify import make_workload, validate
from graphgen.passes.verify.workload import WorkloadSizes

# Rows and lengths of the calls, and the buckets they need.
SCRIPTS = {
    "three rows": (WorkloadSizes(), CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))),
    "two rows, short": (
        WorkloadSizes(2, 4, 4, 8),
        CompileConfig(batch=(2,), context=(4,), tokens=(4, 8)),
    ),
    "one row": (
        WorkloadSizes(1, 8, 8, 16),
        CompileConfig(batch=(1,), context=(8,), tokens=(8, 16)),
    ),
}
# Models that partition does not carry over ranks yet.
UNSPLIT = ("gpt2", "bloom")
FIRST = {name.partition("-")[0]: name for name in reversed(list(SHAPES))}
CASES = [
    pytest.param(
        *(name, tp, script, seed),
        marks=() if name in FIRST.values() and (script, seed) == ("three rows", 0) else SLOW,
    )
    for SLOW in [pytest.mark.slow]
    for name in SHAPES
    for tp in ((1,) if name.partition("-")[0] in UNSPLIT else (1, 2))
    for script in SCRIPTS
    for seed in range(2)
]


@pytest.mark.parametrize(("name", "tp", "script", "seed"), CASES)
def test_a_right_pipeline_is_not_flagged(name: str, tp: int, script: str, seed: int):
    sizes, buckets = SCRIPTS[script]
    module = build(known_shape(name), f32, mini=True)
    verdicts = validate(
        module, default(replace(buckets, tp=tp)), make_workload(module, seed, sizes)
    )
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []
