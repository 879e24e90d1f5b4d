"""Drafts of EAGLE: a decoder layer that reads the hidden states of the model it drafts for.

At position t a draft takes token t + 1 and the target's features of token t, and predicts the
features, and so the logits, of token t + 1. Where the target has not been yet, it takes its own.

EAGLE (arXiv 2401.15077): ``fc`` joins embedding and features; layers of Llama's kind, the first
without a norm of its input, and none after the last. EAGLE-3 (2503.01840): ``fc`` joins three
hidden states of the target; one layer attends from embedding and features side by side, each after
its own norm; there are a last norm and, often, a smaller vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY_TREE, DType, Value, tensor
from graphgen.ir.dtype import f32
from graphgen.models.config_reader import ConfigReader
from graphgen.models.decoder import decoder_layer
from graphgen.models.decoder_config import read_sizes, smaller, to_hf, wider
from graphgen.models.family import Family
from graphgen.models.llama import LlamaConfig
from graphgen.models.program_form import B, S
from graphgen.nn import (
    Rotary,
    StepInputs,
    causal_mask,
    embed,
    linear,
    lm_head,
    rms_norm,
    rotary,
)

# Inputs f32: the target's features [B,S,W]; those that the draft predicted [B,S,E], where it goes
# on by itself: in the phases decode and verify_tree.
TARGET_FEATURES, DRAFT_FEATURES = "target_features", "draft_features"
# Output f32 [B,S,E]: the predicted features of each token.
NEXT_FEATURES = "next_features"
MODEL_TYPE = "eagle"


@dataclass(frozen=True, slots=True)
class EagleConfig(LlamaConfig):
    """Sizes and switches of a draft; those of Llama under Hugging Face's names.

    Attributes:
        eagle_version: 1, for EAGLE and EAGLE-2, or 3.
        fc_bias: ``fc`` has a bias.
        input_norm: the first layer of version 1 has a norm of its input, AWS's
            ``enable_eagle_draft_input_norm``.
        norm_before_residual: of version 3: the residual stream begins after ``hidden_norm``.
        draft_vocab_size: rows of the head; 0 for ``vocab_size``.
        feature_size: W, columns of the target's features; 0 for E, or 3E of version 3.
    """

    eagle_version: int = 1
    fc_bias: bool = False
    input_norm: bool = False
    norm_before_residual: bool = False
    draft_vocab_size: int = 0
    feature_size: int = 0

    @property
    def features(self) -> int:
        """W, columns of the target's features."""
        return self.feature_size or self.hidden_size * (3 if self.eagle_version == 3 else 1)

    @property
    def logits(self) -> int:
        """Rows of the head."""
        return self.draft_vocab_size or self.vocab_size

    def mini(self) -> EagleConfig:
        """See :func:`~.decoder_config.smaller`; features and vocabulary go with it."""
        return replace(smaller(self), feature_size=0, draft_vocab_size=self.draft_vocab_size and 67)

    def wide(self) -> EagleConfig:
        """See :func:`~.decoder_config.wider`."""
        return replace(wider(self), feature_size=0, draft_vocab_size=0)

    def to_hf(self) -> dict[str, object]:
        """The configuration as a ``config.json``."""
        return to_hf(self, MODEL_TYPE, "EagleDraft")


def read_eagle(config: Mapping[str, object]) -> EagleConfig:
    """A ``config.json`` with the keys of :class:`EagleConfig` (GG0502, GG0503)."""
    reader = ConfigReader(config)
    reader.only("eagle_version", [1, 3], 1)
    # They follow from the tensors, or from the target.
    reader.neutral("bias", "target_hidden_size", "eagle_config", "tie_word_embeddings")
    read = EagleConfig(
        **read_sizes(reader, positions=2048),
        attention_bias=reader.boolean("attention_bias", False),
        mlp_bias=reader.boolean("mlp_bias", False),
        eagle_version=reader.integer("eagle_version", 1),
        fc_bias=reader.boolean("fc_bias", False),
        input_norm=reader.boolean("input_norm", False),
        norm_before_residual=reader.boolean("norm_before_residual", False),
        draft_vocab_size=reader.optional_integer("draft_vocab_size") or 0,
        feature_size=reader.optional_integer("feature_size") or 0,
    )
    reader.finish()
    if read.eagle_version == 3 and read.num_hidden_layers != 1:
        raise GraphgenError(
            "GG0502",
            f"config: a draft of EAGLE-3 with {read.num_hidden_layers} layers",
            help="EAGLE-3 has one layer",
        )
    return read


