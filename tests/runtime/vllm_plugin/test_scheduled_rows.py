"""Steps of another scheduler: the logits of plain rows, wherever its blocks are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.vllm_plugin.scheduled_rows import ScheduledRow, check_session, launch_rows
from tests.oracles.families import ORACLES, save
from tests.oracles.sessions import open_session


def test_requests_may_change_rows_and_share_blocks(tmp_path: Path):
    save(ORACLES["llama"].model(initializer_range=0.1), tmp_path)
    sizes = CompileConfig(dtype="f32", page_cache=8, cache_blocks=12)
    session = open_session(tmp_path, sizes.serving(batch=3, max_len=32, chunk=(8,)))
    plain = open_session(tmp_path, CompileConfig(dtype="f32").serving(batch=3, max_len=32))
    rng = np.random.default_rng(3)
    one, other = (rng.integers(0, 61, size).tolist() for size in (19, 5))
    # A third text begins as the first one, whose two full blocks it takes over.
    third = [*one[:16], 7, 3]

    def logits(*texts: list[int]) -> np.ndarray:
        return np.asarray(plain.prefill([*texts, *[[]] * (3 - len(texts))]))[: len(texts)]

    def close(ours: np.ndarray, theirs: np.ndarray) -> None:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)

    first = launch_rows(
        session, [ScheduledRow([9, 2, 5], 0, one), ScheduledRow([11], 0, other[:3])]
    )
    close(first[:1], logits(one))
    one, held = [*one, 4], other
    # The rows have changed places; one goes on with its prompt, one with a chosen token.
    second = launch_rows(
        session,
        [
            ScheduledRow([11], 3, held[3:]),
            ScheduledRow([9, 2, 5], 19, one[19:]),
            ScheduledRow([9, 2, 1], 16, third[16:]),
        ],
    )
    close(second, logits(held, one, third))
    # A preempted request begins again elsewhere.
    again = launch_rows(session, [ScheduledRow([0, 3, 4], 0, one)])
    close(again, logits(one))


@pytest.mark.parametrize("verified", [0, 4])
def test_logits_of_every_token(verified: int, tmp_path: Path):
    """Of prompts that are read, and of proposals; a row goes on from what another one writes."""
    save(ORACLES["llama"].model(initializer_range=0.1), tmp_path)
    sizes = CompileConfig(dtype="f32", page_cache=4, cache_blocks=12, speculation_length=verified)
    session = open_session(tmp_path, sizes.serving(batch=3, max_len=16))
    plain = open_session(tmp_path, CompileConfig(dtype="f32").serving(batch=1, max_len=16))
    text = np.random.default_rng(3).integers(0, 61, 12).tolist()

    def logits(length: int) -> np.ndarray:
        return np.asarray(plain.prefill([text[:length]]))[0]

    heard = dict[int, np.ndarray]()

    def note(first: int, found: np.ndarray) -> None:
        heard.update({first + index: row for index, row in enumerate(found)})

    rows = [
        # Both begin with a block that the third one fills.
        ScheduledRow([3, 5], 4, text[4:5]),
        ScheduledRow([3, 6, 7], 4, text[4:10], last=3),
        ScheduledRow([3, 9], 0, text[:6], reader=note),
    ]
    found = launch_rows(session, rows)
    for row, length in zip(found, (5, 8, 9, 10, 6), strict=True):
        np.testing.assert_allclose(row, logits(length), rtol=0, atol=1e-5)
    assert sorted(heard) == [*range(6)]
    for place, row in heard.items():
        np.testing.assert_allclose(row, logits(place + 1), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (CompileConfig(dtype="f32"), "a scheduler of blocks needs blocks"),
        (
            CompileConfig(dtype="f32", page_cache=8, sampling="on-device-sampling"),
            "the scheduler's sampler needs logits",
        ),
    ],
)
def test_programs_of_another_kind_are_refused(config: CompileConfig, what: str, tmp_path: Path):
    save(ORACLES["llama"].model(), tmp_path)
    session = open_session(tmp_path, config.serving(batch=2, max_len=16))
    with pytest.raises(GraphgenError, match=what):
        check_session(session)
