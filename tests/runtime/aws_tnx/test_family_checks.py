"""Families of transformers-neuronx beside transformers: what a run is called, and clear choices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from graphgen.runtime.aws_tnx import family_checks
from graphgen.runtime.aws_tnx.family_checks import FAMILIES, FamilyResult, check_families

FAMILY = {family.name: family for family in FAMILIES}


@pytest.mark.parametrize(
    ("family", "tp", "tokens", "error", "state"),
    [
        ("llama", 2, (1, 2), "", "equal"),
        ("llama", 2, (1, 3), "", "different"),
        ("llama", 2, (1,), "", "different"),
        ("llama", 2, (), "ValueError: no", "failed"),
        ("llama", 3, (), "ValueError: no", "refused"),
        ("llama", 3, (1, 2), "", "equal"),
        ("bloom", 3, (), "ValueError: no", "refused"),
        ("gpt-j", 2, (1, 3), "", "library differs"),
        ("gpt-j", 2, (1, 2), "", "equal"),
        ("gpt-j", 4, (), "ValueError: no", "failed"),
    ],
)
def test_a_run_is_called_by_its_tokens(
    family: str, tp: int, tokens: tuple[int, ...], error: str, state: str
):
    assert FamilyResult(FAMILY[family], tp, tokens, (1, 2), 0.1, error).state == state


@pytest.mark.parametrize("name", FAMILY)
def test_no_choice_of_a_mini_model_is_close(name: str, tmp_path: Path):
    family = FAMILY[name]
    wanted = family_checks._wanted(family, str(tmp_path))
    assert len({*wanted}) >= family_checks.VARIED
    kind: Any = getattr(transformers, family.model)
    # The type that the tokens were chosen in: how bf16 is summed differs between processors.
    dtype = torch.bfloat16 if family.amp == "bf16" else torch.float32
    model: Any = kind.from_pretrained(tmp_path, dtype=dtype).eval()
    tokens = list(family_checks.PROMPT)
    for token in wanted:
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, -1].float()
        if not family.stops:
            logits[family_checks.END] = float("-inf")
        best, second = logits.topk(2).values.tolist()
        assert best - second > family_checks.CLEAR / 2 * abs(best)
        assert int(logits.argmax()) == token
        tokens.append(token)


def test_a_refused_number_of_ranks_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch):
    def tokens(family: object, folder: str, tp: int) -> tuple[int, ...]:
        if tp == 3:
            raise ValueError("tp_degree needs to be 8\nor more")
        return (1, 2)

    monkeypatch.setattr(family_checks, "_tokens", tokens)
    monkeypatch.setattr(family_checks, "_wanted", lambda *_: (1, 2))
    monkeypatch.setattr(family_checks, "FAMILIES", [replace(FAMILY["llama"], name="one")])
    found = list(check_families([], [1, 3], lambda _: None))
    assert [item.state for item in found] == ["equal", "refused"]
    assert found[1].error == "ValueError: tp_degree needs to be 8"
