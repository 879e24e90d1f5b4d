"""A session's rows are strangers to each other: not a bit depends on what the others hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.lowering.cpu.pjrt import put
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.session.session import Logits, RowResults, Session
from graphgen.runtime.session.step_call import Ints
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.oracles.smollm2 import first_layers_session

pytestmark = pytest.mark.usefixtures("optimized_code")

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
    return mini_session(dtype) if model == "mini" else first_layers_session(dtype, ROWS, 256)


def some_tokens(seed: int, size: int) -> list[int]:
    return np.random.default_rng(seed).integers(3, 49000, size).tolist()


def logits_of(results: RowResults) -> Logits:
    assert results.logits is not None
    return results.logits


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
    "open_rows", [mini_session, pytest.param(first_layers_session, marks=pytest.mark.slow)]
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


@cache
def uneven_session() -> Session:
    """Prefill of one row, decode of two or three, over a cache of five rows."""
    with TemporaryDirectory() as folder:
        write_llama(Path(folder))
        sampling = "on-device-sampling{output_logits=true}"
        config = CompileConfig(
            batch=(2, 3),
            prefill_batch=(1,),
            rows=5,
            context=(8, 16),
            tokens=(8, 16, 24),
            sampling=sampling,
        )
        return open_session(Path(folder), config)


@cache
def even_session() -> Session:
    """Five rows in every call."""
    with TemporaryDirectory() as folder:
        write_llama(Path(folder))
        config = CompileConfig(batch=(5,), context=(24,), tokens=(24,))
        return open_session(Path(folder), config)


@cache
def single_session() -> Session:
    """One row."""
    with TemporaryDirectory() as folder:
        write_llama(Path(folder))
        return open_session(Path(folder), CompileConfig(context=(24,), tokens=(24,)))


def texts(sizes: Sequence[int]) -> list[list[int]]:
    return [(np.array(some_tokens(size, size)) % 131).tolist() for size in sizes]


def padded(prompts: Sequence[Sequence[int]], left: bool) -> tuple[Ints, Ints]:
    """Tokens and positions of ragged prompts."""
    width = max(map(len, prompts))
    tokens = np.zeros((len(prompts), width), np.int32)
    positions = np.full((len(prompts), width), -1, np.int32)
    for row, prompt in enumerate(prompts):
        place = slice(width - len(prompt), None) if left else slice(len(prompt))
        tokens[row, place], positions[row, place] = prompt, np.arange(len(prompt))
    return tokens, positions


def logits_alone(prompts: Sequence[Sequence[int]]) -> Logits:
    session = single_session()
    return np.stack([session.prefill([prompt])[0] for prompt in prompts])


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("session_of", [uneven_session, even_session])
def test_a_step_answers_in_the_order_of_its_rows(session_of: Callable[[], Session], left: bool):
    session = session_of()
    session.reset()
    prompts = texts([3, 8, 1, 12])
    ids = [4, 0, 3, 1]
    made = session.step(*padded(prompts, left), ids)
    assert made.logits is not None
    np.testing.assert_allclose(made.logits, logits_alone(prompts), atol=1e-5, rtol=0)
    assert session.lengths.tolist() == [8, 12, 0, 1, 3]
    if session.chooses:
        assert made.tokens is not None
        assert made.tokens.tolist() == made.logits.argmax(-1).tolist()
    # Another order, fewer rows; row 2 of the cache begins with its one token.
    tokens, ids = [[7], [9], [5]], [1, 2, 4]
    made = session.step(tokens, [[12], [0], [3]], ids)
    assert made.logits is not None
    whole = [[*prompts[3], 7], [9], [*prompts[0], 5]]
    np.testing.assert_allclose(made.logits, logits_alone(whole), atol=1e-5, rtol=0)
    assert session.lengths.tolist() == [8, 13, 1, 1, 4]


def test_programs_are_the_smallest_that_fit():
    session = uneven_session()
    find = session.table.find
    assert [find("decode", rows, needed).name for rows, needed in ((1, 8), (2, 9), (3, 17))] == [
        *("decode.b2.c8", "decode.b2.c16", "decode.b3.c24")
    ]
    assert [find("prefill", 1, needed).name for needed in (1, 8, 9)] == [
        *("prefill.b1.s8", "prefill.b1.s8", "prefill.b1.s16")
    ]
    assert (session.rows, session.slots, session.limit) == (5, 24, 24)


def test_more_rows_than_a_program_has_and_rows_left_alone():
    session = uneven_session()
    session.reset()
    prompts = texts([3, 8, 1, 12, 5])
    session.prefill(prompts)
    names = [entry.name for entry in session.module.entries(Role.STATE)]
    before = {name: np.array(session.state(name)[2]) for name in names}
    tokens = [9, 8, 0, 7, 6]
    made = logits_of(session.step([[9], [8], [7], [6]], [[3], [8], [12], [5]], [0, 1, 3, 4]))
    for name in names:
        np.testing.assert_array_equal(np.array(session.state(name)[2]), before[name])
    whole = [[*prompt, tokens[row]] for row, prompt in enumerate(prompts) if row != 2]
    np.testing.assert_allclose(made, logits_alone(whole), atol=1e-5, rtol=0)
    # A decode step of all five rows is one of three rows and one of two.
    chosen = session.decode([1, 2, 3, 4, 5])
    assert chosen.shape == (5,)
    assert session.lengths.tolist() == [5, 10, 2, 14, 7]


def test_a_row_goes_on_with_several_tokens():
    session = uneven_session()
    prompt, more = texts([20])[0][:13], texts([20])[0][13:]
    for cut in (5, 13):
        session.reset()
        session.step([prompt[:cut]], [range(cut)], [2])
        # Up to 16 slots through a prefill program, beyond through decode programs.
        made = logits_of(session.step([[0, *prompt[cut:], *more]], [[-1, *range(cut, 20)]], [2]))
        np.testing.assert_allclose(made, logits_alone([[*prompt, *more]]), atol=1e-5, rtol=0)
    # Back to an earlier position: what stood after it is forgotten.
    made = logits_of(session.step([[3, 4]], [[6, 7]], [2]))
    np.testing.assert_allclose(made, logits_alone([[*prompt[:6], 3, 4]]), atol=1e-5, rtol=0)
    assert session.lengths.tolist() == [0, 0, 8, 0, 0]


@pytest.mark.parametrize(
    ("tokens", "positions", "ids", "message"),
    [
        ([[1, 2]], [[0]], [0], r"tokens \[1,2\] and positions \[1,1\]"),
        ([[1]], [[0]], [0, 1], r"seq_ids \[2\] for 1 rows"),
        ([[1]], [[0]], [5], "cache row 5 does not exist: the cache has 5 rows"),
        ([[1], [1]], [[0], [0]], [3, 3], "cache row 3 is given twice"),
        ([[1]], [[-1]], [0], "no row of the step has a token"),
        ([[1, 1]], [[0, 2]], [0], "positions of row 0 are not consecutive"),
        ([[1]], [[4]], [1], "row 0 starts at position 4, but cache row 1 holds 0 tokens"),
        ([[1] * 17], [range(17)], [0], "a prompt of 17 tokens is longer than the largest bucket"),
    ],
)
def test_a_step_that_contradicts_itself_is_refused(
    tokens: list[list[int]], positions: list[list[int]], ids: list[int], message: str
):
    session = uneven_session()
    session.reset()
    with pytest.raises(GraphgenError, match=message) as caught:
        session.step(tokens, positions, ids)
    assert caught.value.help
    assert not session.lengths.any()


def test_a_step_with_tokens_outside_of_the_vocabulary_is_refused():
    session = even_session()
    session.reset()
    for wrong in (session.token_ids, -1):
        for tokens, positions in ([[[5, wrong]], [[0, 1]]], [[[wrong]], [[0]]]):
            with pytest.raises(GraphgenError, match=f"seq_id 1 has the token {wrong};") as caught:
                session.step(tokens, positions, [1])
            assert caught.value.code == "GG0706"
        # Padding may be anything, and so may the token of a row that has ended.
        session.step([[wrong, 5]], [[-1, 0]], [1])
        session.step([[wrong]], [[1]], [1])


def test_a_prompt_longer_than_the_prefill_buckets_names_their_option():
    with pytest.raises(GraphgenError) as caught:
        uneven_session().prefill([[1] * 20])
    assert str(caught.value) == (
        "error[GG0701]: a prompt of 20 tokens is longer than the largest bucket, 16\n"
        "  help: compile for longer prompts, e.g. --max-context-length 24, and a bucket of as "
        "many tokens if --context-encoding-buckets is given"
    )


@pytest.mark.parametrize("tp", [1, 2])
def test_rows_of_all_programs_on_ranks(tp: int, tmp_path: Path):
    write_llama(tmp_path)
    config = CompileConfig(
        batch=(3,), prefill_batch=(1,), rows=4, context=(8,), tokens=(16,), tp=tp
    )
    session = open_session(tmp_path, config)
    prompts = texts([3, 8, 1])
    session.step(*padded(prompts, True), [3, 1, 0])
    made = logits_of(session.step([[5], [6], [7]], [[1], [8], [3]], [0, 1, 3]))
    whole = [[*prompts[2], 5], [*prompts[1], 6], [*prompts[0], 7]]
    np.testing.assert_allclose(made, logits_alone(whole), atol=1e-4, rtol=0)


def test_prompts_without_prefill_programs(tmp_path: Path):
    write_llama(tmp_path)
    session = open_session(tmp_path, CompileConfig(batch=(3,), context=(), tokens=(16,)))
    prompts = texts([3, 8, 1])
    for padding in ("left", "right"):
        session.reset()
        made = session.prefill(prompts, padding)
        np.testing.assert_allclose(made, logits_alone(prompts), atol=1e-5, rtol=0)
        assert session.lengths.tolist() == [3, 8, 1]


def test_other_weights_in_the_same_programs(tmp_path: Path):
    write_llama(tmp_path)
    session = open_session(tmp_path, CompileConfig(batch=(5,), context=(24,), tokens=(24,)))
    prompts = texts([3, 8, 1, 2, 5])
    first = session.prefill(prompts)
    values = dict(session.devices.values)
    programs = dict(session.programs._programs)
    scaled = {
        name: put([2 * np.asarray(value)]) if "lm_head.weight" in name else value
        for name, value in values.items()
    }
    session.load_weights(scaled)
    assert not session.lengths.any()
    np.testing.assert_allclose(session.prefill(prompts), 2 * first, atol=1e-5, rtol=0)
    assert session.programs._programs == programs
    name = "model.norm.weight"
    with pytest.raises(GraphgenError, match="1 weights of the programs are missing"):
        session.load_weights({key: value for key, value in values.items() if key != name})


def test_every_program_ahead_of_time(tmp_path: Path):
    write_llama(tmp_path)
    session = open_session(tmp_path, CompileConfig(batch=(2,), context=(8,), tokens=(8, 16)))
    session.warm_up()
    assert [report.name for report in session.programs.reports] == [
        *("prefill.b2.s8", "decode.b2.c8", "decode.b2.c16")
    ]
    assert not session.lengths.any()
    done = len(session.programs.reports)
    session.prefill(texts([3, 4]))
    assert len(session.programs.reports) == done


@pytest.mark.parametrize("in_flight", [False, True])
def test_programs_that_hand_on_tokens_are_compiled_where_steps_are_in_flight(
    in_flight: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made: list[str] = []
    make = ExecutableCache._make

    def noted(cache: ExecutableCache, name: str) -> object:
        made.append(name)
        return make(cache, name)

    monkeypatch.setattr(ExecutableCache, "_make", noted)
    write_llama(tmp_path)
    session = open_session(tmp_path, CompileConfig(batch=(2,), context=(8,), tokens=(8,)))
    session.warm_up(in_flight=in_flight)
    assert made == ["prefill.b2.s8", "decode.b2.c8", *["feed.b2.b2"] * in_flight]


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
    prefill, decode = (session.table.find(phase, 1, 4).name for phase in ("prefill", "decode"))
    order = [(when, name) for name in (prefill, decode) for when in ("before", "after")]
    assert recorder.events == order
    assert recorder.inputs[0]["tokens"][0, :3].tolist() == [5, 6, 7]
    assert recorder.inputs[1]["positions"].tolist() == [[3]]
    session.observers.remove(recorder)
    session.decode([9])
    assert len(recorder.events) == 4


CHUNKED = CompileConfig(
    batch=(2, 3), prefill_batch=(1, 2), rows=5, context=(8,), tokens=(12, 24), chunk=(2, 4)
)


@cache
def chunked_session(tp: int = 1) -> Session:
    """Prompts of up to eight tokens in one launch, longer ones in chunks of two and four."""
    with TemporaryDirectory() as folder:
        write_llama(Path(folder))
        return open_session(Path(folder), replace(CHUNKED, tp=tp))


class Launches:
    """Names of the programs that a session launches."""

    def __init__(self, session: Session) -> None:
        self.names: list[str] = []
        session.observers[:] = [self]

    def before_launch(self, session: Session, program: str, inputs: object) -> None:
        self.names.append(program)

    def after_launch(self, session: Session, program: str) -> None: ...


@pytest.mark.one_in(2)
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("left", [False, True])
def test_long_prompts_go_in_chunks(left: bool, tp: int):
    session = chunked_session(tp)
    session.reset()
    prompts = texts([19, 3, 11])
    made = logits_of(session.step(*padded(prompts, left), [4, 0, 2]))
    np.testing.assert_allclose(made, logits_alone(prompts), atol=1e-4, rtol=0)
    assert session.lengths.tolist() == [3, 0, 11, 0, 19]
    after = logits_of(session.step([[7], [8]], [[19], [3]], [4, 0]))
    whole = logits_alone([[*prompts[0], 7], [*prompts[1], 8]])
    np.testing.assert_allclose(after, whole, atol=1e-4, rtol=0)


def test_the_program_of_a_step_takes_the_fewest_tokens():
    session = chunked_session()
    session.reset()
    seen = Launches(session)
    text = texts([24])[0]
    session.step([text[:6]], [range(6)], [1])
    session.step([text[6:8]], [[6, 7]], [1])
    session.step([text[8:11]], [[8, 9, 10]], [1])
    made = session.step([text[11:18]], [range(11, 18)], [1])
    session.step([text[18:19]], [[18]], [1])
    assert seen.names == [
        "prefill.b1.s8",
        "prefill.b1.s2.c12",
        "prefill.b1.s4.c12",
        "prefill.b1.s4.c24",
        "prefill.b1.s4.c24",
        "decode.b2.c24",
    ]
    np.testing.assert_allclose(logits_of(made), logits_alone([text[:18]]), atol=1e-4, rtol=0)
    with pytest.raises(GraphgenError, match="a sequence of 25 tokens is longer than the largest"):
        session.step([[5] * 6], [range(19, 25)], [1])
    assert session.lengths[1] == 19


def test_prompts_of_any_length_without_prefill_programs(tmp_path: Path):
    write_llama(tmp_path)
    config = CompileConfig(batch=(3,), context=(), tokens=(24,), chunk=(4,))
    session = open_session(tmp_path, config)
    prompts = texts([3, 18, 1])
    for padding in ("left", "right"):
        session.reset()
        made = session.prefill(prompts, padding)
        np.testing.assert_allclose(made, logits_alone(prompts), atol=1e-4, rtol=0)
        assert session.lengths.tolist() == [3, 18, 1]
