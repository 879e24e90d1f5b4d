"""Read a Hugging Face ``config.json``: each key is used, known to be neutral, or refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import Field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

from graphgen.config.fields import MismatchError, ValueType, boolean, integer, number
from graphgen.errors import GraphgenError
from graphgen.limits import LAYERS, bound, stated
from graphgen.numbers import MOST_COUNT


class _Dataclass(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Fields = TypeVar("Fields", bound=_Dataclass)
T = TypeVar("T")

# Products with sizes stay finite.
_MOST_NUMBER = 1e30
# Keys that do not change what the forward pass computes at inference, by what they are of.
_NEUTRAL_KEYS = {
    "class": "architectures model_type is_llama_config is_encoder_decoder is_decoder auto_map",
    # How weights are stored; opening a checkpoint reads it, or refuses it.
    "storage": "quantization_config compression_config torch_dtype dtype torchscript",
    # Heads beside the model's own, which leave its tokens as they are.
    "other heads": "medusa_num_heads medusa_num_layers medusa_own_heads",
    "writer": "transformers_version name_or_path unsloth_fixed unsloth_version trl_version",
    # Ranks and buckets that optimum-neuron compiled for.
    "compiler": "neuron",
    "tokenizer": "bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id tokenizer_class "
    "prefix pad_token model_max_length tokenizer_model_max_length tokenizer_padding_side",
    "training": "initializer_range attention_dropout hidden_dropout resid_pdrop embd_pdrop "
    "attn_pdrop dropout classifier_dropout gradient_checkpointing use_gradient_checkpointing "
    "pretraining_tp router_jitter_noise",
    "context": "max_position_embeddings",
    "results": "use_cache return_dict use_return_dict output_attentions output_hidden_states "
    "output_scores return_dict_in_generate attn_implementation",
    "classification": "id2label label2id num_labels problem_type finetuning_task "
    "task_specific_params",
    "encoder": "add_cross_attention cross_attention_hidden_size tie_encoder_decoder "
    "decoder_start_token_id chunk_size_feed_forward tf_legacy_loss use_bfloat16",
    "generation": "max_length min_length do_sample early_stopping num_beams temperature top_k "
    "top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size num_beam_groups "
    "diversity_penalty num_return_sequences encoder_no_repeat_ngram_size bad_words_ids "
    "forced_bos_token_id forced_eos_token_id suppress_tokens begin_suppress_tokens "
    "remove_invalid_values exponential_decay_length_penalty max_new_tokens",
}
NEUTRAL = {key: why for why, keys in _NEUTRAL_KEYS.items() for key in keys.split()}


class ConfigReader:
    """Typed access to a config that records the keys it read.

    Args:
        config: the parsed ``config.json``.
        aliases: other names of keys, as in transformers' ``attribute_map``; a config with
            different values under both names is refused (GG0503).
    """

    def __init__(
        self, config: Mapping[str, object], aliases: Mapping[str, str] | None = None
    ) -> None:
        self.config = dict(config)
        self.used: set[str] = set()
        for other, name in (aliases or {}).items():
            value = self.config.pop(other, None)
            if self.config.get(name) is None:
                self.config[name] = value
            elif value not in (None, self.config[name]):
                raise GraphgenError(
                    "GG0503",
                    f"config: {other} = {value!r} and {name} = {self.config[name]!r} disagree",
                )

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer (GG0503)."""
        value = self._read(key, default, integer(1))
        most = LAYERS if "layer" in key else MOST_COUNT
        if value > bound(most):
            raise _bad(key, value, f"an integer >= 1, {stated(most)}")
        return value

    def width_and_heads(self, defaults: object, width_key: str, heads_key: str) -> tuple[int, int]:
        """The model width and the number of heads, which divides it (GG0503).

        Args:
            defaults: has the default values as attributes.
            width_key: key of the width.
            heads_key: key of the number of heads.
        """
        width = self.integer(width_key, getattr(defaults, width_key))
        heads = self.integer(heads_key, getattr(defaults, heads_key))
        if width % heads:
            what = f"config: {width_key} = {width} is not a multiple of {heads} heads"
            raise GraphgenError("GG0503", what)
        return width, heads

    def read_fields(self, defaults: Fields, **given: object) -> Fields:
        """A configuration: ``given``, and all other fields read under their own names (GG0503).

        Args:
            defaults: a dataclass instance with the default values; the type of a default decides
                between :meth:`boolean`, :meth:`integer` and :meth:`number`.
            given: fields with values that are derived, or of another type.
        """
        values = dict(given)
        for item in fields(defaults):
            if item.name in given:
                continue
            default: object = getattr(defaults, item.name)
            if isinstance(default, bool):
                values[item.name] = self.boolean(item.name, default)
            elif isinstance(default, int):
                values[item.name] = self.integer(item.name, default)
            else:
                assert isinstance(default, float), item.name
                values[item.name] = self.number(item.name, default)
        return replace(defaults, **values)

    def optional_integer(self, key: str) -> int | None:
        """A positive integer, or ``None`` when absent or null (GG0503)."""
        self.used.add(key)
        return None if self.config.get(key) is None else self.integer(key)

    def count(self, key: str, default: int) -> int:
        """An integer, 0 included (GG0503)."""
        return self._read(key, default, integer(0, MOST_COUNT))

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number (GG0503)."""
        return self._read(key, default, number(0, _MOST_NUMBER, open_low=True))

    def boolean(self, key: str, default: bool) -> bool:
        """True or false (GG0503)."""
        return self._read(key, default, boolean())

    def mapping(self, key: str) -> Mapping[str, object] | None:
        """A JSON object, or ``None`` when absent or null (GG0503)."""
        self.used.add(key)
        value = self.config.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise _bad(key, value, "an object")
        return value  # pyright: ignore[reportUnknownVariableType]

    def only(self, key: str, supported: Collection[object], default: object) -> object:
        """A value that must be one of ``supported`` (GG0502)."""
        value = self._get(key, default)
        if value not in supported:
            raise _unsupported(key, value, supported)
        return value

    def choice(self, key: str, supported: Collection[str], default: str) -> str:
        """A name that must be one of ``supported`` (GG0502)."""
        value = self._get(key, default)
        if not isinstance(value, str) or value not in supported:
            raise _unsupported(key, value, supported)
        return value

    def neutral(self, *keys: str) -> None:
        """Accept keys that do not change this family's forward pass at inference."""
        self.used.update(keys)

    def finish(self) -> None:
        """Refuse every unread key, unless it is neutral or switched off (GG0502)."""
        left = {
            key: value
            for key, value in self.config.items()
            if key not in self.used
            and key not in NEUTRAL
            and not key.startswith(("_", "transformers"))
            and value not in (None, False, 0, "", {}, [])
        }
        if left:
            shown = ", ".join(f"{key} = {value!r}" for key, value in sorted(left.items()))
            raise GraphgenError(
                "GG0502",
                f"config: not understood and possibly part of the mathematics: {shown}",
                help="remove keys that do not matter for inference from config.json",
            )

    def _read(self, key: str, default: object, kind: ValueType[T]) -> T:
        value = self._get(key, default)
        try:
            return kind.read(value)
        except MismatchError as error:
            raise _bad(key, value, error.wanted) from None

    def _get(self, key: str, default: object) -> object:
        self.used.add(key)
        value = self.config.get(key)
        if value is None:
            value = default
        if value is None:
            raise GraphgenError("GG0503", f"config: '{key}' is missing")
        return value


def _bad(key: str, value: object, wanted: str) -> GraphgenError:
    return GraphgenError("GG0503", f"config: {key} = {value!r:.80} is not {wanted}")


def _unsupported(key: str, value: object, supported: Collection[object]) -> GraphgenError:
    names = " or ".join(repr(item) for item in supported)
    return GraphgenError(
        "GG0502",
        f"config: {key} = {value!r} changes the mathematics and is not supported",
        help=f"supported: {names}",
    )
