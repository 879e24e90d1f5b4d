"""The requests of lm-eval 0.4.13 (``local-completions``), as it sends them, and its readings."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.runtime.server.served import small_engine
from tests.runtime.server.test_answers import answer
from tests.runtime.server.test_settings import first_logits, prompt_logs

# Recorded from a run of six continuations and three generations in batches of four, with this
# model's tokenizer; each prompt is a context and a continuation.
LIKELIHOODS: tuple[tuple[dict[str, Any], list[int]], ...] = (
    (
        {
            "model": "small",
            "prompt": [
                [263, 222, 85, 291, 222, 85, 73, 83, 70, 70],
                [286, 295, 268, 222, 85, 291, 222, 79, 283, 264],
                [80, 294, 314, 69, 222, 85, 88, 80],
                [263, 222, 85, 291, 317, 295],
            ],
            "temperature": 0,
            "max_tokens": 1,
            "logprobs": 1,
            "seed": 1234,
            "echo": True,
        },
        [4, 3, 4, 4],
    ),
    (
        {
            "model": "small",
            "prompt": [[80, 294, 314, 69, 268], [286, 295, 268, 222, 20]],
            "temperature": 0,
            "max_tokens": 1,
            "logprobs": 1,
            "seed": 1234,
            "echo": True,
        },
        [4, 3],
    ),
)
GENERATION: dict[str, Any] = {
    "prompt": [[286, 295, 268], [80, 294, 314, 69], [263, 222, 85, 291]],
    "model": "small",
    "max_tokens": 8,
    "temperature": 0.0,
    "stop": ["\n", ".", "<|end|>"],
    "seed": 1234,
}


def read(made: dict[str, Any], contexts: list[int], new: int) -> list[tuple[float, bool]]:
    """The sum and the greediness of each continuation, by lm-eval's rule; it skips new tokens."""
    found: list[tuple[float, bool]] = []
    for choice, start in zip(
        sorted(made["choices"], key=itemgetter("index")), contexts, strict=True
    ):
        given = choice["logprobs"]
        end = len(given["token_logprobs"]) - new
        chosen, top = given["token_logprobs"][start:end], given["top_logprobs"][start:end]
        greedy = all(one == max(best.values()) for one, best in zip(chosen, top, strict=True))
        found.append((sum(chosen), greedy))
    return found


def greedy(prompt: list[int], start: int) -> bool:
    """Whether a continuation has the most probable token at each place."""
    return all(
        int(np.argmax(first_logits(prompt[:place]))) == prompt[place]
        for place in range(start, len(prompt))
    )


# It asks for one new token and skips it; none is enough.
@pytest.mark.parametrize("new", [0, 1])
@pytest.mark.parametrize(("body", "contexts"), LIKELIHOODS)
def test_continuations_are_as_likely_as_the_model_says(
    client: TestClient, body: dict[str, Any], contexts: list[int], new: int
):
    made = answer(client, **{**body, "max_tokens": new})
    for (total, is_greedy), prompt, start in zip(
        read(made, contexts, new), body["prompt"], contexts, strict=True
    ):
        assert total == pytest.approx(sum(prompt_logs(prompt)[start - 1 :]), abs=1e-3)
        assert is_greedy == greedy(prompt, start)


def test_a_greedy_continuation_is_read_as_one(client: TestClient):
    body, _ = LIKELIHOODS[0]
    context = body["prompt"][0][:4]
    best = int(np.argmax(first_logits(context)))
    made = answer(client, **{**body, "prompt": [[*context, best]]})
    ((total, is_greedy),) = read(made, [4], 1)
    assert is_greedy
    assert math.isclose(total, prompt_logs([*context, best])[-1], abs_tol=1e-4)


def test_generations_are_the_models_up_to_a_stop(client: TestClient):
    tokenizer = small_engine().tokenizer
    made = answer(client, **GENERATION)
    choices = sorted(made["choices"], key=itemgetter("index"))
    for prompt, choice in zip(GENERATION["prompt"], choices, strict=True):
        tokens = [*prompt]
        while len(tokens) < len(prompt) + GENERATION["max_tokens"]:
            tokens.append(int(np.argmax(first_logits(tokens))))
            if tokens[-1] in tokenizer.eos_ids:
                break
        text = tokenizer.decode(tokens).removeprefix(tokenizer.decode(prompt))
        ends = [text.index(stop) for stop in GENERATION["stop"] if stop in text]
        assert choice["text"] == text[: min(ends, default=len(text))]
