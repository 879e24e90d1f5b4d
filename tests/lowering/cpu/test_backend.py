"""XLA as the evaluator of comparisons: the same numbers as NumPy, native types, any level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.exec.backend import NumpyBackend
from graphgen.exec.session import Runner
from graphgen.ir import Module, dtype
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.pipelines import default
from graphgen.passes.validate import PassChecks, validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse

SMALL = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))


def mini(kind: str) -> Module:
    return build(known_shape("llama-3.1-8b"), dtype(kind), mini=True)


@pytest.mark.parametrize(("tp", "kind"), [(0, "f32"), (0, "bf16"), (2, "f32")])
@pytest.mark.one_in(3)
def test_a_model_at_any_level_gives_what_numpy_gives(tp: int, kind: str):
    module = mini(kind)
    if tp:
        run_pipeline(module, default(replace(SMALL, tp=tp)))
    script, run = make_workload(module, 1), CpuBackend()
    ours = Runner(module, script, NumpyBackend()).outcomes()
    theirs = Runner(module, script, run).outcomes()
    found = compare(ours, theirs)
    assert 0 < found.relative <= run.noise(module)


def test_a_function_changed_in_place_is_compiled_anew():
    module = parse(
        "module @m level=logical {\n  input %x : f32[2]\n  output %y : f32[2]\n}\n\n"
        "func @f phase=main {\n  arg %x : f32[2]\n"
        "  %y = add(%x, %x) : f32[2]\n  return y = %y\n}\n"
    )
    run, given = CpuBackend(), [{"x": np.array([1, 2], np.float32)}]
    function = module.function("f")
    assert run(module, function, given)[0]["y"].tolist() == [2, 4]
    op = function.block.first
    assert op is not None
    op.name = "multiply"
    assert run(module, function, given)[0]["y"].tolist() == [1, 4]


def test_noise_is_that_of_the_narrowest_float():
    run = CpuBackend()
    assert run.noise(mini("f32")) == 64 * 2.0**-23
    assert run.noise(mini("bf16")) == 4 * 2.0**-7
    assert NumpyBackend().noise(mini("bf16")) == 0


def test_passes_are_validated_by_what_xla_computes():
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True, phases=("decode",))
    run_pipeline(
        module, parse_pipeline("canonicalize,specialize{batch=[2],context=[8],tokens=[8]}")
    )
    passes = parse_pipeline("fuse-projections,lift-weights,legalize")
    verdicts = validate(
        module, passes, make_workload(module, 2), PassChecks(evaluator=CpuBackend())
    )
    assert [v.pass_text for v in verdicts if not v.ok] == []
    assert verdicts[1].budget == 4 * 2.0**-7
    assert verdicts[2].budget == passes[2].rounding + 4 * 2.0**-7
