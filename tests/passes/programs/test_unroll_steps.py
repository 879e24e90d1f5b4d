"""unroll-steps: several decode steps in one program are the same steps one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.session import Outcome, ProgramCall, Runner, Workload
from graphgen.ir import Module, dtype
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles.minis import MINIS

STEPS = 3
SIZES = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), sampling="on-device-sampling")
DRAWN = replace(SIZES, sampling="on-device-sampling{do_sample=true}")


def lowered(name: str, config: CompileConfig, steps: int = 1) -> Module:
    module = build(known_shape(name), dtype("f32"), mini=True)
    run_pipeline(module, default(replace(config, steps_per_launch=steps)))
    return module


def several(module: Module, config: CompileConfig, stops: list[int]) -> Workload:
    """Prompts of 6, 3 and 1 tokens, then up to three steps of two rows, beside an idle one."""
    plain = make_workload(module, 5)
    inputs: dict[str, Array] = {
        "tokens": np.array([[3], [4], [0]], np.int32),
        "positions": np.array([[6], [3], [-1]], np.int32),
        "lengths": np.array([7, 4, 0], np.int32),
        "seq_ids": np.array([0, 1, 3], np.int32),
        "step_counts": np.array([STEPS, 2, 0], np.int32),
        "stop_tokens": np.array([[*stops, *[-1] * (8 - len(stops))]] * 3, np.int32),
    }
    if config is DRAWN:
        rng = np.random.default_rng(1)
        inputs["step_random"] = rng.random((3, STEPS)).astype(np.float32)
        inputs["sampling_params"] = np.array([[5, 0.9, 1], [0, 1, 2], [1, 1, 1]], np.float32)
    dims = {"B": 3, "S": 1, "C": 16, "R": 3, "M": 16, "N": STEPS}
    prompts = [call for call in plain.calls if call.phase == "prefill"][:1]
    calls = (*prompts, ProgramCall("steps", dims, inputs, active=(0, 1)))
    return replace(plain, calls=calls)


def outcome(module: Module, workload: Workload) -> Outcome:
    return Runner(module, workload).outcomes()[-1]


def compared(name: str, config: CompileConfig, stops: list[int]) -> np.ndarray:
    """The tokens of the program, after a comparison with those of single steps, and the states."""
    one, made = lowered(name, config), lowered(name, config, STEPS)
    workload = several(one, config, stops)
    single, together = outcome(one, workload), outcome(made, workload)
    assert single.keys() == together.keys()
    assert len(single) > 1
    for key, array in single.items():
        np.testing.assert_allclose(np.asarray(together[key]), np.asarray(array), atol=1e-9)
    return together["step_tokens"]


@pytest.mark.parametrize("config", [SIZES, DRAWN], ids=["best", "drawn"])
@pytest.mark.parametrize("name", MINIS)
@pytest.mark.one_in(8)
def test_steps_of_every_family(name: str, config: CompileConfig):
    tokens = compared(name, config, [])
    assert (tokens[0] >= 0).all()
    assert tokens[1].tolist()[2:] == [-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"tp": 2},
        {"page_cache": 4},
        {"roll_window_cache": True},
        {"kernels": "on"},
        {"outline": True},
    ],
    ids=str,
)
def test_steps_after_other_passes(changes: dict[str, object]):
    name = "gemma-3-1b" if "roll_window_cache" in changes else "llama-3.1-8b"
    assert (compared(name, SIZES.updated(changes), [])[0] >= 0).all()


def test_a_row_ends_with_a_stop_token():
    first = compared("llama-3.1-8b", SIZES, [])
    tokens = compared("llama-3.1-8b", SIZES, [7, int(first[0, 1])])
    kept = first[0].tolist().index(first[0, 1]) + 1
    assert tokens[0].tolist() == [*first[0, :kept].tolist(), *[-1] * (STEPS - kept)]


def test_the_programs_are_well_formed_and_named_by_their_steps():
    module = lowered("llama-3.1-8b", DRAWN, 2)
    verify(module)
    made = {f.name: f for f in module.programs() if f.phase == "steps"}
    assert list(made) == ["decode.b3.c8.n2", "decode.b3.c16.n2"]
    assert all(f.arg("random") is None and f.arg("step_random") for f in made.values())


def test_programs_that_give_logits_are_refused():
    module = lowered("llama-3.1-8b", replace(SIZES, sampling=""))
    with pytest.raises(GraphgenError, match="on-device-sampling") as raised:
        run_pipeline(module, parse_pipeline("unroll-steps"))
    assert raised.value.code == "GG0304"


def test_one_step_is_refused():
    with pytest.raises(GraphgenError, match="steps=1 is below 2"):
        run_pipeline(lowered("llama-3.1-8b", SIZES), parse_pipeline("unroll-steps{steps=1}"))
