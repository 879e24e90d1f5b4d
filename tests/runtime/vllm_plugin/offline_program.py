"""Answers of vLLM's offline ``LLM``, run in an environment of vLLM: JSON from stdin to a file.

The input has ``engine``, arguments of ``LLM``; ``requests``, each of a ``prompt`` (token ids),
``sampling`` (arguments of ``SamplingParams``) and maybe ``adapter`` (a folder), ``schema`` or
``choice``; and the number of ``rounds`` that are answered one after the other. The output has the
tokens, logprobs and cached tokens of each answer of the last round, and the proposed tokens that
were accepted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def sampling_of(asked: dict[str, Any]) -> Any:
    from vllm import SamplingParams  # pyright: ignore[reportMissingImports]
    from vllm.sampling_params import (  # pyright: ignore[reportMissingImports]
        StructuredOutputsParams,
    )

    given = dict(asked["sampling"])
    if "logit_bias" in given:
        # JSON has no numbers as keys.
        given["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    if "schema" in asked:
        given["structured_outputs"] = StructuredOutputsParams(json=asked["schema"])
    if "choice" in asked:
        given["structured_outputs"] = StructuredOutputsParams(choice=asked["choice"])
    return SamplingParams(**given)


def adapter_of(asked: dict[str, Any], folders: list[str]) -> Any:
    from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

    path = asked.get("adapter")
    return LoRARequest(path, 1 + folders.index(path), path) if path else None


def main() -> None:
    from vllm import LLM  # pyright: ignore[reportMissingImports]

    task = json.load(sys.stdin)
    llm = LLM(**task["engine"])
    requests = task["requests"]
    prompts = [{"prompt_token_ids": asked["prompt"]} for asked in requests]
    folders = sorted({asked["adapter"] for asked in requests if asked.get("adapter")})
    more: dict[str, Any] = {}
    if folders:
        more["lora_request"] = [adapter_of(asked, folders) for asked in requests]
    made: list[Any] = []
    for _ in range(task.get("rounds", 1)):
        made = llm.generate(prompts, [sampling_of(asked) for asked in requests], **more)
    answers = [
        {
            "all": [list(one.token_ids) for one in found.outputs],
            "tokens": list(found.outputs[0].token_ids),
            "text": found.outputs[0].text,
            "cached": found.num_cached_tokens,
            "logprobs": [
                {str(token): value.logprob for token, value in row.items()}
                for row in found.outputs[0].logprobs or ()
            ],
            "prompt": [
                {str(token): [value.logprob, value.rank] for token, value in (row or {}).items()}
                for row in found.prompt_logprobs or ()
            ],
        }
        for found in made
    ]
    accepted = 0
    # vLLM counts only where its log is on.
    if task["engine"].get("disable_log_stats") is False:
        counts = {one.name: getattr(one, "value", 0) for one in llm.get_metrics()}
        accepted = counts["vllm:spec_decode_num_accepted_tokens"]
    output = {"answers": answers, "accepted": accepted}
    Path(sys.argv[1]).write_text(json.dumps(output), encoding="utf-8")


if __name__ == "__main__":
    main()
