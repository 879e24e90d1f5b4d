"""How a family is written as a GGUF file, and the settings that many write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
Tensors = Callable[["PreTrainedModel"], Iterator[tuple[str, Array]]]


def write_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)


def write_decoder(writer: gguf.GGUFWriter, config: Any) -> None:
    write_sizes(writer, config)
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


def write_factors(writer: gguf.GGUFWriter, config: Any) -> None:
    """Granite's."""
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def paired(name: str, values: Array, config: Any) -> Array:
    """llama.cpp rotates neighbors in Llama's heads."""
    heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
    if ".q_proj." not in name and ".k_proj." not in name:
        return values
    halves = values.reshape(heads, 2, len(values) // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def plain_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Array]]:
    """Those of :func:`stored_tensors`, which the table knows for most families."""
    yield from stored_tensors(model).items()


def kept(name: str, values: Array, config: Any) -> Array:
    return values


@dataclass(frozen=True)
class Converter:
    """How one family is written.

    Attributes:
        arch: of the gguf package.
        settings: writes the model's settings.
        change: what is done to values.
        tensors: (model) -> names that the table of the gguf package knows, and values.
    """

    arch: gguf.MODEL_ARCH
    settings: Settings
    change: Change = kept
    tensors: Tensors = plain_tensors
