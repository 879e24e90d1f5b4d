"""Features of vLLM's configuration that this executor has not, refused by the flag's name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, cast

from graphgen.errors import GraphgenError

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
            close = get_close_matches(name, (OVERRIDE, PROMPT_TOKENS), 1)
            raise _refused(
                f"{name!r} in --additional-config",
                f"did you mean {close[0]}?" if close else f"it has {OVERRIDE} and {PROMPT_TOKENS}",
            )


def _refused(name: str, help: str) -> GraphgenError:
    return GraphgenError("GG0705", f"graphgen's executor for vLLM does not have {name}", help=help)
