"""Generation: what is streamed, and what ends a sequence."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from tests.oracles.small_gguf import write_small_model

TEXTS = ("The llama said", "It's 2024")
SLOTS = 64


@cache
def engine() -> Engine:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.gguf"
        write_small_model(path)
        opened, _ = open_engine(
            str(path),
            EngineOptions(batch=3, max_len=SLOTS),
            lambda tokenizer: [tokenizer.encode(text) for text in TEXTS],
            8,
            Silent(),
        )
        return opened


def prompts() -> list[list[int]]:
    return [engine().tokenizer.encode(text) for text in TEXTS]


def test_what_is_streamed_is_the_final_text():
    streams = [engine().tokenizer.stream() for _ in TEXTS]
    pieces: list[list[str]] = [[], []]
    order: list[tuple[int, int]] = []

    def on_token(row: int, token: int) -> None:
        order.append((row, token))
        pieces[row].append(streams[row].push(token))

    done = engine().generate(prompts(), GenerationRequest(20), on_token).completions
    for row, completion in enumerate(done):
        assert [token for at, token in order if at == row] == completion.tokens
        text = "".join(pieces[row]) + streams[row].flush()
        assert text == engine().tokenizer.decode(completion.tokens)
        assert text
    # Row by row in each step, as soon as they are chosen.
    assert [row for row, _ in order] == [0, 1] * 20


@pytest.mark.parametrize("size", [1, 2, 7])
def test_max_new_tokens(size: int):
    whole = engine().generate(prompts(), GenerationRequest(20)).completions
    result = engine().generate(prompts(), GenerationRequest(size))
    assert [done.tokens for done in result.completions] == [row.tokens[:size] for row in whole]
    assert {done.finish_reason for done in result.completions} == {"length"}
    assert len(result.timings.steps) == size - 1


def test_eos_ends_its_row_alone_and_is_part_of_the_output():
    free = engine().generate(prompts(), GenerationRequest(20)).completions
    # A token of row 0 that row 1 does not choose, as the end of a sequence.
    end = next(token for token in free[0].tokens if token not in free[1].tokens)
    at = free[0].tokens.index(end)
    ended = engine().generate(prompts(), GenerationRequest(20, eos_ids={end})).completions
    assert ended[0].tokens == free[0].tokens[: at + 1]
    assert ended[0].finish_reason == "eos"
    assert ended[1] == free[1]
    assert free[0].finish_reason == free[1].finish_reason == "length"


def test_everybody_at_the_end_stops_the_steps():
    free = engine().generate(prompts(), GenerationRequest(20)).completions
    ends = {done.tokens[0] for done in free}
    result = engine().generate(prompts(), GenerationRequest(20, eos_ids=ends))
    assert [done.tokens for done in result.completions] == [done.tokens[:1] for done in free]
    assert result.timings.steps == []


def test_a_full_cache_ends_the_sequence():
    long = [3 + n % 300 for n in range(SLOTS - 4)]
    (done, other) = engine().generate([long, prompts()[0]], GenerationRequest(20)).completions
    # The prompt and all new tokens but the last, which needs no slot, fill the row.
    assert len(done.tokens) == 5
    assert done.finish_reason == "length"
    assert other == engine().generate([prompts()[0]], GenerationRequest(20)).completions[0]
    (exact,) = engine().generate([long + [5] * 4], GenerationRequest(20)).completions
    assert (len(exact.tokens), exact.finish_reason) == (1, "length")


def test_a_second_call_starts_anew():
    first = engine().generate(prompts(), GenerationRequest(10)).completions
    engine().generate([prompts()[1]], GenerationRequest(5))
    assert engine().generate(prompts(), GenerationRequest(10)).completions == first
    assert [
        *reversed(engine().generate(prompts()[::-1], GenerationRequest(10)).completions)
    ] == first


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            [[]],
            "error[GG0702]: prompt 1 is empty\n  help: a prompt needs at least one token",
        ),
        (
            [[1], [2], []],
            "error[GG0702]: prompt 3 is empty\n  help: a prompt needs at least one token",
        ),
        ([], "error[GG0702]: there is no prompt\n  help: give --prompt, or --chat alone"),
        (
            [[1], [2, 330]],
            "error[GG0706]: prompt 2 has the token 330; the token ids of this model are 0 to 329\n"
            "  help: encode the text with the tokenizer of this model",
        ),
        (
            [[1]] * 4,
            "error[GG0705]: 4 prompts, but the programs were compiled for 3 rows\n"
            "  help: give fewer prompts, or make another artifact",
        ),
        (
            [[1], [2] * 65],
            "error[GG0701]: a prompt of 65 tokens is longer than the largest bucket, 64\n"
            "  help: compile for longer sequences, e.g. --max-len 128",
        ),
    ],
)
def test_prompts_that_no_program_answers(given: list[list[int]], text: str):
    with pytest.raises(GraphgenError) as caught:
        engine().generate(given, GenerationRequest(4))
    assert str(caught.value) == text
