"""The fields of the bodies of both endpoints; the OpenAPI document is made of the same tables.

Fields of OpenAI's API are of three sorts:

* read: they change the answer;
* labels (``user``, ``metadata``, ...): accepted, without effect on the answer;
* not built (``suffix``, ``audio``, ...): refused by name, unless their value requests nothing.

Every other field is refused with near names. ``top_k``, ``min_p``, ``repetition_penalty``,
``ignore_eos``, ``stop_token_ids``, ``skip_special_tokens`` and ``priority`` are fields beyond
OpenAI's, with the names that vLLM gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphgen.config.fields import (
    MismatchError,
    TypedField,
    ValueType,
    at_step,
    number,
    text,
    value_type,
    words,
)
from graphgen.json_value import Json
from graphgen.runtime.server.chat_fields import MESSAGE, TOOL_CHOICE, TOOLS
from graphgen.runtime.server.field_kinds import (
    ANY_OBJECT,
    BOOLEAN,
    TEXT,
    array,
    as_object,
    body_field,
    either,
    integer,
    not_built,
    read_body,
    record,
    unknown_field,
)

MOST_TOKENS = 1 << 24
MOST_CHOICES = 128
TOKEN_ID = integer(0, (1 << 31) - 1)
_TOKENS = array(TOKEN_ID, "token ids")
_STOP_IDS = array(TOKEN_ID, "token ids", smallest=0, largest=1024)


def _prompt_kind(value: Json) -> ValueType[Any] | None:
    if isinstance(value, str):
        return TEXT
    if not isinstance(value, list) or not value:
        return None
    if isinstance(value[0], str):
        return _TEXTS
    return _TOKEN_LISTS if isinstance(value[0], list) else _TOKENS


_TEXTS = array(TEXT, "strings", largest=MOST_CHOICES)
_TOKEN_LISTS = array(_TOKENS, "arrays of token ids", largest=MOST_CHOICES)
PROMPT = either(
    "a string, or an array of strings, of token ids, or of arrays of token ids",
    _prompt_kind,
    TEXT,
    _TEXTS,
    _TOKENS,
    _TOKEN_LISTS,
)
_STOPS = array(text(1), "strings", smallest=0, largest=4)
STOP = either(
    "a string, or an array of up to 4 strings",
    lambda value: text(1) if isinstance(value, str) else _STOPS if _is_list(value) else None,
    text(1),
    _STOPS,
)


def _is_list(value: Json) -> bool:
    return isinstance(value, list)


def _read_biases(value: object) -> dict[int, float]:
    made: dict[int, float] = {}
    for key, entry in as_object(value).items():
        if not (key.isascii() and key.isdecimal() and len(key) < 10):
            raise MismatchError("text", "token ids as keys")
        made[int(key)] = at_step(_BIAS.read, entry, key)
    if len(made) > 1024:
        raise MismatchError("text", "at most 1024 tokens")
    return made


_BIAS = number(-100, 100)
LOGIT_BIAS = value_type(
    _read_biases,
    "an object of numbers by token id",
    "object",
    {
        "type": "object",
        "patternProperties": {"^[0-9]{1,9}$": _BIAS.schema},
        "additionalProperties": False,
        "maxProperties": 1024,
    },
)
STREAM_OPTIONS = record(
    (
        body_field("include_usage", BOOLEAN, "A last event has the usage.", False),
        body_field("include_obfuscation", BOOLEAN, "Accepted; nothing is obfuscated.", False),
    )
)
_JSON_SCHEMA = record(
    (
        body_field("name", text(1), "Of the schema; a label.", required=True),
        body_field("description", TEXT, "Of the schema; a label."),
        body_field("schema", ANY_OBJECT, "JSON Schema that the answer matches."),
        body_field("strict", BOOLEAN, "The answer always matches the schema.", False),
    )
)
RESPONSE_FORMAT = record(
    (
        body_field(
            "type",
            words("text", "json_object", "json_schema"),
            "Form of the answer.",
            required=True,
        ),
        body_field("json_schema", _JSON_SCHEMA, "With the type json_schema."),
    )
)

_COMMON = (
    body_field("model", text(1), "As /v1/models lists it; the served model where it is left out."),
    body_field("n", integer(1, MOST_CHOICES), "Answers to a prompt.", 1),
    body_field("temperature", number(0, 2), "Scores are divided by it; 0 for the best token.", 1.0),
    body_field("top_p", number(0, 1), "Keep tokens that together have this probability.", 1.0),
    body_field("top_k", integer(-1, MOST_TOKENS), "Keep the best tokens; 0 or -1 for all.", 0),
    body_field("min_p", number(0, 1), "Keep tokens with this fraction of the best one's.", 0.0),
    body_field(
        "repetition_penalty", number(0.01, 100), "Of tokens that the text has already.", 1.0
    ),
    body_field(
        "frequency_penalty", number(-2, 2), "Of tokens that the answer has, each time.", 0.0
    ),
    body_field("presence_penalty", number(-2, 2), "Of tokens that the answer has, once.", 0.0),
    body_field("ignore_eos", BOOLEAN, "Go on after the end token.", False),
    body_field("stop_token_ids", _STOP_IDS, "Tokens that end the answer, without its text.", ()),
    body_field("skip_special_tokens", BOOLEAN, "The text has no special tokens.", True),
    body_field("priority", integer(-100, 100), "Requests of smaller ones go first.", 0),
    body_field("seed", integer(-(1 << 63), (1 << 63) - 1), "Of random numbers; default: random."),
    body_field("stop", STOP, "Texts that end the answer, without being part of it.", ()),
    body_field("stream", BOOLEAN, "Send tokens as events.", False),
    body_field("stream_options", STREAM_OPTIONS, "Only with stream."),
    body_field("logit_bias", LOGIT_BIAS, "Added to the scores of tokens.", {}),
    body_field("response_format", RESPONSE_FORMAT, "Form of the answer."),
)
COMPLETION_FIELDS = (
    *_COMMON,
    body_field("prompt", PROMPT, "One prompt or several, as text or token ids.", required=True),
    body_field("max_tokens", integer(0, MOST_TOKENS), "Most new tokens; 0 with echo alone.", 16),
    body_field("logprobs", integer(0, 5), "Log probabilities of this many best tokens."),
    body_field("echo", BOOLEAN, "Answers begin with the prompt.", False),
)


EFFORTS = words("none", "minimal", "low", "medium", "high", "xhigh", "max")
CHAT_FIELDS = (
    *_COMMON,
    body_field(
        "messages", array(MESSAGE, "messages", largest=4096), "The conversation.", required=True
    ),
    body_field("tools", TOOLS, "Functions that the answer may call.", ()),
    body_field("tool_choice", TOOL_CHOICE, "Whether it calls them: auto where there are tools."),
    body_field("parallel_tool_calls", BOOLEAN, "The answer may have several calls.", True),
    body_field("reasoning_effort", EFFORTS, "For chat templates that read it."),
    body_field(
        "chat_template_kwargs", ANY_OBJECT, "Names of the chat template with their values.", {}
    ),
    body_field("max_completion_tokens", integer(1, MOST_TOKENS), "Largest number of new tokens."),
    body_field("max_tokens", integer(1, MOST_TOKENS), "Old name of max_completion_tokens."),
    body_field("logprobs", BOOLEAN, "Log probabilities of the tokens.", False),
    body_field("top_logprobs", integer(0, 20), "This many best tokens; with logprobs."),
)
# Fields without effect on the answer.
LABELS = (
    *("user", "metadata", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
)
# Fields that are not built, and the values with which they request nothing, beside null.
UNBUILT: Mapping[str, tuple[Json, ...]] = {
    "suffix": ("",),
    "best_of": (),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "verbosity": (),
    "web_search_options": (),
    "moderation": (),
    "length_penalty": (1, 1.0),
    "use_beam_search": (False,),
}


class BodyTable:
    """The fields of one endpoint's body.

    Args:
        fields: those that are read.
        labels: those without effect.
        unbuilt: those that are not built, with the values that request nothing.
    """

    def __init__(
        self,
        *fields: TypedField[Any],
        labels: Sequence[str] = LABELS,
        unbuilt: Mapping[str, tuple[Json, ...]] = UNBUILT,
    ) -> None:
        self._kind = record(fields)
        self._type = value_type(self._read, "an object", "object", self._kind.schema)
        self._labels = labels
        self._unbuilt = unbuilt
        self._names = [*(row.name for row in fields), *labels, *unbuilt]

    def read(self, body: Json) -> dict[str, object]:
        """The values of all fields.

        Raises:
            ApiError: status 400 for a field that is unknown, missing, not built, or of another
                type.
        """
        return read_body(self._type, body)

    def _read(self, body: object) -> dict[str, object]:
        given = dict(as_object(body))
        for name in tuple(given):
            if name not in self._names:
                raise unknown_field(name, self._names)
            if name in self._unbuilt:
                self._check_unbuilt(name, given.pop(name), given.get("n"))
            elif name in self._labels:
                del given[name]
        return self._kind.read(given)

    @property
    def schema(self) -> Mapping[str, Json]:
        """The body as JSON Schema; labels may have any value."""
        schema = dict(self._kind.schema)
        properties = schema["properties"]
        assert isinstance(properties, Mapping)
        labels: dict[str, Json] = {
            name: {"description": "A label without effect on the answer."} for name in self._labels
        }
        unbuilt: dict[str, Json] = {
            name: {"enum": [None, *values], "description": "Not built."}
            for name, values in self._unbuilt.items()
        }
        return {**schema, "properties": {**properties, **labels, **unbuilt}}

    def _check_unbuilt(self, name: str, value: Json, answers: Json) -> None:
        """Refuse a field that is not built, unless its value requests nothing."""
        nothing = self._unbuilt[name]
        if value is None or any(type(value) is type(one) and value == one for one in nothing):
            return
        if name == "best_of" and type(value) is int and value == (answers or 1):
            return
        raise not_built((name,))


COMPLETION_BODY = BodyTable(*COMPLETION_FIELDS)
CHAT_BODY = BodyTable(*CHAT_FIELDS)