def draft_body(
    b: Builder, config: EagleConfig, tokens: Value, step: StepInputs, dtype: DType
) -> Value:
    """Hidden states [B,S,E] for the head; the features go to the output ``next_features``."""
    own = b.function.phase in ("decode", VERIFY_TREE)
    width = config.hidden_size if own else config.features
    features = b.input(DRAFT_FEATURES if own else TARGET_FEATURES, f32, (B, S, width))
    turns = rotary(b, step, config.rope_frequencies(), config.rope.attention_factor)
    mask = causal_mask(b, step, 0)
    embedded = embed(b, "embed_tokens", tokens, config.vocab_size, config.hidden_size, dtype)
    features = b.convert(features, dtype)
    if config.eagle_version == 3:
        x = b.convert(features, f32) if own else _fc(b, config, features)
        x = _mid_layer(b, config, x, embedded, step, mask, turns)
        head_input = rms_norm(b, "norm", x, config.rms_norm_eps, dtype)
    else:
        x = _fc(b, config, b.concatenate([embedded, features], 2))
        x = _layers(b, config, x, step, mask, turns, dtype)
        head_input = b.convert(x, dtype)
    b.output(NEXT_FEATURES, x, tensor(f32, (B, S, config.hidden_size)))
    return head_input


def _fc(b: Builder, config: EagleConfig, x: Value) -> Value:
    return linear(b, "fc", x, config.hidden_size, bias=config.fc_bias, dtype=f32)


def _layers(
    b: Builder,
    config: EagleConfig,
    x: Value,
    step: StepInputs,
    mask: Value,
    turns: Rotary,
    dtype: DType,
) -> Value:
    """The layers of version 1."""
    for layer in range(config.num_hidden_layers):
        with b.scope(f"layers.{layer}"):
            h = b.convert(x, dtype)
            if layer or config.input_norm:
                h = rms_norm(b, "input_layernorm", x, config.rms_norm_eps, dtype)
            x = decoder_layer(b, config, x, h, config.attention(layer), step, mask, turns)
    return x


def _mid_layer(
    b: Builder,
    config: EagleConfig,
    x: Value,
    embedded: Value,
    step: StepInputs,
    mask: Value,
    turns: Rotary,
) -> Value:
    """The layer of version 3, which projects 2E columns to queries, keys and values."""
    epsilon, dtype = config.rms_norm_eps, embedded.dtype
    with b.scope("midlayer"):
        token = rms_norm(b, "input_layernorm", embedded, epsilon, dtype)
        state = rms_norm(b, "hidden_norm", x, epsilon, dtype)
        if config.norm_before_residual:
            x = b.convert(state, f32)
        h = b.concatenate([token, state], 2)
        return decoder_layer(b, config, x, h, config.attention(0), step, mask, turns)


def draft_head(b: Builder, config: EagleConfig, x: Value) -> Value:
    """Logits f32 [..., logits] of x [..., E]."""
    return lm_head(b, x, config.logits)


EAGLE = Family(
    MODEL_TYPE,
    (),
    read_eagle,
    draft_body,
    draft_head,
    prefix="",
    embedding="embed_tokens.weight",
)


def target_layers(version: int, layers: int) -> tuple[int, ...]:
    """The ``feature_layers`` of a target of L layers, as published drafts were trained.

    The last norm's output for EAGLE; for EAGLE-3 the inputs of layers 2, L / 2 and L - 3.
    """
    if version != 3:
        return (layers,)
    return (min(2, layers), layers // 2, max(layers - 3, 0))
