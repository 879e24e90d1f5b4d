"""Ranks that share prompts, or rows, on virtual devices compute what one computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.session.session import Logits, Session
from tests.oracles.sessions import open_session
from tests.runtime.session.test_tp_families import write_mini

# Compiled in a few seconds: one axis, over which all ranks share prompts.
QUICK = "a balanced ring of all ranks, windows, in tiles"
CASES: Mapping[str, tuple[str, Mapping[str, int | str | tuple[int | str, ...]]]] = {
    "a balanced ring": (
        "llama-3.1-8b",
        {"tp": 4, "cp_degree": 2, "cp_form": "ring", "cp_balance": "on"},
    ),
    "prompts are shared, then rows divided": (
        "llama-3.1-8b",
        {"tp": 4, "cp_degree": 2, "attention_dp_degree": 2},
    ),
    QUICK: (
        "gemma-3-1b",
        {"tp": 4, "cp_degree": 4, "cp_form": "ring", "cp_balance": "on", "attention_block": "4x8"},
    ),
    "a ring in order, sinks, chunks": (
        "gpt-oss-20b",
        {"tp": 4, "cp_degree": 4, "cp_form": "ring", "cp_balance": "off"},
    ),
    "keys are gathered": ("qwen2-7b", {"tp": 4, "cp_degree": 2, "cp_form": "gather"}),
    "tokens are exchanged for heads": (
        "gemma-3-1b",
        {"tp": 4, "cp_degree": 2, "cp_form": "all-to-all"},
    ),
    "groups of experts, chosen in a balanced ring": (
        "deepseek-v3",
        {"tp": 2, "cp_degree": 2, "cp_form": "ring", "cp_balance": "on"},
    ),
    "tokens are exchanged for those of a rank's experts": (
        "mixtral-8x7b",
        {
            "tp": 4,
            "moe_ep_degree": 2,
            "expert_exchange": "all-to-all",
            "rules": ("prefill:sequence:ep*tp",),
        },
    ),
    "sinks, one prompt at a time": (
        "gpt-oss-20b",
        {"tp": 4, "cp_degree": 4, "attention_dp_degree": 2, "prefill_batch": (1,)},
    ),
}


def script(session: Session) -> list[Logits]:
    """Ragged prompts, then steps of which one has an idle row."""
    rng = np.random.default_rng(9)
    made = [session.prefill([rng.integers(0, 257, size).tolist() for size in (20, 1)])]
    made.append(session.decode([5, 256], [True, True]))
    made.append(session.decode([7, 7], [True, False])[:1])
    return made


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case == QUICK else pytest.mark.slow) for case in CASES],
)
def test_virtual_devices_compute_what_one_does(case: str, tmp_path: Path):
    name, options = CASES[case]
    write_mini(tmp_path, name)
    # A prompt of 20 tokens goes through programs of 8 where the largest others take 16.
    sizes = {"max_context": 16, "chunk": (8,)} if "chunks" in case else {}
    one, four = (
        script(
            open_session(
                tmp_path,
                CompileConfig(dtype="f32").updated(given).serving(batch=2, max_len=32, **sizes),  # pyright: ignore[reportArgumentType]
            )
        )
        for given in ({}, options)
    )
    for ours, wanted in zip(four, one, strict=True):
        assert np.abs(wanted).max() > 0.1
        np.testing.assert_allclose(ours, wanted, atol=1e-5 * np.abs(wanted).max(), rtol=0)
