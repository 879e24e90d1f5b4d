"""A session's rows are strangers to each other: not a bit depends on what the others hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pytest

from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.session import Logits, Session
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.oracles.smollm2 import smollm2_session

ROWS = 4
LENGTHS = (1, 5, 130, 127)


@cache
def mini_session(dtype: str, rows: int = ROWS, max_len: int = 256) -> Session:
    with TemporaryDirectory() as folder:
        write_llama(Path(folder), vocab_size=49152, num_hidden_layers=1)
        return open_session(
            Path(folder), CompileConfig(dtype=dtype).serving(batch=rows, max_len=max_len)
        )


@pytest.fixture(
    params=[
        "mini-f32",
        "mini-bf16",
        pytest.param("smollm2-f32", marks=pytest.mark.slow),
        pytest.param("smollm2-bf16", marks=pytest.mark.slow),
    ]
)
def session(request: pytest.FixtureRequest) -> Session:
    model, dtype = request.param.split("-")
    return mini_session(dtype) if model == "mini" else smollm2_session(dtype, ROWS, 256)


def some_tokens(seed: int, size: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 49000, size).tolist()


def run(session: Session, prompts: Sequence[Sequence[int]], nexts: Sequence[int]) -> list[Logits]:
    session.reset()
    idle = [bool(prompt) for prompt in prompts]
    logits = [session.prefill(prompts)]
    logits += [session.decode([token] * ROWS, idle) for token in nexts]
    return logits


@pytest.mark.parametrize("row", [0, 3])
def test_a_row_has_the_same_bits_whatever_the_others_hold(session: Session, row: int):
    mine = some_tokens(1, 120)
    nexts = some_tokens(2, 3)
    runs: list[list[Logits]] = []
    for others in ([[], [], []], [some_tokens(n, n + 9) for n in (3, 4, 5)], [mine] * 3):
        prompts = [*others[:row], mine, *others[row:]]
        runs.append(run(session, prompts, nexts))
    for logits in runs[1:]:
        for step, ours in enumerate(logits):
            np.testing.assert_array_equal(ours[row], runs[0][step][row])


def row_of_caches(session: Session, row: int) -> dict[str, npt.NDArray[np.generic]]:
    names = [entry.name for entry in session.module.entries(Role.STATE)]
    return {name: np.array(session.state(name)[row]) for name in names}


def test_an_idle_row_keeps_its_cache_bit_by_bit(session: Session):
    session.reset()
    session.prefill([some_tokens(n, 9 + n) for n in range(ROWS)])
    before = [row_of_caches(session, row) for row in (1, 2)]
    assert before[0]
    assert all(cache.any() for cache in before[0].values())
    session.decode(some_tokens(8, ROWS), [True, False, True, True])
    session.prefill([some_tokens(9, 20), [], [], some_tokens(10, 3)])
    after = [row_of_caches(session, row) for row in (1, 2)]
    for name, held in before[0].items():
        np.testing.assert_array_equal(after[0][name], held)
    # Row 2 took part in the decode step: the comparison sees a change of one slot.
    assert all((after[1][name] != cache).any() for name, cache in before[1].items())
    assert session.lengths.tolist() == [20, 10, 12, 3]


def test_an_idle_row_goes_on_where_it_stopped(session: Session):
    prompts = [some_tokens(n, 9 + n) for n in range(ROWS)]
    nexts = some_tokens(20, 4)
    session.reset()
    session.prefill(prompts)
    wanted = [session.decode([token] * ROWS)[1] for token in nexts]
    session.reset()
    session.prefill(prompts)
    got: list[Logits] = []
    for token in nexts:
        session.decode([7, 0, 8, 9], [True, False, True, True])
        got.append(session.decode([0, token, 0, 0], [False, True, False, False])[1])
    np.testing.assert_array_equal(np.stack(got), np.stack(wanted))


def prefill_one(session: Session, row: int, prompt: list[int], padding: str) -> Logits:
    prompts: list[list[int]] = [[]] * ROWS
    prompts[row] = prompt
    return session.prefill(prompts, padding)[row]


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize(
    "open_rows", [mini_session, pytest.param(smollm2_session, marks=pytest.mark.slow)]
)
def test_alone_and_in_a_ragged_batch_across_a_bucket_boundary(
    open_rows: Callable[[str, int, int], Session], padding: str
):
    batch, single = open_rows("f32", ROWS, 256), open_rows("f32", 1, 512)
    prompts = [some_tokens(size, size) for size in LENGTHS]
    request = GenerationRequest(8, padding=padding)
    together, _ = generate(batch, prompts, request)
    for row, prompt in enumerate(prompts):
        (alone,), _ = generate(single, [prompt], request)
        assert alone.tokens == together[row].tokens
        assert len(alone.tokens) == 8
    batch.reset()
    logits = [batch.prefill(prompts, padding)]
    columns = list(zip(*(answer.tokens for answer in together), strict=True))
    logits += [batch.decode(column) for column in columns]
    assert batch.lengths.tolist() == [size + 8 for size in LENGTHS]
    for row, prompt in enumerate(prompts):
        single.reset()
        alone = [single.prefill([prompt], padding)[0]]
        alone += [single.decode([token])[0] for token in together[row].tokens]
        np.testing.assert_allclose(
            np.stack([step[row] for step in logits]), np.stack(alone), atol=1e-4, rtol=0
        )


def test_padding_side_and_bucket_do_not_change_the_caches(session: Session):
    prompt = some_tokens(5, 100)
    caches: list[dict[str, npt.NDArray[np.generic]]] = []
    for padding in ("right", "left"):
        session.reset()
        prefill_one(session, 2, prompt, padding)
        caches.append(row_of_caches(session, 2))
    for name, held in caches[0].items():
        np.testing.assert_array_equal(caches[1][name], held)
        assert not held[100:].any()


@pytest.mark.parametrize(("size", "bucket"), [(1, 128), (128, 128), (129, 256), (256, 256)])
def test_a_prompt_runs_in_the_smallest_bucket_that_holds_it(size: int, bucket: int):
    session = mini_session("f32")
    session.reset()
    session.programs.reports.clear()
    session.programs._programs.clear()
    session.prefill([some_tokens(1, size)])
    assert [report.name for report in session.programs.reports] == [f"prefill.b4.s{bucket}"]


def test_no_slot_is_left_and_no_bucket_is_large_enough():
    session = mini_session("f32")
    session.reset()
    with pytest.raises(GraphgenError) as caught:
        session.prefill([some_tokens(1, 257)])
    assert str(caught.value) == (
        "error[GG0701]: a prompt of 257 tokens is longer than the largest bucket, 256\n"
        "  help: compile for longer sequences, e.g. --max-len 512"
    )
    session.prefill([some_tokens(1, 256), [5]])
    session.decode([1, 1, 0, 0], [False, True, False, False])
    with pytest.raises(GraphgenError) as caught:
        session.decode([1, 1, 0, 0], [True, True, False, False])
    assert str(caught.value) == (
        "error[GG0701]: a sequence of 257 tokens is longer than the largest bucket, 256\n"
        "  help: compile for longer sequences, e.g. --max-len 512"
    )
    assert session.lengths.tolist() == [256, 2, 0, 0]


def test_a_state_that_does_not_exist():
    with pytest.raises(GraphgenError, match="no state is called nope"):
        mini_session("f32").state("nope")


class Recorder:
    """Keeps the order of notifications, and the inputs and lengths of each launch."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.inputs: list[dict[str, npt.NDArray[np.generic]]] = []

    def before_launch(
        self, session: Session, program: str, inputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        self.events.append(("before", program))
        self.inputs.append(dict(inputs))

    def after_launch(self, session: Session, program: str) -> None:
        self.events.append(("after", program))


def test_observers_see_each_launch_and_no_warm_up():
    with TemporaryDirectory() as folder:
        write_llama(Path(folder))
        session = open_session(Path(folder), CompileConfig().serving(batch=1, max_len=128))
    recorder = Recorder()
    session.observers.append(recorder)
    session.prefill([[5, 6, 7]])
    session.decode([8])
    (prefill,), (decode,) = (session.buckets[phase].values() for phase in ("prefill", "decode"))
    order = [(when, name) for name in (prefill, decode) for when in ("before", "after")]
    assert recorder.events == order
    assert recorder.inputs[0]["tokens"][0, :3].tolist() == [5, 6, 7]
    assert recorder.inputs[1]["positions"].tolist() == [[3]]
    session.observers.remove(recorder)
    session.decode([9])
    assert len(recorder.events) == 4
