"""The distribution of two drawn tokens, against the model's own in transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

# 15 degrees of freedom: 37.7 is exceeded by one run in a thousand.
MOST_CHI = 37.7


def chi_of_pairs(
    adapter: Any, reference: Any, ids: torch.Tensor, batch: int, calls: int, **proposals: Any
) -> float:
    """Chi-square of the first two tokens, of which the second is a proposal or replaces one.

    Args:
        adapter: generates with ``do_sample``, top_k 4 and temperature 1.5.
        reference: the model in transformers.
        ids: the prompt, integers [1,S].
        batch: sequences of a call.
        calls: number of calls.
        proposals: further arguments of ``generate``.
    """
    many = ids.repeat(batch, 1)
    how: dict[str, Any] = {"do_sample": True, "top_k": 4, "top_p": 1.0, "temperature": 1.5}
    how |= {"max_new_tokens": 3, "eos_token_id": None, "pad_token_id": 0}
    inputs = {"input_ids": many, "attention_mask": torch.ones_like(many)}
    torch.manual_seed(0)
    drawn = [adapter.generate(**inputs, **how, **proposals)[:, -3:-1] for _ in range(calls)]
    expected, counts = np.zeros((4, 4)), np.zeros((4, 4))
    places: dict[tuple[int, int], tuple[int, int]] = {}
    with torch.no_grad():
        first = reference(ids).logits[0, -1].topk(4)
        share = torch.softmax(first.values / 1.5, 0)
        for n, token in enumerate(first.indices.tolist()):
            longer = torch.cat([ids, torch.tensor([[token]])], 1)
            second = reference(longer).logits[0, -1].topk(4)
            expected[n] = (share[n] * torch.softmax(second.values / 1.5, 0)).numpy()
            places |= {(token, other): (n, m) for m, other in enumerate(second.indices.tolist())}
    for one, other in torch.cat(drawn).tolist():
        counts[places[one, other]] += 1
    total = counts.sum()
    return float(((counts - total * expected) ** 2 / (total * expected)).sum())
