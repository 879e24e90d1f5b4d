"""Applications of random configurations, opened in another process, give transformers' tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.matrix.applications import FAMILIES, NUMBERS, STEPS, Drawn, draws, tried, wrong_tokens
from tests.oracles.families import ORACLES


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_an_application_gives_the_tokens_of_transformers(number: int):
    row = tried(number)
    assert row["errors"] == [], f"{row['family']}, {row['variant']}: {row['attributes']}"


def test_a_number_gives_the_same_each_time_and_each_family_has_one():
    made = [next(draws(number)) for number in range(NUMBERS)]
    assert made == [next(draws(number)) for number in range(NUMBERS)]
    assert {draw.family for draw in made} == set(FAMILIES)
    assert {draw.attributes["tp_degree"] for draw in made} == {1, 2, 4}
    assert max(len(draw.rounds[0]["prompts"]) for draw in made) == 3


def greedy(model: Any, prompt: list[int]) -> list[int]:
    """The best token after a prompt, and after each token that follows."""
    import torch

    text = list(prompt)
    for _ in range(STEPS + 1):
        with torch.no_grad():
            text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    return text[len(prompt) :]


def test_wrong_tokens_are_seen():
    model, prompt = ORACLES["llama"].model(), [3, 1, 4]
    right = greedy(model, prompt)
    draw = Drawn("llama", "plain", {}, [{"rows": [0], "prompts": [prompt]}])
    assert wrong_tokens(model, draw, [[right]]) == []
    for step in range(STEPS + 1):
        wrong = np.array(right)
        wrong[step] = (wrong[step] + 1) % 61
        told = wrong_tokens(model, draw, [[wrong.tolist()]])
        assert len(told) == 1
        assert f"step {step}: {wrong[step]}, not {right[step]} by" in told[0]
