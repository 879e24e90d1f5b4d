"""From transformers-neuronx's configurations to the compile configuration and sampling settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import either_of
from graphgen.runtime.aws_config.compile_settings import SettingRequest, folded
from graphgen.runtime.aws_config.strict_config import CPU
from graphgen.runtime.aws_config.tnx_config import (
    TnxGenerationConfig,
    TnxModelOptions,
    TnxNeuronConfig,
    exclusion,
)
from graphgen.runtime.aws_config.tnx_rows import STRATEGIES
from graphgen.runtime.sampling import GREEDY, Sampling

if TYPE_CHECKING:
    from graphgen.passes.gqa.head_strategies import Heads


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
    made = CompileConfig().updated(folded(SettingRequest((options, neuron_config), CPU, model)))
    _check_heads(made, model)
    return made


def _check_heads(config: CompileConfig, model: Mapping[str, object]) -> None:
    """Refuse a distribution of heads that cannot serve the model's (GG0903)."""
    names = {word: name for name, word in STRATEGIES.items()}
    if config.heads not in names or config.flash_decoding:
        return
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.gqa.head_strategies import STRATEGIES as LAYOUTS
    from graphgen.passes.gqa.head_strategies import serving

    for sizes in _head_sizes(config, model):
        found = LAYOUTS[config.heads](sizes)
        if isinstance(found, str):
            others = [repr(names[word]) for word in serving(sizes) if word in names]
            raise exclusion(
                f"group_query_attention is {names[config.heads]!r} with {sizes.text}",
                found,
                f"leave it out, or set it to {either_of(others)}",
            )


def _head_sizes(config: CompileConfig, model: Mapping[str, object]) -> list[Heads]:
    """The sizes of attention in programs of each batch."""
    from graphgen.models import family_of, read_model_config
    from graphgen.passes.gqa.head_strategies import Heads

    aliases, values = family_of(model).aliases, read_model_config(model).to_hf()

    def size(name: str) -> int:
        return cast("int | None", values.get(aliases.get(name, name))) or 0

    heads = size("num_attention_heads")
    kv_heads = size("num_key_value_heads") or heads
    features = size("head_dim") or size("hidden_size") // heads
    batches = sorted({*config.batch, *config.prefill_batch})
    return [Heads(config.tp, heads, kv_heads, features, rows) for rows in batches]


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


def generation_of(neuron_config: TnxNeuronConfig) -> TnxGenerationConfig | None:
    """A copy of ``on_device_generation``."""
    return cast("TnxGenerationConfig | None", neuron_config.part("on_device_generation"))


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
