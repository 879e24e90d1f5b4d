"""The configuration of vLLM as options to open a model with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, Final, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.config.served_options import ServedFlags, served_options
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.engine import EngineOptions
from graphgen.runtime.vllm_plugin.refusals import (
    OVERRIDE,
    PROMPT_TOKENS,
    additional_of,
    check_supported,
)

# AWS's variable for the folder of compiled programs.
ARTIFACTS: Final = "NEURON_COMPILED_ARTIFACTS"
# The attribute of a NeuronConfig that is a number of stages.
_STAGES: Final = "pp_degree"
# Tokens that a launch takes of a prompt, where the scheduler's budget is larger.
_CHUNK: Final = 128


def model_options(config: Any, blocks: int) -> EngineOptions:
    """The options of a model for vLLM's configuration.

    Args:
        config: a ``VllmConfig``.
        blocks: of the cache, as many as vLLM's block manager gives out.

    Raises:
        GraphgenError: GG0705 for features that vLLM asks for and this executor has not, and as
            :func:`served_options`.
    """
    check_options(config)
    return served_options(config.model_config.model, served_flags(config, blocks))


def check_options(config: Any) -> None:
    """Refuse what the executor has not, before anything of a model is read (GG0705)."""
    check_supported(config)
    override_of(config)
    verified_lengths(config)


def served_flags(config: Any, blocks: int) -> ServedFlags:
    """The flags of ``graphgen serve`` for vLLM's configuration; arguments as above."""
    lora = config.lora_config
    artifact = os.environ.get(ARTIFACTS)
    slots = {"max_loras": lora.max_loras, "max_lora_rank": lora.max_lora_rank} if lora else None
    longest = int(config.model_config.max_model_len)
    ranks = int(config.parallel_config.tensor_parallel_size)
    length, *fewer = verified_lengths(config) or [None]
    chunk = min(_CHUNK, int(config.scheduler_config.max_num_batched_tokens))
    return ServedFlags(
        max_num_seqs=int(config.scheduler_config.max_num_seqs),
        max_model_len=longest,
        tensor_parallel_size=ranks,
        dtype=_element(config.model_config.dtype),
        override=json.dumps(override_of(config)),
        chunk=(chunk,) if chunk < longest else (),
        artifact=Path(artifact) if artifact else None,
        block_size=int(config.cache_config.block_size),
        num_blocks=blocks,
        speculation_length=length,
        verify_lengths=tuple(size for size in fewer if size is not None),
        slots=slots,
        experts=ranks if config.parallel_config.enable_expert_parallel else None,
    )


def draft_options(config: Any, blocks: int) -> EngineOptions:
    """The options of a draft model, on one rank; arguments and errors as of `model_options`."""
    of_target = served_flags(config, blocks)
    draft = config.speculative_config.draft_model_config
    flags = replace(
        of_target,
        tensor_parallel_size=1,
        dtype=_element(draft.dtype),
        override="{}",
        artifact=None,
        slots=None,
        experts=None,
    )
    return served_options(draft.model, flags)


def override_of(config: Any) -> Mapping[str, object]:
    """Attributes of a NeuronConfig that ``--additional-config`` gives (GG0705)."""
    found = additional_of(config).get(OVERRIDE, {})
    if not isinstance(found, Mapping):
        raise GraphgenError(
            "GG0705",
            f"override_neuron_config is {found!r}, and should be an object of attributes",
            help='--additional-config \'{"override_neuron_config": {"quantized": true}}\'',
        )
    return cast("Mapping[str, object]", found)


def take_stages(config: Any) -> None:
    """Make ``--pipeline-parallel-size`` an attribute of the model: vLLM has one worker to call.

    vLLM would divide requests into as many groups and schedule them in turn; here the launches of
    one step go through the stages in groups of rows.

    Raises:
        GraphgenError: GG0705 where ``pp_degree`` is given too.
    """
    stages = int(config.parallel_config.pipeline_parallel_size)
    if stages == 1:
        return
    override = override_of(config)
    if _STAGES in override:
        raise GraphgenError(
            "GG0705",
            f"override_neuron_config has {_STAGES}, which --pipeline-parallel-size gives too",
            help="leave one of them out",
        )
    override = {**override, _STAGES: stages}
    config.additional_config = {**additional_of(config), OVERRIDE: override}
    config.parallel_config.pipeline_parallel_size = 1


def weight_bytes(config: Any, checkpoint: Checkpoint) -> int:
    """Bytes of a checkpoint's weights in the programs of vLLM's configuration."""
    element = 1 if override_of(config).get("quantized") else config.model_config.dtype.itemsize
    return element * sum(prod(tensor.shape) for tensor in checkpoint.tensors().values())


def verified_lengths(config: Any) -> list[int]:
    """Sizes of the programs that give the logits of every token, the largest first (GG0705).

    Those of proposals and the token before them, and those of prompts whose logprobs are read.
    """
    given = additional_of(config).get(PROMPT_TOKENS, 0)
    if not isinstance(given, int) or isinstance(given, bool) or given < 0 or given == 1:
        raise GraphgenError(
            "GG0705",
            f"{PROMPT_TOKENS} is {given!r}, and should be a number of tokens, 2 or more",
            help="leave it out to read logprobs of prompts a token at a time",
        )
    proposed = config.speculative_config
    sizes = {given, 0 if proposed is None else int(proposed.num_speculative_tokens) + 1} - {0}
    return sorted(sizes, reverse=True)


def _element(dtype: object) -> str:
    """The name of an element type: ``torch.bfloat16`` is ``bfloat16``."""
    return str(dtype).removeprefix("torch.")
