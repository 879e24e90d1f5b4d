"""The configuration of vLLM as options to open a model with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, cast

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError, did_you_mean, printable
from graphgen.runtime.aws_config.served_options import (
    ServedFlags,
    element_type,
    served_options,
    stated_artifact,
)
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.engine import EngineOptions

# AWS's name for its framework.
FRAMEWORK: Final = "VLLM_NEURON_FRAMEWORK"
# Keys of --additional-config.
OVERRIDE, PROMPT_TOKENS = "override_neuron_config", "prompt_logprobs_tokens"
_FRAMEWORKS: Final = ("", "graphgen", "neuronx-distributed-inference", "transformers-neuronx")
_METHODS: Final = ("ngram", "draft_model")
_FORMATS: Final = ("auto", "hf", "safetensors")
_LEAVE: Final = "leave it out"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A feature that is refused.

    Attributes:
        name: the flag, or a noun phrase.
        requested: whether a ``VllmConfig`` has it.
        help: what to do instead.
    """

    name: str
    requested: Callable[[Any], object]
    help: str = _LEAVE


def _speculates_otherwise(config: Any) -> bool:
    found = config.speculative_config
    return found is not None and (
        found.method not in _METHODS
        or found.rejection_sample_method != "standard"
        or found.draft_sample_method != "greedy"
        or bool(found.parallel_drafting or found.use_heterogeneous_vocab)
    )


def _is_quantized_by_vllm(config: Any) -> bool:
    """Weights that the checkpoint does not have quantized would be, when they are read."""
    stated = getattr(config.model_config.hf_config, "quantization_config", None)
    return config.model_config.quantization is not None and not stated


def _divides_experts_over_replicas(config: Any) -> bool:
    parallel = config.parallel_config
    return parallel.enable_expert_parallel and parallel.data_parallel_size > 1


def _is_other_version(config: Any) -> bool:
    """Another version of a repository than the one that graphgen opens by its name."""
    return str(config.model_config.revision or "main") != "main"


def _has_other_adapters(config: Any) -> bool:
    lora = config.lora_config
    return lora is not None and not _is_dtype(config, lora.lora_dtype)


def _is_dtype(config: Any, dtype: object) -> bool:
    """The element type is that of the model, as ``torch.bfloat16`` or ``bfloat16``."""
    found, own = (str(one).removeprefix("torch.") for one in (dtype, config.model_config.dtype))
    return found in ("auto", own)


def _offloads(config: Any) -> bool:
    found = config.offload_config
    return found.uva.cpu_offload_gb > 0 or found.prefetch.offload_group_size > 0


_QUANTIZE = '--additional-config \'{"override_neuron_config": {"quantized": true}}\' quantizes'
_REFUSALS: Final = (
    Refusal(
        "this speculative_config",
        _speculates_otherwise,
        "method ngram or draft_model, with greedy drafts and standard rejection sampling; "
        "'graphgen serve' has EAGLE and Medusa",
    ),
    Refusal(
        "--decode-context-parallel-size",
        lambda config: config.parallel_config.decode_context_parallel_size > 1,
    ),
    Refusal(
        "--prefill-context-parallel-size",
        lambda config: config.parallel_config.prefill_context_parallel_size > 1,
    ),
    Refusal(
        "--enable-expert-parallel over replicas",
        _divides_experts_over_replicas,
        "each replica has all experts: leave out --enable-expert-parallel, or "
        "--data-parallel-size for --tensor-parallel-size",
    ),
    Refusal(
        "--nnodes",
        lambda config: config.parallel_config.nnodes > 1,
        "one worker holds all ranks of a replica; --data-parallel-size and "
        "--data-parallel-address divide replicas over hosts",
    ),
    Refusal(
        "a model that is not of text",
        lambda config: config.model_config.is_multimodal_model,
        "serve a model of text alone",
    ),
    Refusal(
        "a pooling model",
        lambda config: config.model_config.runner_type == "pooling",
        "serve a model that generates",
    ),
    Refusal("a KV connector", lambda config: config.kv_transfer_config is not None),
    Refusal("--enable-prompt-embeds", lambda config: config.model_config.enable_prompt_embeds),
    Refusal("--revision", _is_other_version, "give the folder of that version"),
    Refusal(
        "--hf-config-path",
        lambda config: config.model_config.hf_config_path,
        "give a folder that has the configuration and the weights",
    ),
    Refusal(
        "--model-weights",
        lambda config: config.model_config.model_weights,
        "give a folder that has the configuration and the weights",
    ),
    Refusal(
        "--lora-target-modules",
        lambda config: config.lora_config and config.lora_config.target_modules,
        "adapters say which projections they change",
    ),
    Refusal(
        "--lora-dtype",
        _has_other_adapters,
        "adapters have the element type of the model",
    ),
    Refusal(
        "a weight transfer",
        lambda config: config.weight_transfer_config is not None,
    ),
    Refusal("--profiler-config", lambda config: config.profiler_config.profiler is not None),
    Refusal("--enable-return-routed-experts", lambda config: config.aux_output_config.enabled),
    Refusal("--return-sampling-mask", lambda config: config.model_config.return_sampling_mask),
    Refusal("--enable-trace-replay", lambda config: config.model_config.enable_trace_replay),
    Refusal(
        "--hf-overrides",
        lambda config: config.model_config.hf_overrides,
        "change config.json of the checkpoint",
    ),
    Refusal("--quantization", _is_quantized_by_vllm, _QUANTIZE),
    Refusal(
        "--kv-cache-dtype",
        lambda config: not _is_dtype(config, config.cache_config.cache_dtype),
        _QUANTIZE.replace("quantized", "kv_cache_quant"),
    ),
    Refusal("--cpu-offload-gb", _offloads),
    Refusal("--kv-offloading-size", lambda config: config.cache_config.kv_offloading_size),
    Refusal(
        "this --load-format",
        lambda config: config.load_config.load_format not in _FORMATS,
        "give a folder that graphgen opens",
    ),
)


