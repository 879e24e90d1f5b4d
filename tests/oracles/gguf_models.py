"""Models of transformers as GGUF files: what llama.cpp's converter writes for each architecture.

Names come from the table of the gguf package and not from ours; what is done to values, and which
settings are written, is said once more here, in the converter's direction.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.oracles.gguf_converter import (
    Array,
    Converter,
    paired,
    write_decoder,
    write_factors,
    write_sizes,
)
from tests.oracles.gguf_newer_models import FUSED, MIXTURES

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def _gemma(writer: gguf.GGUFWriter, config: Any) -> None:
    write_decoder(writer, config)
    writer.add_sliding_window(config.sliding_window)


def _gemma2(writer: gguf.GGUFWriter, config: Any) -> None:
    _gemma(writer, config)
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _stablelm(writer: gguf.GGUFWriter, config: Any) -> None:
    write_sizes(writer, config)
    writer.add_head_count_kv(config.num_key_value_heads)
    share = config.rope_parameters["partial_rotary_factor"]
    writer.add_rope_dimension_count(int(share * config.hidden_size // config.num_attention_heads))
    writer.add_parallel_residual(config.use_parallel_residual)
    writer.add_layer_norm_eps(config.layer_norm_eps)


def _granite(writer: gguf.GGUFWriter, config: Any) -> None:
    write_decoder(writer, config)
    write_factors(writer, config)


def _gpt2(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)


def _bloom(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_context_length(getattr(config, "seq_length", config.hidden_size))
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(4 * config.hidden_size)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)


def _gpt_neox(writer: gguf.GGUFWriter, config: Any) -> None:
    write_sizes(writer, config)
    share = config.rope_parameters["partial_rotary_factor"]
    writer.add_rope_dimension_count(int(share * config.hidden_size // config.num_attention_heads))
    writer.add_parallel_residual(config.use_parallel_residual)
    writer.add_layer_norm_eps(config.layer_norm_eps)


def _plus_one(name: str, values: Array, config: Any) -> Array:
    return values + np.float32(1) if name.endswith("norm.weight") else values


def _linear(name: str, values: Array, config: Any) -> Array:
    conv1d = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
    return values.T if name.endswith(conv1d) else values


def _one_after_the_other(name: str, values: Array, config: Any) -> Array:
    """All of q, all of k, all of v."""
    if ".query_key_value." not in name:
        return values
    heads = config.num_attention_heads
    by_head = values.reshape(heads, 3, -1, *values.shape[1:])
    return np.concatenate([by_head[:, i].reshape(-1, *values.shape[1:]) for i in range(3)])


CONVERTERS: dict[str, Converter] = {
    "llama": Converter(gguf.MODEL_ARCH.LLAMA, write_decoder, paired),
    # llama.cpp takes Mistral for a Llama.
    "mistral": Converter(gguf.MODEL_ARCH.LLAMA, write_decoder, paired),
    "qwen2": Converter(gguf.MODEL_ARCH.QWEN2, write_decoder),
    "qwen3": Converter(gguf.MODEL_ARCH.QWEN3, write_decoder),
    "gemma3_text": Converter(gguf.MODEL_ARCH.GEMMA3, _gemma, _plus_one),
    "olmo2": Converter(gguf.MODEL_ARCH.OLMO2, write_decoder),
    "gemma2": Converter(gguf.MODEL_ARCH.GEMMA2, _gemma2, _plus_one),
    "stablelm": Converter(gguf.MODEL_ARCH.STABLELM, _stablelm),
    "gpt2": Converter(gguf.MODEL_ARCH.GPT2, _gpt2, _linear),
    "bloom": Converter(gguf.MODEL_ARCH.BLOOM, _bloom, _one_after_the_other),
    "gpt_neox": Converter(gguf.MODEL_ARCH.GPTNEOX, _gpt_neox, _one_after_the_other),
    "granite": Converter(gguf.MODEL_ARCH.GRANITE, _granite, paired),
    "smollm3": Converter(gguf.MODEL_ARCH.SMOLLM3, write_decoder, paired),
    **MIXTURES,
    **FUSED,
}


# (name in the file, values) -> values or bytes, and the kind of the bytes.
Stored = Callable[[str, Array], "tuple[npt.NDArray[Any], gguf.GGMLQuantizationType | None]"]


def as_it_is(name: str, values: Array) -> tuple[Array, None]:
    """Values without quantization."""
    return np.ascontiguousarray(values), None


def write_model(
    model: PreTrainedModel, path: Path, *, parts: int = 1, stored: Stored = as_it_is
) -> list[Path]:
    """Write a model as the converter does, in so many files (each with as many tensors)."""
    config: Any = model.config
    converter = CONVERTERS[config.model_type]
    tensors = converted(model)
    most = -(-len(tensors) // parts) if parts > 1 else 0
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[converter.arch], split_max_tensors=most)
    writer.add_type(gguf.GGUFType.MODEL)
    converter.settings(writer, config)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{number}" for number in range(config.vocab_size)])
    for name, values in tensors.items():
        data, kind = stored(name, values)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(path.parent.glob(f"{path.stem}*.gguf"))


def converted(model: PreTrainedModel) -> dict[str, Array]:
    """The tensors under the names of GGUF, changed as the converter does, without a tied head."""
    config: Any = model.config
    converter = CONVERTERS[config.model_type]
    names = gguf.get_tensor_name_map(converter.arch, config.num_hidden_layers)
    out: dict[str, Array] = {}
    for name, values in converter.tensors(model):
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        # The table knows BLOOM's tensors under the names of the first checkpoints.
        known = name.removeprefix("transformer.") if config.model_type == "bloom" else name
        known = known.replace("_layernorm.norms.", "_layernorm.")
        stored = names.get_name(known, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        out[stored] = converter.change(name, values, config)
    return out
