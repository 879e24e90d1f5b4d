"""The loop of generation over a model whose logits are given: choices, padding, what is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch

from graphgen.runtime.aws_nxdi.generation_model import GenerationModel, GenerationSettings
from graphgen.runtime.aws_nxdi.prompt_rows import prompt_rows
from graphgen.runtime.aws_nxdi.token_loop import TokenLoop

VOCABULARY, PAD = 7, 4
PROMPTS = torch.tensor([[3, 4, 5], [1, 2, 9]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


@dataclass
class Output:
    logits: torch.Tensor | None
    tokens: torch.Tensor | None = None


@dataclass
class Scripted:
    """A model whose logits f32 [B,1,V] are drawn; notes its arguments and results."""

    seed: int = 0
    calls: list[tuple[torch.Tensor, dict[str, Any]]] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    resets: int = 0
    made: list[torch.Tensor] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    given: list[torch.Tensor] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]

    def order_rows(self, sources: object) -> None:
        raise AssertionError(sources)

    def reset(self) -> None:
        self.resets += 1

    def forward(self, ids: torch.Tensor, **given: object) -> Output:
        self.calls.append((ids, given))
        random = torch.Generator().manual_seed(self.seed + len(self.calls))
        logits = torch.randn((2, 1, VOCABULARY), generator=random) * 3
        self.made.append(logits.clone())
        self.given.append(logits)
        return Output(logits)


@dataclass
class Settings:
    do_sample: bool = False
    return_dict_in_generate: bool = False
    output_scores: bool = False
    output_logits: bool = False


def loop(model: Scripted, steps: int = 4, **settings: bool) -> TokenLoop:
    """Ends after a number of tokens."""
    done = torch.ones(2, dtype=torch.long)

    def criteria(ids: torch.Tensor, scores: object) -> torch.Tensor:
        return done * int(ids.shape[1] == PROMPTS.shape[1] + steps)

    return TokenLoop(
        cast(GenerationModel, model),
        prompt_rows(PROMPTS, MASK),
        [],
        criteria,
        cast(GenerationSettings, Settings(**settings)),
        torch.tensor(PAD),
        None,
        None,
    )


def test_greedy_tokens_are_the_largest_and_positions_go_on_from_each_prompt():
    model = Scripted()
    out = loop(model).run()
    assert torch.equal(out[:, :3], PROMPTS)
    best = torch.stack([logits[:, -1].argmax(-1) for logits in model.made], 1)
    assert torch.equal(out[:, 3:], best)
    assert model.resets == 1
    first, *later = model.calls
    assert first[0].shape == (2, 3)
    assert first[1]["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    for step, (ids, given) in enumerate(later):
        assert torch.equal(ids, best[:, step : step + 1])
        assert given["position_ids"].tolist() == [[3 + step], [2 + step]]
        assert given["seq_ids"].tolist() == [0, 1]


def test_drawn_tokens_are_those_of_one_multinomial_draw_a_step():
    model = Scripted()
    torch.manual_seed(5)
    out = loop(model, do_sample=True).run()
    torch.manual_seed(5)
    drawn = [torch.multinomial(torch.softmax(logits[:, -1], -1), 1)[:, 0] for logits in model.made]
    assert torch.equal(out[:, 3:], torch.stack(drawn, 1))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("asked", ["output_scores", "output_logits"])
@pytest.mark.parametrize("factor", [1, -2])
def test_scores_and_logits_are_kept_where_they_are_asked_for(whole: bool, asked: str, factor: int):
    model = Scripted()
    made = loop(model, return_dict_in_generate=whole, **{asked: True})

    def times(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.mul_(factor)

    made.processors = [times] if factor != 1 else []
    out = made.run()
    kept, other = made.scores, made.logits
    if asked == "output_logits":
        kept, other = other, kept
    assert other is None
    best = torch.stack([(logits[:, -1] * factor).argmax(-1) for logits in model.made], 1)
    assert torch.equal(out[:, 3:], best)
    # What the model has given is its own, and stays as it was.
    assert all(torch.equal(a, b) for a, b in zip(model.made, model.given, strict=True))
    if not whole:
        assert kept is None
        return
    assert kept is not None
    for scores, given in zip(kept, model.made, strict=True):
        assert torch.equal(scores, given[:, -1] * factor)


def test_a_row_that_is_done_gets_padding_until_the_last_one_is():
    model = Scripted()
    made = loop(model)

    def first_row_ends_early(ids: torch.Tensor, scores: object) -> torch.Tensor:
        new = ids.shape[1] - PROMPTS.shape[1]
        return torch.tensor([int(new >= 2), int(new >= 4)])

    made.criteria = first_row_ends_early
    out = made.run()
    best = torch.stack([logits[:, -1].argmax(-1) for logits in model.made], 1)
    assert torch.equal(out[1, 3:], best[1])
    assert out[0, 3:].tolist() == [*best[0, :2].tolist(), PAD, PAD]
    assert [ids[0, 0].item() for ids, _ in model.calls[1:]] == out[0, 3:-1].tolist()
