"""Open the folder of a compiled application in this process, and print tokens of greedy decoding.

    python -m tests.matrix.opened_application FOLDER < rounds.json

Standard input is ``{"family": ..., "steps": n, "rounds": [...]}``; a round has ``rows``, the cache
row of each prompt, and ``prompts``. The last line is JSON: for each round and prompt the tokens
after it, one of the prompt and one of each step.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM
from graphgen.runtime.progress import Silent

# A round of prompts: ``rows`` and ``prompts``.
Round = Mapping[str, Any]


def padded_prompts(prompts: Sequence[Sequence[int]], side: str) -> dict[str, Any]:
    """``input_ids``, ``attention_mask`` and ``position_ids``, i64 [B,S], padded on a side.

    Without positions a prompt of one token would continue what its row holds.
    """
    width = max(map(len, prompts))
    ids, mask = np.zeros((2, len(prompts), width), np.int64)
    for row, prompt in enumerate(prompts):
        start = width - len(prompt) if side == "left" else 0
        ids[row, start : start + len(prompt)] = prompt
        mask[row, start : start + len(prompt)] = 1
    positions = np.where(mask == 1, mask.cumsum(1) - 1, 1)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}


def best_tokens(output: Any) -> list[int]:
    """The best token of each row, chosen by the programs or from their logits."""
    if output.tokens is not None:
        return [int(token) for token in output.tokens]
    return [int(token) for token in np.asarray(output.logits)[:, -1].argmax(axis=-1)]


def tokens_of(application: Any, given: Round, steps: int) -> list[list[int]]:
    """The tokens after each prompt of a round: one of the prompt, one of each step."""
    rows, prompts = np.array(given["rows"]), given["prompts"]
    side = application.neuron_config.value("padding_side")
    made = [best_tokens(application.forward(**padded_prompts(prompts, side), seq_ids=rows))]
    lengths = np.array([len(prompt) for prompt in prompts])
    for step in range(steps):
        output = application.forward(
            input_ids=np.array(made[-1])[:, None],
            position_ids=(lengths + step)[:, None],
            seq_ids=rows,
        )
        made.append(best_tokens(output))
    return [list(each) for each in zip(*made, strict=True)]


def main(folder: str) -> None:
    """Open the folder and run the rounds of standard input."""
    asked = json.load(sys.stdin)
    application = CAUSAL_LM[asked["family"]](folder)
    application.progress = Silent()
    application.load(folder)
    made = [tokens_of(application, each, asked["steps"]) for each in asked["rounds"]]
    print(json.dumps(made))


if __name__ == "__main__":
    main(sys.argv[1])
