"""Models of transformers as GGUF files: what llama.cpp's converter writes for each architecture.

Names come from the table of the gguf package and not from ours; what is done to values, and which
settings are written, is said once more here, in the converter's direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.oracles.stored_names import stored_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Array = npt.NDArray[np.float32]
# (writer, configuration).
Settings = Callable[[gguf.GGUFWriter, Any], None]
# (name in transformers, values, configuration) -> values to write.
Change = Callable[[str, Array, Any], Array]


def _sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)


def _decoder(writer: gguf.GGUFWriter, config: Any) -> None:
    _sizes(writer, config)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])


def _gemma(writer: gguf.GGUFWriter, config: Any) -> None:
    _decoder(writer, config)
    writer.add_sliding_window(config.sliding_window)


def _gemma2(writer: gguf.GGUFWriter, config: Any) -> None:
    _gemma(writer, config)
    writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)


def _stablelm(writer: gguf.GGUFWriter, config: Any) -> None:
    _sizes(writer, config)
    writer.add_head_count_kv(config.num_key_value_heads)
    share = config.rope_parameters["partial_rotary_factor"]
    writer.add_rope_dimension_count(int(share * config.hidden_size // config.num_attention_heads))
    writer.add_parallel_residual(config.use_parallel_residual)
    writer.add_layer_norm_eps(config.layer_norm_eps)


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
    _sizes(writer, config)
    share = config.rope_parameters["partial_rotary_factor"]
    writer.add_rope_dimension_count(int(share * config.hidden_size // config.num_attention_heads))
    writer.add_parallel_residual(config.use_parallel_residual)
    writer.add_layer_norm_eps(config.layer_norm_eps)


def _pairs(name: str, values: Array, config: Any) -> Array:
    """llama.cpp rotates neighbors in Llama's heads."""
    heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
    if ".q_proj." not in name and ".k_proj." not in name:
        return values
    halves = values.reshape(heads, 2, len(values) // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


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


def _kept(name: str, values: Array, config: Any) -> Array:
    return values


@dataclass(frozen=True)
class Converter:
    """How one family is written.

    Attributes:
        arch: of the gguf package.
        settings: writes the model's settings.
        change: what is done to values.
    """

    arch: gguf.MODEL_ARCH
    settings: Settings
    change: Change = _kept


CONVERTERS: Mapping[str, Converter] = {
    "llama": Converter(gguf.MODEL_ARCH.LLAMA, _decoder, _pairs),
    # llama.cpp takes Mistral for a Llama.
    "mistral": Converter(gguf.MODEL_ARCH.LLAMA, _decoder, _pairs),
    "qwen2": Converter(gguf.MODEL_ARCH.QWEN2, _decoder),
    "qwen3": Converter(gguf.MODEL_ARCH.QWEN3, _decoder),
    "gemma3_text": Converter(gguf.MODEL_ARCH.GEMMA3, _gemma, _plus_one),
    "olmo2": Converter(gguf.MODEL_ARCH.OLMO2, _decoder),
    "gemma2": Converter(gguf.MODEL_ARCH.GEMMA2, _gemma2, _plus_one),
    "stablelm": Converter(gguf.MODEL_ARCH.STABLELM, _stablelm),
    "gpt2": Converter(gguf.MODEL_ARCH.GPT2, _gpt2, _linear),
    "bloom": Converter(gguf.MODEL_ARCH.BLOOM, _bloom, _one_after_the_other),
    "gpt_neox": Converter(gguf.MODEL_ARCH.GPTNEOX, _gpt_neox, _one_after_the_other),
}


def write_model(model: PreTrainedModel, path: Path, *, parts: int = 1) -> list[Path]:
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
        writer.add_tensor(name, np.ascontiguousarray(values))
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
    for name, values in stored_tensors(model).items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        # The table knows BLOOM's tensors under the names of the first checkpoints.
        known = name.removeprefix("transformer.") if config.model_type == "bloom" else name
        known = known.replace("_layernorm.norms.", "_layernorm.")
        stored = names.get_name(known, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        out[stored] = converter.change(name, values, config)
    return out
