"""Every family in bf16 is as near to the exact logits as transformers is in bf16."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from graphgen.config.compile_config import CompileConfig
from graphgen.models import FAMILIES
from tests.oracles.families import ORACLES, save
from tests.oracles.sessions import open_session

LENGTHS = (5, 17, 30)
STEPS = 4
# Two roundings in another order are as far from the exact logits as each other, up to chance.
MOST = 1.25


def logits_of(model: PreTrainedModel, texts: list[list[int]]) -> np.ndarray:
    """Logits of the last prompt token and of the next ones, [rows, 1 + STEPS, V]."""
    with torch.no_grad():
        rows = [model(torch.tensor([text]), use_cache=False).logits[0] for text in texts]
    return np.stack([row[-STEPS - 1 :].double().numpy() for row in rows])


@pytest.mark.every_family
@pytest.mark.one_in(6)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_within_the_rounding_of_bf16(family: str, tmp_path: Path):
    model = ORACLES[family].model(initializer_range=0.1)
    save(model, tmp_path)
    narrow = deepcopy(model)
    narrow.bfloat16()
    # The same numbers, computed exactly.
    exact = deepcopy(narrow)
    exact.double()
    random = np.random.default_rng(5)
    texts = [random.integers(0, 61, size + STEPS).tolist() for size in LENGTHS]
    session = open_session(
        tmp_path, CompileConfig(dtype="bf16").serving(batch=len(LENGTHS), max_len=64)
    )
    made = [session.prefill([text[:size] for text, size in zip(texts, LENGTHS, strict=True)])]
    for step in range(STEPS):
        column = [text[size + step] for text, size in zip(texts, LENGTHS, strict=True)]
        made.append(session.decode(column))
    wanted = logits_of(exact, texts)
    ours = distance(np.stack(made, 1).astype(np.float64), wanted)
    assert ours <= MOST * distance(logits_of(narrow, texts), wanted)


def distance(logits: np.ndarray, wanted: np.ndarray) -> float:
    """The root mean square of a token's differences; the median of all tokens.

    Rounding sends some token of a random mixture to another expert, and its logits far away.
    """
    return float(np.median(np.sqrt(np.mean(np.square(logits - wanted), axis=-1))))
