"""From transformers-neuronx's configurations to the compile configuration and sampling settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import CACHE_DTYPES
from graphgen.models import read_model_config
from graphgen.runtime.aws_config.compile_settings import ELEMENTS
from graphgen.runtime.aws_config.tnx_config import (
    TnxGenerationConfig,
    TnxModelOptions,
    TnxNeuronConfig,
    exclusion,
)
from graphgen.runtime.aws_config.tnx_rows import STRATEGIES
from graphgen.runtime.sampling import GREEDY, Sampling

# The part of a weight's name that stands for attention, by model type.
_ATTENTION = {"gpt2": "attn", "gptj": "attn", "gpt_neox": "attention", "bloom": "self_attention"}
# The pass's own default for programs that draw from the best tokens.
_CANDIDATES = 256
_QUANTIZED = {"s8": "int8", "f8e4m3fn": "f8e4m3"}


def compile_config(
    model: Mapping[str, object], options: TnxModelOptions, neuron_config: TnxNeuronConfig
) -> CompileConfig:
    """The compile configuration of a model.

    Args:
        model: a ``config.json``.
        options: the arguments of ``from_pretrained``.
        neuron_config: the attributes of compilation.

    Raises:
        GraphgenError: GG0903 for sizes that contradict each other or the model.
    """
    _check_batch(options, neuron_config)
    _check_element_types(options, neuron_config)
    batch = cast("int | tuple[int, ...]", options.value("batch_size"))
    tokens, context = _buckets(model, options)
    strategy = neuron_config.value("group_query_attention")
    return CompileConfig(
        batch=(batch,) if isinstance(batch, int) else tuple(sorted(set(batch))),
        tokens=tokens,
        context=context,
        slots=tokens[-1],
        dtype=str(options.value("amp")),
        tp=cast(int, options.value("tp_degree")),
        rules=_rules(options, neuron_config) if context else (),
        rpl_reduce_dtype=_reduce_dtype(options, neuron_config),
        cast_logits_dtype=ELEMENTS[str(neuron_config.value("cast_logits_dtype"))],
        flash_decoding=bool(neuron_config.value("shard_over_sequence")),
        heads=STRATEGIES[strategy] if isinstance(strategy, str) else "auto",
        quantization=quantization(model, neuron_config),
        kv_cache_quant=neuron_config.part("kv_cache_quant") is not None,
        kv_cache_dtype=_cache_dtype(neuron_config),
        sampling=sampling_pass(neuron_config),
    )


def _rules(options: TnxModelOptions, neuron_config: TnxNeuronConfig) -> tuple[str, ...]:
    """Norms of prompts that are longer than a threshold, split along their tokens."""
    if options.value("tp_degree") == 1 or not neuron_config.value("sequence_parallel_norm"):
        return ()
    longest = cast(int, neuron_config.value("sequence_parallel_norm_threshold"))
    return (f"prefill>={longest + 1}:sequence:tp",)


def _cache_dtype(neuron_config: TnxNeuronConfig) -> str:
    """The element type of quantized caches."""
    part = neuron_config.part("kv_cache_quant")
    return CACHE_DTYPES[0] if part is None else _QUANTIZED[str(part.value("quant_dtype"))]


def _reduce_dtype(options: TnxModelOptions, neuron_config: TnxNeuronConfig) -> str:
    """The element type of row-parallel sums: that of ``amp``; f32 on one rank, which has none."""
    if options.value("tp_degree") == 1:
        return "f32"
    given = neuron_config.value("all_reduce_dtype")
    return str(options.value("amp")) if given is None else ELEMENTS[str(given)]


def _buckets(
    model: Mapping[str, object], options: TnxModelOptions
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The buckets of token generation and of prompts (GG0903)."""
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.programs.bucket_sizes import Sizes, context_sizes, token_sizes

    positions = cast(Sizes, options.value("n_positions"))
    most = read_model_config(model).max_position_embeddings
    if most and "n_positions" not in options.given:
        positions = min(cast(int, positions), most)
    tokens = token_sizes(positions)
    if most and tokens[-1] > most:
        raise exclusion(
            f"n_positions is {tokens[-1]}",
            f"the model has {most} positions",
            f"n_positions={most} or less",
        )
    context = context_sizes(cast("Sizes | None", options.value("context_length_estimate")), tokens)
    if context and context[-1] > tokens[-1]:
        raise exclusion(
            f"context_length_estimate is {context[-1]} and n_positions {tokens[-1]}",
            "a prompt is part of a sequence",
            f"context_length_estimate={tokens[-1]} or less",
        )
    return tokens, context


