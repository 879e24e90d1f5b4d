"""``async_mode``: steps start before the last tokens are read, which stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, GenerationConfig

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.generate_outputs import get_generate_outputs
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.session.pending_step import PendingStep
from graphgen.runtime.session.session import Session
from tests.oracles.applications import open_application
from tests.runtime.aws_nxdi.conftest import Checkpoint

SLOTS = 24
DRAWS = {"do_sample": True, "top_k": 5}
IDS = torch.tensor([[5, 6, 7, 8], [0, 9, 10, 11], [0, 0, 12, 13]])


def opened(llama: Checkpoint, mode: bool, **options: Any) -> Any:
    given = {"seq_len": SLOTS, "on_device_sampling_config": {}, "async_mode": mode, **options}
    return open_application(llama.path, **given)


def adapter(model: Any) -> Any:
    return HuggingFaceGenerationAdapter(model)


def generated(model: Any, **options: Any) -> list[list[int]]:
    """Tokens of three padded prompts; the same random numbers each time."""
    torch.manual_seed(4)
    given = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    mask = (IDS != 0).long()
    return adapter(model).generate(IDS, attention_mask=mask, **{**given, **options}).tolist()


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ({}, {}),
        ({"on_device_sampling_config": DRAWS}, {"do_sample": True, "top_k": 5}),
        pytest.param({"tp_degree": 2}, {}, marks=pytest.mark.slow),
        pytest.param(
            {"is_block_kv_layout": True, "pa_block_size": 4, "pa_num_blocks": 32},
            {},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["best", "drawn", "two ranks", "blocks"],
)
def test_tokens_are_those_of_steps_one_by_one(
    options: dict[str, Any], how: dict[str, Any], llama: Checkpoint
):
    on, off = (opened(llama, mode, **options) for mode in (True, False))
    tokens = generated(off, **how)
    assert generated(on, **how) == tokens
    # A row that ends, all rows that end, and a second call.
    ends = [tokens[0][9], tokens[1][7], tokens[2][11]]
    for end in (ends[0], ends):
        assert generated(on, **how, eos_token_id=end) == generated(off, **how, eos_token_id=end)
    # To the last slot: a step has no further one to start.
    assert generated(on, **how, max_new_tokens=SLOTS - 3) == generated(
        off, **how, max_new_tokens=SLOTS - 3
    )


def test_a_step_starts_before_the_last_one_is_read(
    llama: Checkpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    model, seen = opened(llama, True), list[str]()
    start, read = Session.start, PendingStep.read

    def started(session: Session, *args: Any, **given: Any) -> PendingStep:
        seen.append("start")
        return start(session, *args, **given)

    def was_read(step: PendingStep) -> Any:
        seen.append("read")
        return read(step)

    monkeypatch.setattr(Session, "start", started)
    monkeypatch.setattr(PendingStep, "read", was_read)
    generated(model, max_new_tokens=4)
    assert seen == ["start", "start", "read", "start", "read", "read"]
    generated(model, max_new_tokens=4)
    assert capsys.readouterr().err.count("async_mode = True: a step starts before") == 1


def test_the_cache_goes_on_where_a_sequence_ended(llama: Checkpoint):
    model = opened(llama, True)
    plain = generated(model)
    end = plain[0][6]
    first = generated(model, eos_token_id=[end, plain[1][5], plain[2][5]])
    sizes = [len(first[0]) - 1] * 3
    assert model.running().session.lengths[0] == sizes[0]
    out = model.forward(torch.tensor([[end]]), seq_ids=torch.tensor([0]))
    assert out.tokens.item() == plain[0][len(first[0])]


def test_a_step_that_no_row_needs_takes_no_blocks(llama: Checkpoint):
    # Two blocks a row: rows that end with their fifth token need no third.
    blocks = {"is_block_kv_layout": True, "pa_block_size": 4, "pa_num_blocks": 6, "batch_size": 3}
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]])
    given: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "pad_token_id": 0}
    on, off = [adapter(opened(llama, mode, **blocks)) for mode in (True, False)]
    ends = off.generate(ids, max_new_tokens=5, eos_token_id=None, **given)[:, -1].tolist()
    made = [x.generate(ids, max_new_tokens=12, eos_token_id=ends, **given) for x in (on, off)]
    assert made[0].tolist() == made[1].tolist()


def test_logits_beside_the_tokens_are_those_of_steps_one_by_one(llama: Checkpoint):
    made: list[Any] = []
    for mode in (True, False):
        out = adapter(opened(llama, mode, output_logits=True)).generate(
            IDS[:1],
            attention_mask=torch.ones_like(IDS[:1]),
            max_new_tokens=5,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        made.append(out)
    assert made[0].sequences.tolist() == made[1].sequences.tolist()
    assert len(made[0].logits) == 5
    for on, off in zip(made[0].logits, made[1].logits, strict=True):
        torch.testing.assert_close(on, off)


def test_get_generate_outputs_starts_steps_ahead(llama: Checkpoint, tmp_path: Path):
    tokenizer = AutoTokenizer.from_pretrained(llama.path, pad_token="!")
    texts = [
        get_generate_outputs(
            opened(llama, mode),
            ["the cat", "that", "on the mat"],
            tokenizer,
            is_hf=False,
            generation_config=GenerationConfig(max_new_tokens=6, pad_token_id=0),
        )[1]
        for mode in (True, False)
    ]
    assert texts[0] == texts[1]


def stepped(model: Any, plan: list[dict[int, int | None]]) -> list[list[int]]:
    """Tokens of calls of ``forward``: each maps rows of the cache to a token, or to the last one.

    Three prompts go first, in rows 0 to 2.
    """
    model.reset()
    model.random = np.random.default_rng(3).random
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 0], [12, 13, 0, 0]])
    mask = (ids != 0).long()
    made = [model.forward(ids, attention_mask=mask).tokens.tolist()]
    last, lengths = dict(enumerate(made[0])), dict(enumerate(mask.sum(1).tolist()))
    for call in plan:
        rows = [*call]
        tokens = [last[row] if (token := call[row]) is None else token for row in rows]
        out = model.forward(
            torch.tensor(tokens)[:, None],
            seq_ids=torch.tensor(rows),
            position_ids=torch.tensor([lengths[row] for row in rows])[:, None],
        )
        made.append(out.tokens.tolist())
        last |= dict(zip(rows, made[-1], strict=True))
        lengths |= {row: lengths[row] + 1 for row in rows}
    return made


ON: dict[int, int | None] = {0: None, 1: None, 2: None}
PLANS: dict[str, list[dict[int, int | None]]] = {
    "on": [ON] * 6,
    "other tokens": [ON, ON, {0: 3, 1: None, 2: None}, ON, {0: 4, 1: 5, 2: 6}, ON],
    "other rows": [ON, ON, {1: None}, {1: None}, {0: None, 2: None}, ON, {2: None, 0: None}, ON],
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_block_kv_layout": True, "pa_block_size": 4, "pa_num_blocks": 32},
        pytest.param({"tp_degree": 2}, marks=pytest.mark.slow),
    ],
    ids=["slots", "blocks", "two ranks"],
)
def test_calls_of_forward_give_what_they_give_one_by_one(
    options: dict[str, Any], plan: str, llama: Checkpoint
):
    on, off = (opened(llama, mode, batch_size=3, **options) for mode in (True, False))
    assert stepped(on, PLANS[plan]) == stepped(off, PLANS[plan])
    assert on.running().session.lengths.tolist() == off.running().session.lengths.tolist()


def test_drawn_tokens_of_forward_have_the_same_random_numbers(llama: Checkpoint):
    given = {"batch_size": 3, "on_device_sampling_config": DRAWS}
    on, off = (opened(llama, mode, **given) for mode in (True, False))
    assert stepped(on, [ON] * 8) == stepped(off, [ON] * 8)


def test_forward_starts_the_next_step_before_it_reads(
    llama: Checkpoint, monkeypatch: pytest.MonkeyPatch
):
    model, seen = opened(llama, True, batch_size=3), list[str]()
    start, read = Session.start, PendingStep.read
    monkeypatch.setattr(Session, "start", lambda *a, **g: seen.append("start") or start(*a, **g))

    def was_read(step: PendingStep) -> Any:
        if step.on_devices:
            seen.append("read")
        return read(step)

    monkeypatch.setattr(PendingStep, "read", was_read)
    stepped(model, [ON] * 4)
    # The first call of one more token runs at once; each later one reads the step before its own.
    assert seen == ["start", "start", "read", "start", "read", "start", "read"]


def test_a_call_after_a_refused_one_is_answered_by_the_started_step(llama: Checkpoint):
    on, off = (opened(llama, mode, batch_size=3) for mode in (True, False))
    made: list[list[list[int]]] = []
    for model in (on, off):
        first = stepped(model, [ON, ON])
        with pytest.raises(GraphgenError, match="adapter_ids"):
            model.forward(torch.tensor([[1]]), seq_ids=torch.tensor([0]), adapter_ids=["none"])
        out = model.forward(torch.tensor(first[-1])[:, None])
        made.append([*first, out.tokens.tolist()])
    assert made[0] == made[1]


def test_the_last_slot_and_the_last_block_start_no_step(llama: Checkpoint):
    blocks = {"is_block_kv_layout": True, "pa_block_size": 4, "pa_num_blocks": 6, "batch_size": 3}
    on, off = (opened(llama, mode, **blocks) for mode in (True, False))
    # Rows 0 to 2 hold two blocks each once row 0 has 8 tokens: a ninth finds none.
    assert stepped(on, [ON] * 4) == stepped(off, [ON] * 4)
    on, off = (opened(llama, mode, batch_size=3) for mode in (True, False))
    assert stepped(on, [ON] * (SLOTS - 4)) == stepped(off, [ON] * (SLOTS - 4))


def test_what_a_held_session_does_is_not_taken_back(llama: Checkpoint):
    made: list[Any] = []
    for mode in (True, False):
        model = opened(llama, mode, batch_size=3)
        stepped(model, [ON])
        session = model.running().session
        model.forward(torch.tensor([[1], [2]]), seq_ids=torch.tensor([0, 1]))
        session.step([[12, 13]], [[0, 1]], [2])
        out = model.forward(torch.tensor([[3], [4]]), seq_ids=torch.tensor([0, 1]))
        made.append((out.tokens.tolist(), model.running().session.lengths.tolist()))
    assert made[0] == made[1]


def test_a_step_that_cannot_be_read_is_asked_for_again(
    llama: Checkpoint, monkeypatch: pytest.MonkeyPatch
):
    on, off = (opened(llama, mode, batch_size=3) for mode in (True, False))
    last, wanted = stepped(on, [ON, ON])[-1], stepped(off, [ON, ON, ON])[-1]
    read, given = PendingStep.read, torch.tensor(last)[:, None]

    def failing(step: PendingStep) -> Any:
        if step.on_devices:
            monkeypatch.setattr(PendingStep, "read", read)
            raise RuntimeError("lost")
        return read(step)

    monkeypatch.setattr(PendingStep, "read", failing)
    with pytest.raises(RuntimeError, match="lost"):
        on.forward(given)
    assert on.forward(given).tokens.tolist() == wanted
    assert on.running().session.lengths.tolist() == off.running().session.lengths.tolist()


def test_other_random_numbers_take_the_step_back(llama: Checkpoint):
    given = {"batch_size": 3, "on_device_sampling_config": DRAWS}
    made: list[Any] = []
    for mode in (True, False):
        model = opened(llama, mode, **given)
        last = stepped(model, [ON, ON])[-1]
        model.random = np.random.default_rng(11).random
        made.append(model.forward(torch.tensor(last)[:, None]).tokens.tolist())
    assert made[0] == made[1]


def test_generate_that_fails_leaves_no_step(llama: Checkpoint):
    def failing(ids: torch.Tensor, scores: object) -> torch.Tensor:
        raise RuntimeError("stopped")

    lengths: list[list[int]] = []
    for mode in (True, False):
        model = opened(llama, mode)
        calls: list[int] = []

        def later(ids: torch.Tensor, scores: object, calls: list[int] = calls) -> torch.Tensor:
            calls.append(1)
            return (
                failing(ids, scores) if len(calls) > 2 else torch.zeros(len(ids), dtype=torch.bool)
            )

        with pytest.raises(RuntimeError, match="stopped"):
            adapter(model).generate(
                IDS[:1], max_new_tokens=6, stopping_criteria=[later], pad_token_id=0
            )
        lengths.append(model.running().session.lengths.tolist())
    assert lengths[0] == lengths[1]
