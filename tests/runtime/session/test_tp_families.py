"""Every family on three ranks, which divide none of its sizes, computes what it does on one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Role, dtype
from graphgen.models import SHAPES, build, read_model_config
from graphgen.runtime.session.session import Logits, Session
from tests.oracles.sessions import open_session

FAMILIES = [
    *("llama-3.1-8b", "qwen2-7b", "gemma-3-1b", "gpt2", "opt-125m", "gpt-j-6b"),
    *("gpt-neox-20b", "bloom-560m", "olmo-2-32b", "stablelm-2-12b", "falcon-40b"),
]


def write_mini(folder: Path, name: str) -> None:
    """The mini twin of a known shape with random weights."""
    settings = read_model_config(SHAPES[name]).mini().to_hf()
    rng = np.random.default_rng(3)
    weights = {
        row.name: (0.15 * rng.standard_normal(row.logical.dims)).astype(np.float32)
        for row in build(settings, dtype("f32")).entries(Role.WEIGHT)
    }
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(weights, folder / "model.safetensors")


def script(session: Session) -> list[Logits]:
    """Ragged prompts, two steps with an idle row."""
    rng = np.random.default_rng(9)
    everything = [session.prefill([rng.integers(0, 257, size).tolist() for size in (20, 1)])]
    everything.append(session.decode([5, 256], [True, True]))
    everything.append(session.decode([7, 7], [True, False])[:1])
    return everything


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.one_in(2)
def test_three_ranks_compute_what_one_does(name: str, tmp_path: Path):
    write_mini(tmp_path, name)
    one, three = (
        script(
            open_session(tmp_path, CompileConfig(dtype="f32", tp=tp).serving(batch=2, max_len=32))
        )
        for tp in (1, 3)
    )
    for ours, wanted in zip(three, one, strict=True):
        assert ours.shape == wanted.shape
        assert np.abs(wanted).max() > 0.1
        np.testing.assert_allclose(ours, wanted, atol=2e-5 * np.abs(wanted).max(), rtol=0)
