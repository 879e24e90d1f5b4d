"""Divided slots with every other form of a cache, biases that slots have, sinks and windows."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.exec.session import Runner
from graphgen.ir import Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.pipelines import default
from graphgen.passes.workload.layout_tables import permuted
from graphgen.passes.workload.make_workload import make_workload

SIZES = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), flash_decoding=True, tp=4)


def mini(name: str) -> Module:
    return build(known_shape(name), dtype("f32"), mini=True)


def difference(name: str, **options: object) -> float:
    """How far the ranks are from one, in f64; through permuted blocks where there are some."""
    logical = mini(name)
    config = SIZES.updated({"tp": 4, **options})
    passes = default(config)
    end = next(i for i, item in enumerate(passes) if item.name == "specialize") + 1
    module = clone_module(logical)
    run_pipeline(module, passes[:end])
    script = make_workload(module, seed=1)
    wanted = Runner(module, script, arithmetic=MEANING).outcomes()
    run_pipeline(module, passes[end:])
    script = permuted(module, script) or script
    return compare(wanted, Runner(module, script, arithmetic=MEANING).outcomes()).relative


# Windows that overtake their ring; blocks; windows and sinks; linear biases; soft caps.
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mistral-7b", {"roll_window_cache": True}),
        ("smollm2-135m", {"page_cache": 6}),
        ("gpt-oss-20b", {}),
        pytest.param("smollm2-135m", {"softmax_dtype": "bf16"}, marks=pytest.mark.slow),
        pytest.param("bloom-560m", {"flash_decoding_ranks": 2}, marks=pytest.mark.slow),
        pytest.param("gemma-2-2b", {}, marks=pytest.mark.slow),
        pytest.param("gpt2", {"tp": 8, "flash_decoding_ranks": 4}, marks=pytest.mark.slow),
        pytest.param("llama-4-scout", {"roll_window_cache": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.one_in(3)
def test_ranks_give_the_numbers_of_one(name: str, options: dict[str, object]):
    assert difference(name, **options) <= 1e-9


@pytest.mark.parametrize(
    ("name", "options", "code", "what", "advice"),
    [
        ("deepseek-v2-lite", {}, "GG0304", "latent vectors", "leave out flash_decoding"),
        ("smollm2-135m", {"page_cache": 5}, "GG0304", "a block of 5", "a multiple of 2"),
        ("smollm2-135m", {"flash_decoding_ranks": 3}, "GG0304", "in groups of 3", "may be 2, 4"),
        ("smollm2-135m", {"heads": "CONVERT_TO_MHA"}, "GG0302", "lays out heads", "leave out one"),
        ("smollm2-135m", {"moe_ep_degree": 2}, "GG0302", "by experts", "leave out one"),
        ("smollm2-135m", {"moe_prefill_ep_degree": 2}, "GG0302", "by experts", "leave out one"),
        (
            "smollm2-135m",
            {"flash_decoding": False, "flash_decoding_ranks": 2},
            "GG0302",
            "without flash_decoding",
            "flash_decoding=true",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(
    name: str, options: dict[str, object], code: str, what: str, advice: str
):
    with pytest.raises(GraphgenError, match=what) as caught:
        run_pipeline(mini(name), default(SIZES.updated({"tp": 4, **options})))
    assert caught.value.code == code
    assert advice in (caught.value.help or "")
