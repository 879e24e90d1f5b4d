"""The configuration of vLLM as options to open a model with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.config.served_options import ServedFlags, served_options
from graphgen.runtime.engine import EngineOptions

# AWS's variable for the folder of compiled programs, and its name for its framework.
ARTIFACTS: Final = "NEURON_COMPILED_ARTIFACTS"
FRAMEWORK: Final = "VLLM_NEURON_FRAMEWORK"
_FRAMEWORKS: Final = ("", "graphgen", "neuronx-distributed-inference", "transformers-neuronx")
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
    check_supported(config)
    return served_options(config.model_config.model, served_flags(config, blocks))


def served_flags(config: Any, blocks: int) -> ServedFlags:
    """The flags of ``graphgen serve`` for vLLM's configuration; arguments as above."""
    lora = config.lora_config
    artifact = os.environ.get(ARTIFACTS)
    slots = {"max_loras": lora.max_loras, "max_lora_rank": lora.max_lora_rank} if lora else None
    longest = int(config.model_config.max_model_len)
    chunk = min(_CHUNK, int(config.scheduler_config.max_num_batched_tokens))
    return ServedFlags(
        max_num_seqs=int(config.scheduler_config.max_num_seqs),
        max_model_len=longest,
        tensor_parallel_size=int(config.parallel_config.tensor_parallel_size),
        dtype=_element(config.model_config.dtype),
        override=json.dumps(override_of(config)),
        chunk=(chunk,) if chunk < longest else (),
        artifact=Path(artifact) if artifact else None,
        block_size=int(config.cache_config.block_size),
        num_blocks=blocks,
        slots=slots,
    )


def override_of(config: Any) -> Mapping[str, object]:
    """Attributes of a NeuronConfig that ``--additional-config`` gives (GG0705)."""
    given = cast("Mapping[str, object]", config.additional_config or {})
    found = given.get("override_neuron_config", {})
    if not isinstance(found, Mapping):
        raise GraphgenError(
            "GG0705",
            f"override_neuron_config is {found!r}, and should be an object of attributes",
            help='--additional-config \'{"override_neuron_config": {"quantized": true}}\'',
        )
    return cast("Mapping[str, object]", found)


def check_supported(config: Any) -> None:
    """Refuse by name what this executor has not (GG0705)."""
    framework = os.environ.get(FRAMEWORK, "")
    parallel = config.parallel_config
    refused = {
        f"{FRAMEWORK}={framework}": framework not in _FRAMEWORKS,
        "speculative decoding through vLLM": config.speculative_config is not None,
        "--pipeline-parallel-size": parallel.pipeline_parallel_size > 1,
        "a model that is not of text": bool(config.model_config.is_multimodal_model),
        "a pooling model": config.model_config.runner_type == "pooling",
        "a KV connector": config.kv_transfer_config is not None,
    }
    for name, is_asked in refused.items():
        if is_asked:
            raise GraphgenError(
                "GG0705",
                f"graphgen's executor for vLLM does not have {name}",
                help="leave it out; 'graphgen serve' speculates",
            )


def _element(dtype: object) -> str:
    """The name of an element type: ``torch.bfloat16`` is ``bfloat16``."""
    return str(dtype).removeprefix("torch.")
