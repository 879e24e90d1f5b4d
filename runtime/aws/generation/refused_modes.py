"""Modes and settings of transformers' ``generate`` that the adapter refuses, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError


@dataclass(frozen=True, slots=True)
class RefusedArgument:
    """An argument of ``generate`` that requests a feature which is not built.

    Attributes:
        names: of the arguments, also fields of ``GenerationConfig``.
        feature: a noun phrase.
        remedy: what to do instead, an imperative.
        inactive: values that request nothing, beside ``None`` and ``False``.
    """

    names: Sequence[str]
    feature: str
    remedy: str
    inactive: tuple[object, ...] = ()


_ONE_TOKEN = "leave it out: greedy decoding and sampling give one token at a time"
_ONE_SEQUENCE = "num_beams=1, with do_sample=True and num_return_sequences for several answers"
_OWN_CACHE = "leave it out: the compiled programs hold the cache"
# In this order: the more special mode comes first.
REFUSED: tuple[RefusedArgument, ...] = (
    RefusedArgument(("assistant_early_exit", "is_assistant"),
                    "assisted decoding with some layers of the model",
                    "give assistant_model, an application with fewer layers"),
    RefusedArgument(("use_mtp",), "multi-token prediction", _ONE_TOKEN),
    RefusedArgument(("constraints", "force_words_ids"), "constrained beam search", _ONE_SEQUENCE),
    RefusedArgument(("num_beam_groups", "diversity_penalty"), "group beam search", _ONE_SEQUENCE,
                    (1, 0)),
    RefusedArgument(("num_beams",), "beam search", _ONE_SEQUENCE, (1,)),
    RefusedArgument(("penalty_alpha", "low_memory"), "contrastive search", _ONE_TOKEN, (0,)),
    RefusedArgument(("dola_layers",), "DoLa decoding", _ONE_TOKEN),
    RefusedArgument(("guidance_scale", "negative_prompt_ids", "negative_prompt_attention_mask"),
                    "classifier-free guidance", "leave it out", (1,)),
    RefusedArgument(("custom_generate",), "another generation loop", "leave it out"),
    RefusedArgument(("token_healing",), "token healing",
                    "leave it out, or end prompts at a word"),
    RefusedArgument(("use_cache",), "generation without a cache", _OWN_CACHE),
    RefusedArgument(("past_key_values",), "a cache of the caller", _OWN_CACHE),
    RefusedArgument(("cache_implementation", "cache_config", "max_cache_len"),
                    "a choice of the cache at run time", _OWN_CACHE),
    RefusedArgument(("prefill_chunk_size",), "prefill in chunks at run time",
                    "leave it out: a prompt is one step"),
    RefusedArgument(("compile_config",), "torch.compile",
                    "leave it out: the programs are compiled"),
    RefusedArgument(("continuous_batching_config",), "transformers' continuous batching",
                    "leave it out"),
    RefusedArgument(("output_attentions",), "attention weights as output", "leave it out"),
    RefusedArgument(("output_hidden_states",), "hidden states as output of generate",
                    "leave it out"),
    RefusedArgument(("inputs_embeds",), "embeddings as input of generate", "give input_ids"),
    RefusedArgument(("position_ids",), "a choice of positions",
                    "give attention_mask: a token's position is the number of tokens before it"),
    RefusedArgument(("synced_gpus",), "generation in step with other processes", "leave it out"),
)  # fmt: skip
_BY_NAME = {name: row for row in REFUSED for name in row.names}


def refuse_unbuilt_modes(arguments: Mapping[str, object]) -> None:
    """Refuse arguments of ``generate`` that request a feature which is not built (GG0904).

    Args:
        arguments: by name; those of other names pass.
    """
    for name, row in _BY_NAME.items():
        value = arguments.get(name)
        if name == "use_cache":
            value = value is False
        if value is None or value is False or _equals_one_of(value, row.inactive):
            continue
        raise GraphgenError(
            "GG0904",
            f"{name} of generate: {row.feature} is not built yet",
            help=row.remedy,
        )


def _equals_one_of(value: object, inactive: tuple[object, ...]) -> bool:
    """Compare plain numbers only: tensors and lists are requests."""
    return isinstance(value, int | float) and value in inactive
