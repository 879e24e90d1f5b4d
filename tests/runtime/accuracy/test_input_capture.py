"""Captured inputs: ``graphgen run`` gives what the session gave."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.accuracy.input_capture import InputCapture
from graphgen.runtime.session.session import Session
from tests.graphgen.cli.conftest import done
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session

PROMPTS = [[5, 6, 7], [9, 10]]
NEXTS = [[8, 11], [12, 13], [14, 15]]


class Minis:
    """Sessions on one mini checkpoint, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_llama(folder)
        self.session = cache(self._open)

    def _open(self, dtype: str, tp: int) -> Session:
        settings = CompileConfig(dtype=dtype, tp=tp).serving(batch=2, max_len=128)
        return open_session(self.folder, settings)


@pytest.fixture(scope="module")
def minis(tmp_path_factory: pytest.TempPathFactory) -> Minis:
    return Minis(tmp_path_factory.mktemp("mini"))


def run(session: Session, capture: InputCapture) -> list[npt.NDArray[np.float32]]:
    """The logits of each step, captured on the way."""
    session.observers.append(capture)
    try:
        session.reset()
        logits = [session.prefill(PROMPTS)]
        return logits + [session.decode(tokens) for tokens in NEXTS]
    finally:
        session.observers.remove(capture)


def replay(
    minis: Minis, folder: Path, capture: dict[str, str], out: Path
) -> npt.NDArray[np.float32]:
    """The logits that the recorded command gives."""
    words = capture["replay"].split()
    words = [word.replace("CHECKPOINT", str(minis.folder)) for word in words[1:]]
    for name in ("module.gg", capture["file"]):
        words[words.index(name)] = str(folder / name)
    done(*words, "--save", out)
    with np.load(out) as arrays:
        return arrays["logits"]


@pytest.mark.parametrize(
    ("dtype", "tp", "ending"),
    [
        ("f32", 1, "npz"),
        pytest.param("bf16", 1, "safetensors"),
        pytest.param("f32", 2, "npz", marks=pytest.mark.slow),
    ],
)
def test_a_replay_gives_the_same_outputs(
    dtype: str, tp: int, ending: str, minis: Minis, tmp_path: Path
):
    folder = tmp_path / "captured"
    logits = run(minis.session(dtype, tp), InputCapture(folder, steps=[0, 2], ending=ending))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == "graphgen-captured-inputs-1"
    assert [one["step"] for one in manifest["captures"]] == [0, 2]
    assert [one["phase"] for one in manifest["captures"]] == ["prefill", "decode"]
    for one in manifest["captures"]:
        np.testing.assert_array_equal(
            replay(minis, folder, one, tmp_path / "out.npz"), logits[one["step"]]
        )
    # Nothing but whole files.
    files = {one["file"] for one in manifest["captures"]} | {"manifest.json", "module.gg"}
    assert {path.name for path in folder.iterdir()} == files


def test_steps_start_again_with_each_prompt_and_calls_do_not(minis: Minis, tmp_path: Path):
    own = minis.session("f32", 1)
    by_step = InputCapture(tmp_path / "steps", steps=[1])
    by_call = InputCapture(tmp_path / "calls", calls=[0, 4])
    for _ in range(2):
        own.observers.append(by_call)
        run(own, by_step)
        own.observers.remove(by_call)
    assert [(one.step, one.call) for one in by_step.captured] == [(1, 0), (1, 3)]
    captured = [(one.phase, one.call, one.step) for one in by_call.captured]
    assert captured == [("prefill", 0, 0), ("decode", 0, 1), ("decode", 4, 2)]


def test_nothing_is_written_before_the_first_capture(minis: Minis, tmp_path: Path):
    run(minis.session("f32", 1), InputCapture(tmp_path / "none", steps=[7]))
    assert not (tmp_path / "none").exists()


def test_mistakes_are_named(minis: Minis, tmp_path: Path):
    with pytest.raises(GraphgenError, match="cannot be written as 'pickle'"):
        InputCapture(tmp_path, [0], ending="pickle")
    with pytest.raises(GraphgenError, match="capture index of -1"):
        InputCapture(tmp_path, [-1])
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphgenError) as caught:
        run(minis.session("f32", 1), InputCapture(tmp_path / "file", steps=[0]))
    assert caught.value.code == "GG0704"
