"""Stages of a pipeline on devices of their own: the tokens and logits of one rank."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.oracles.sessions import open_session

SIZES = CompileConfig(dtype="f32", prefill_batch=(1,))


def logits_of(session: Session) -> list[np.ndarray]:
    """Prompts of three lengths, which are three groups of rows, and steps with an idle row."""
    rng = np.random.default_rng(5)
    found = [session.prefill([rng.integers(0, 61, size).tolist() for size in (20, 3, 9)])]
    tokens = [rng.integers(0, 61, 3).tolist() for _ in range(3)]
    found += [session.decode(step, [True, False, True]) for step in tokens]
    return [np.asarray(step)[[0, 2]] for step in found]


@pytest.mark.parametrize(("tp", "stages"), [(1, 2), (2, 3), (1, 4)])
def test_logits_are_those_of_one_rank(tp: int, stages: int, tmp_path: Path):
    save(ORACLES["llama"].model(initializer_range=0.1, num_hidden_layers=4), tmp_path)
    plain = logits_of(open_session(tmp_path, SIZES.serving(batch=3, max_len=32)))
    config = CompileConfig(dtype="f32", prefill_batch=(1,), tp=tp, pp_degree=stages)
    session = open_session(tmp_path, config.serving(batch=3, max_len=32))
    for ours, theirs in zip(logits_of(session), plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    # Each stage copies what it keeps of a row.
    session.copy_row(0, 1)
    last = session.decode([7, 7, 7])
    np.testing.assert_array_equal(last[0], last[1])
    states = [row.name for row in session.module.entries(Role.STATE)]
    homes = {min(device.id for device in session.state(name).devices()) for name in states}
    assert len(homes) == stages


@pytest.mark.parametrize("name", sorted(ORACLES))
@pytest.mark.one_in(9)
def test_every_family(name: str, tmp_path: Path):
    save(ORACLES[name].model(), tmp_path)
    plain = logits_of(open_session(tmp_path, SIZES.serving(batch=3, max_len=32)))
    config = CompileConfig(dtype="f32", prefill_batch=(1,), tp=2, pp_degree=2)
    session = open_session(tmp_path, config.serving(batch=3, max_len=32))
    for ours, theirs in zip(logits_of(session), plain, strict=True):
        scale = float(np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * max(scale, 1.0))


def test_an_artifact_keeps_its_stages(tmp_path: Path):
    folder, kept = tmp_path / "model", tmp_path / "artifact"
    save(ORACLES["llama"].model(vocab_size=301, initializer_range=0.2), folder)
    save_tokenizer(folder)
    found: list[list[int]] = []
    first = EngineOptions(CompileConfig.of(pp_degree=2), artifact=kept)
    for path, options in ((folder, EngineOptions()), (folder, first), (kept, EngineOptions())):
        engine, prompts = open_engine(
            str(path), options, lambda t: [t.encode("the cat")], 8, Silent()
        )
        (done,) = engine.generate(prompts, GenerationRequest(8)).completions
        found.append(list(done.tokens))
    assert found[0] == found[1] == found[2]
    stages = sorted((kept / "compiled").iterdir())
    assert [path.name for path in stages] == ["stage0", "stage1"]
    for path in stages[0].iterdir():
        # A program of the other stage, under the name of this one.
        (other,) = stages[1].glob(f"{path.name.rpartition('.')[0].rpartition('.')[0]}.*")
        shutil.copyfile(other, path)
    for loaded in (False, True):
        engine, prompts = open_engine(
            str(kept), EngineOptions(), lambda t: [t.encode("the cat")], 8, Silent()
        )
        (done,) = engine.generate(prompts, GenerationRequest(8)).completions
        assert list(done.tokens) == found[0]
        reports = engine.programs.reports
        assert [report.loaded for report in reports] == [loaded, True] * (len(reports) // 2)


def test_steps_in_flight_are_refused(tmp_path: Path):
    save(ORACLES["llama"].model(vocab_size=301), tmp_path)
    save_tokenizer(tmp_path)
    wanted = {"pp_degree": 2, "sampling": "on-device-sampling"}
    options = EngineOptions(CompileConfig.of(**wanted), async_mode=True)
    with pytest.raises(GraphgenError, match="stages of a pipeline have others"):
        open_engine(str(tmp_path), options, lambda t: [t.encode("the cat")], 4, Silent())
