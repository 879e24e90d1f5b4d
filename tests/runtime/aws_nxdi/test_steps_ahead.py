"""``async_mode`` in generate: steps start before the last tokens are read, which stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, GenerationConfig

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
    assert capsys.readouterr().err.count("async_mode = True: steps of generate start before") == 1


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


def test_what_the_host_reads_waits(llama: Checkpoint, capsys: pytest.CaptureFixture[str]):
    """Logits beside the tokens are read at every step, which the application notes."""
    model = opened(llama, True, output_logits=True)
    torch.manual_seed(0)
    made = adapter(model).generate(
        IDS[:1],
        attention_mask=torch.ones_like(IDS[:1]),
        max_new_tokens=3,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    assert len(made.logits) == 3
    assert capsys.readouterr().err.count("NeuronConfig.async_mode = True has no effect") == 1


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