def _check_batch(options: TnxModelOptions, neuron_config: TnxNeuronConfig) -> None:
    batch = cast("int | tuple[int, ...]", options.value("batch_size"))
    rows = batch if isinstance(batch, int) else max(batch)
    prompts = cast("int | None", options.value("prompt_batch_size"))
    if prompts is not None and rows % prompts:
        raise exclusion(
            f"batch_size is {rows} and prompt_batch_size {prompts}",
            "each prompt gives as many sequences as the others",
            "a batch_size that is a multiple of prompt_batch_size",
        )
    batching = neuron_config.part("continuous_batching")
    if batching is None:
        return
    sizes = (
        ("max_num_seqs", "batch_size", rows),
        ("max_model_len", "n_positions", _largest(options.value("n_positions"))),
    )
    for name, option, value in sizes:
        wanted = batching.value(name)
        if wanted is not None and wanted != value:
            raise exclusion(
                f"ContinuousBatchingConfig.{name} is {wanted} and {option} {value}",
                "both are the same size of the cache",
                f"{option}={wanted}",
            )


def _largest(value: object) -> int:
    return value if isinstance(value, int) else max(cast("tuple[int, ...]", value))


def _check_element_types(options: TnxModelOptions, neuron_config: TnxNeuronConfig) -> None:
    for name, owner, what in (
        ("quant", "QuantizationConfig", "products with quantized weights"),
        ("kv_cache_quant", "KVCacheQuantizationConfig", "keys and values that attention reads"),
    ):
        part = neuron_config.part(name)
        if part is not None and part.value("dequant_dtype") != options.value("amp"):
            raise exclusion(
                f"{owner}.dequant_dtype is {part.value('dequant_dtype')!r} and amp "
                f"{options.value('amp')!r}",
                f"{what} have the element type of the others",
                "give the same to both",
            )


def quantization(model: Mapping[str, object], neuron_config: TnxNeuronConfig) -> str:
    """The pass that quantizes weights, as pipelines write it; empty for none."""
    quant = neuron_config.part("quant")
    if quant is None:
        return ""
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.quantization.quantize_weights import QuantizeWeights

    skip = [*QuantizeWeights().skip, *cast("tuple[str, ...]", quant.value("no_quantize_list"))]
    if not quant.value("quantize_attn"):
        skip.append(_ATTENTION.get(str(model.get("model_type")), "self_attn"))
    return str(QuantizeWeights(_QUANTIZED[str(quant.value("quant_dtype"))], skip=tuple(skip)))


def generation_of(neuron_config: TnxNeuronConfig) -> TnxGenerationConfig | None:
    """A copy of ``on_device_generation``."""
    return cast("TnxGenerationConfig | None", neuron_config.part("on_device_generation"))


def sampling_pass(neuron_config: TnxNeuronConfig) -> str:
    """The pass that lets programs choose tokens, as pipelines write it; empty for logits."""
    generation = generation_of(neuron_config)
    if generation is None:
        return ""
    dynamic = generation.value("dynamic")
    if not generation.value("do_sample") and not dynamic:
        return "on-device-sampling"
    candidates = generation.value("global_top_k")
    if candidates is None:
        few = not dynamic and all(0 < k <= _CANDIDATES for k in _all(generation, "top_k"))
        candidates = _CANDIDATES if few else 0
    options = ["do_sample=true", f"global_topk={candidates}"]
    if generation.value("deterministic"):
        options.append("deterministic=true")
    if dynamic or any(count > 1 for count in _all(generation, "top_p_min_tokens")):
        options.append("top_p_min_tokens=true")
    return f"on-device-sampling{{{','.join(options)}}}"


def _all(generation: TnxGenerationConfig, name: str) -> tuple[int, ...]:
    value = cast("int | tuple[int, ...]", generation.value(name))
    return (value,) if isinstance(value, int) else value


def row_settings(generation: TnxGenerationConfig, rows: int, seed: int) -> list[Sampling]:
    """The sampling settings of each of ``rows`` sequences (GG0705, GG0903)."""
    if not generation.value("do_sample"):
        return [GREEDY] * rows
    return [
        Sampling(
            do_sample=True,
            top_k=cast(int, generation.of_row("top_k", row, rows)),
            top_p=cast(float, generation.of_row("top_p", row, rows)),
            top_p_min_tokens=cast(int, generation.of_row("top_p_min_tokens", row, rows)),
            temperature=cast(float, generation.of_row("temperature", row, rows)),
            seed=seed,
            deterministic=bool(generation.value("deterministic")),
        )
        for row in range(rows)
    ]