def additional_of(config: Any) -> Mapping[str, object]:
    """The object of ``--additional-config``."""
    return cast("Mapping[str, object]", config.additional_config or {})


def check_supported(config: Any) -> None:
    """Refuse by name what this executor has not (GG0705)."""
    framework = os.environ.get(FRAMEWORK, "")
    if framework not in _FRAMEWORKS:
        raise _refused(f"{FRAMEWORK}={framework}", _LEAVE)
    for refusal in _REFUSALS:
        if refusal.requested(config):
            raise _refused(refusal.name, refusal.help)
    for name in additional_of(config):
        if name not in (OVERRIDE, PROMPT_TOKENS):
            raise _refused(
                f"{name!r} in --additional-config",
                did_you_mean(name, (OVERRIDE, PROMPT_TOKENS))
                or f"it has {OVERRIDE} and {PROMPT_TOKENS}",
            )


def _refused(name: str, help: str) -> GraphgenError:
    return GraphgenError("GG0705", f"graphgen's executor for vLLM does not have {name}", help=help)


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
    artifact, remarks = stated_artifact(os.environ)
    for text in remarks:
        print(f"note: {printable(text)}", file=sys.stderr)
    longest = int(config.model_config.max_model_len)
    ranks = int(config.parallel_config.tensor_parallel_size)
    length, *fewer = verified_lengths(config) or [None]
    chunk = min(_CHUNK, int(config.scheduler_config.max_num_batched_tokens))
    asked = CompileConfig.of(
        tp=ranks,
        dtype=element_type(_element(config.model_config.dtype)),
        page_cache=int(config.cache_config.block_size),
        cache_blocks=blocks,
        speculation_length=length,
        verify_lengths=tuple(size for size in fewer if size is not None) or None,
        max_loras=lora.max_loras if lora else None,
        max_lora_rank=lora.max_lora_rank if lora else None,
        moe_ep_degree=ranks if config.parallel_config.enable_expert_parallel else None,
    )
    return ServedFlags(
        max_num_seqs=int(config.scheduler_config.max_num_seqs),
        max_model_len=longest,
        compile=asked,
        override=json.dumps(override_of(config)),
        chunk=(chunk,) if chunk < longest else (),
        artifact=artifact,
    )


# Options of a model that its draft has not.
_OF_TARGET = ("max_loras", "max_lora_rank", "moe_ep_degree")


def draft_options(config: Any, blocks: int) -> EngineOptions:
    """The options of a draft model, on one rank; arguments and errors as of `model_options`."""
    of_target = served_flags(config, blocks)
    asked = {n: v for n, v in of_target.compile.asked.items() if n not in _OF_TARGET}
    draft = config.speculative_config.draft_model_config
    own = {"tp": 1, "dtype": element_type(_element(draft.dtype))}
    flags = replace(
        of_target, compile=CompileConfig.of(**asked).updated(own), override="{}", artifact=None
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
