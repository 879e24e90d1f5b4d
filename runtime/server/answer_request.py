"""Make requests of the engine of the fields of a body."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, cast

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.server.answer_grammar import AnswerGrammars, check_grammar_library
from graphgen.runtime.server.api_error import ApiError, refusal
from graphgen.runtime.server.chat_tools import ToolPlan, plan_tools, reader_of, template_messages
from graphgen.runtime.server.request_fields import CHAT_BODY, COMPLETION_BODY, MOST_CHOICES
from graphgen.runtime.serving.request_choice import Mask
from graphgen.runtime.serving.serving_request import ServingRequest
from graphgen.runtime.tokenizer.chat_template import check_arguments
from graphgen.runtime.tokenizer.tokenizer import Tokenizer
from graphgen.runtime.tool_calls.answer_reader import AnswerReader
from graphgen.runtime.tool_calls.default_prompt import with_default_tools

# Fields by name, in their normal form.
Fields = Mapping[str, object]


# Names of adapters that an error lists.
_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model that requests name.

    Attributes:
        name: in ``/v1/models``.
        tokenizer: of the model.
        limit: largest number of tokens of a prompt and its answer together.
        vocabulary: number of token ids.
        created: Unix time.
        grammars: of forms of answers.
        max_prompt: largest number of tokens of a prompt; 0 for the limit alone.
        adapters: gives the files of adapters by name, which requests may give as their model;
            ``None`` for none.
        special_in_messages: messages may spell out special tokens.
        template_arguments: names that the chat template reads; those of a request come first.
    """

    name: str
    tokenizer: Tokenizer
    limit: int
    vocabulary: int
    created: int
    grammars: AnswerGrammars
    max_prompt: int = 0
    adapters: Callable[[], Mapping[str, Path]] | None = None
    special_in_messages: bool = False
    template_arguments: Mapping[str, Json] = field(default_factory=dict[str, Json])

    @property
    def most(self) -> int:
        """Largest number of tokens of a prompt, which leaves room for one of its answer."""
        return min(self.limit - 1, self.max_prompt or self.limit)

    @property
    def names(self) -> list[str]:
        """The names that requests may give as their model: its own, then those of adapters."""
        return [self.name, *(self.adapters() if self.adapters is not None else ())]

    def unknown(self, name: str) -> ApiError:
        """Refuse an unknown name and list the known ones."""
        _, *adapters = self.names
        beside = f" with the adapters {', '.join(adapters[:_LISTED])}" if adapters else ""
        beside += f" and {len(adapters) - _LISTED} more" if len(adapters) > _LISTED else ""
        what = f"The model '{name[:200]}' does not exist; this is '{self.name}'{beside}"
        return ApiError(404, what, param="model", code="model_not_found")


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """One HTTP request as requests of the engine, choice by choice.

    Attributes:
        chat: the endpoint is that of chats.
        requests: one a choice, in the order of their indices.
        prompts: number of prompts; each has as many choices as the others.
        prompt_tokens: of all prompts together.
        stream: answer by events.
        include_usage: the last event has the usage.
        echoes: the text that each choice begins with; empty without ``echo``.
        logged: the prompt of each choice for the log; empty where the log has none.
        prompt_only: answers are the echo alone.
        reader: makes what divides the text of a choice into content, reasoning and calls; ``None``
            for content alone.
        named: each choice is the call of a function that the request names.
        response: of ``/v1/responses``, what the answer states of its request; else ``None``.
    """

    chat: bool
    requests: tuple[ServingRequest, ...]
    prompts: int
    prompt_tokens: int
    stream: bool
    include_usage: bool
    echoes: tuple[str, ...] = ()
    logged: tuple[str, ...] = ()
    prompt_only: bool = False
    reader: Callable[[], AnswerReader] | None = None
    named: bool = False
    response: Mapping[str, Json] | None = None


_numbers = itertools.count(1)


def read_completion(body: Json, model: ServedModel) -> AnswerRequest:
    """The meaning of a body of ``/v1/completions``.

    Raises:
        ApiError: status 400, or 404 for another model.
    """
    fields = COMPLETION_BODY.read(body)
    check_model(fields, model)
    texts = _prompts(fields["prompt"])
    _check_choices(fields, len(texts))
    prompts = [_encoded(text, model) for text in texts]
    logprobs = cast("int | None", fields["logprobs"])
    asked = cast("int | None", _given(body, "max_tokens"))
    if asked == 0 and not fields["echo"]:
        what = "'max_tokens' is 0, which gives nothing without 'echo'"
        raise ApiError(400, what, param="max_tokens", code="integer_below_min_value")
    made = choice_requests(fields, model, prompts, (asked, 16), logprobs)
    made = replace(made, prompt_only=asked == 0)
    if fields["echo"] and logprobs is not None:
        made = replace(
            made, requests=tuple([replace(one, prompt_logprobs=logprobs) for one in made.requests])
        )
    if not fields["echo"]:
        return replace(made, echoes=("",) * len(made.requests))
    shown = [
        model.tokenizer.prompt_text(p) if isinstance(t, tuple) else t
        for t, p in zip(texts, prompts, strict=True)
    ]
    answers = cast(int, fields["n"])
    return replace(made, echoes=tuple(text for text in shown for _ in range(answers)))


def read_chat(body: Json, model: ServedModel) -> AnswerRequest:
    """The meaning of a body of ``/v1/chat/completions``.

    Raises:
        ApiError: status 400, or 404 for another model.
    """
    fields = CHAT_BODY.read(body)
    check_model(fields, model)
    new, old = fields["max_completion_tokens"], fields["max_tokens"]
    if new is not None and old is not None and new != old:
        raise ApiError(
            400,
            "'max_tokens' is the old name of 'max_completion_tokens', and they differ",
            param="max_tokens",
            code="invalid_value",
        )
    asked = cast("int | None", old if new is None else new)
    return chat_request(fields, model, (asked, model.limit), _chat_logprobs(fields))


# Tokens at the end of a prompt that say whether it ends inside of the reasoning.
_END: Final = 16


def chat_request(
    fields: Fields, model: ServedModel, new_tokens: tuple[int | None, int], logprobs: int | None
) -> AnswerRequest:
    """The requests of a conversation.

    Args:
        fields: of the body.
        model: the model.
        new_tokens: as of :func:`choice_requests`.
        logprobs: as of :func:`choice_requests`.

    Raises:
        ApiError: status 400.
    """
    plan = plan_tools(fields, model.tokenizer.chat_template)
    prompt = tuple(_chat_prompt(fields, model, plan))
    if plan.schema is not None:
        form = {"type": "json_schema", "json_schema": {"schema": plan.schema}}
        fields = {**fields, "response_format": form}
    try:
        made = choice_requests(fields, model, [prompt], new_tokens, logprobs)
    except ApiError as error:
        if plan.schema is None or error.code != "invalid_json_schema":
            raise
        raise ApiError(400, error.message, param="tools", code=error.code) from error
    kept = () if plan.reader is None or plan.schema is not None else tuple(plan.reader.special)
    # As in transformers, which decodes the new tokens: the template's text is not gone on from.
    own = [replace(one, text_of_its_own=True, kept_special=kept) for one in made.requests]
    end = model.tokenizer.decode(prompt[-_END:], skip_special=False)
    return replace(
        made,
        chat=True,
        requests=tuple(own),
        echoes=("",) * len(own),
        reader=reader_of(plan, end),
        named=plan.named,
    )


def _chat_prompt(fields: Fields, model: ServedModel, plan: ToolPlan) -> list[int]:
    """The token ids of a conversation (status 400)."""
    template = model.tokenizer.chat_template
    given = dict(cast("Mapping[str, Json]", fields["chat_template_kwargs"]))
    try:
        check_arguments(given)
    except GraphgenError as error:
        raise refusal(error, "chat_template_kwargs") from error
    effort = cast("str | None", fields["reasoning_effort"])
    if effort is not None:
        if "reasoning_effort" not in (template or ""):
            what = "the chat template of this model reads no 'reasoning_effort'; leave it out"
            raise ApiError(400, what, param="reasoning_effort", code="unsupported_parameter")
        given["reasoning_effort"] = effort
    messages = template_messages(cast("Sequence[Fields]", fields["messages"]), template)
    encode = partial(
        model.tokenizer.encode_chat,
        most=model.most,
        special_in_messages=model.special_in_messages,
        arguments={**model.template_arguments, **given},
        tools=plan.shown,
    )
    forms = _message_forms(messages, plan)
    for form in forms[:-1]:
        with suppress(_UnrenderedError):
            return _rendered(encode, form)
    try:
        return _rendered(encode, forms[-1])
    except _UnrenderedError as error:
        raise error.refusal from error


class _UnrenderedError(Exception):
    """The template refuses messages; the next form of them may do."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def _rendered(
    encode: Callable[[Sequence[Mapping[str, Json]]], list[int]],
    messages: Sequence[Mapping[str, Json]],
) -> list[int]:
    try:
        return encode(messages)
    except GraphgenError as error:
        made = refusal(error, None if error.code == "GG0701" else "messages")
        raise (_UnrenderedError(made) if error.code == "GG0603" else made) from error


def _message_forms(
    messages: Sequence[dict[str, Json]], plan: ToolPlan
) -> list[Sequence[Mapping[str, Json]]]:
    """The messages in the forms to try, one after the other."""
    forms: list[Sequence[Mapping[str, Json]]] = [messages]
    if plan.prompt:
        # Some templates refuse a system message.
        forms = [with_default_tools(messages, plan.prompt, role=one) for one in ("system", "user")]
    elif any(message["content"] is None for message in messages):
        # Some templates read the content of calls without a text, too.
        forms.append([{**one, "content": one["content"] or ""} for one in messages])
    return forms


def _given(body: Json, name: str) -> Json:
    assert isinstance(body, Mapping)
    return body.get(name)


def check_model(fields: Fields, model: ServedModel) -> None:
    """Refuse another model than this one and its adapters (status 404); none means this one."""
    if fields["model"] not in (None, *model.names):
        raise model.unknown(str(fields["model"]))


def _prompts(value: object) -> list[str | tuple[int, ...]]:
    """Each prompt of the field, as text or as token ids."""
    if isinstance(value, str):
        return [value]
    items = cast("tuple[object, ...]", value)
    if isinstance(items[0], int):
        return [cast("tuple[int, ...]", items)]
    return cast("list[str | tuple[int, ...]]", list(items))


def _check_choices(fields: Fields, prompts: int) -> None:
    """Refuse more choices than an answer may have (status 400)."""
    answers = cast(int, fields["n"])
    if answers * prompts > MOST_CHOICES:
        what = f"{prompts} prompts with {answers} answers are more than {MOST_CHOICES} choices"
        raise ApiError(400, what, param="n", code="invalid_value")


def _encoded(prompt: str | tuple[int, ...], model: ServedModel) -> tuple[int, ...]:
    if isinstance(prompt, str):
        try:
            tokens = tuple(model.tokenizer.encode(prompt, most=model.most))
        except GraphgenError as error:
            raise refusal(error) from error
        if not tokens:
            raise ApiError(400, "'prompt' has no token", param="prompt", code="empty_prompt")
        return tokens
    above = next((token for token in prompt if token >= model.vocabulary), None)
    if above is not None:
        what = f"'prompt' has the token {above}; token ids are below {model.vocabulary}"
        raise ApiError(400, what, param="prompt", code="invalid_value")
    return prompt


def _chat_logprobs(fields: Fields) -> int | None:
    """Number of most probable tokens, which the chat endpoint has as two fields."""
    top = cast("int | None", fields["top_logprobs"])
    if fields["logprobs"]:
        return top or 0
    if top is not None:
        what = "'top_logprobs' is only for logprobs = true"
        raise ApiError(400, what, param="top_logprobs", code="invalid_value")
    return None


def choice_requests(
    fields: Fields,
    model: ServedModel,
    prompts: Sequence[tuple[int, ...]],
    new_tokens: tuple[int | None, int],
    logprobs: int | None,
) -> AnswerRequest:
    """The requests of all choices.

    Args:
        fields: of the body.
        model: the model.
        prompts: token ids of each prompt.
        new_tokens: largest number of new tokens if it is given; and where it is not, when there are
            as many slots.
        logprobs: number of most probable tokens; ``None`` for no log probabilities.
    """
    answers = cast(int, fields["n"])
    count = answers * len(prompts)
    name, like = next(_numbers), _settings(fields, model, logprobs)
    masks = _masks(fields, model, count)
    requests = [
        replace(
            like,
            id=f"{name}-{place}",
            prompt=prompt,
            max_new_tokens=_new_tokens(len(prompt), *new_tokens, model.limit),
            sampling=_seeded(like.sampling, place % answers),
            mask=masks[place],
        )
        for place, prompt in enumerate(p for p in prompts for _ in range(answers))
    ]
    return AnswerRequest(
        False,
        tuple(requests),
        len(prompts),
        sum(map(len, prompts)),
        bool(fields["stream"]),
        _include_usage(fields),
    )


def _settings(fields: Fields, model: ServedModel, logprobs: int | None) -> ServingRequest:
    """A request with the settings that all choices share."""
    bias = cast("Mapping[int, float]", fields["logit_bias"])
    above = next((token for token in bias if token >= model.vocabulary), None)
    if above is not None:
        what = f"'logit_bias' has the token {above}; token ids are below {model.vocabulary}"
        raise ApiError(400, what, param="logit_bias", code="invalid_value")
    return ServingRequest(
        "",
        (),
        eos_ids=_ends(fields, model),
        sampling=_sampling(fields),
        priority=cast(int, fields["priority"]),
        stop=_stops(fields),
        logprobs=logprobs,
        logit_bias=bias,
        frequency_penalty=cast(float, fields["frequency_penalty"]),
        presence_penalty=cast(float, fields["presence_penalty"]),
        adapter="" if fields["model"] in (None, model.name) else str(fields["model"]),
        skip_special=bool(fields["skip_special_tokens"]),
    )


def _stops(fields: Fields) -> tuple[str, ...]:
    stop = fields["stop"]
    return (stop,) if isinstance(stop, str) else cast("tuple[str, ...]", stop)


def _ends(fields: Fields, model: ServedModel) -> frozenset[int]:
    """The tokens that end the answer: EOS, those given, and stop strings that are special tokens.

    The text that stop strings are found in has no special tokens.
    """
    given = cast("tuple[int, ...]", fields["stop_token_ids"])
    above = next((token for token in given if token >= model.vocabulary), None)
    if above is not None:
        what = f"'stop_token_ids' has the token {above}; token ids are below {model.vocabulary}"
        raise ApiError(400, what, param="stop_token_ids", code="invalid_value")
    special = [model.tokenizer.special_ids.get(text) for text in _stops(fields)]
    ends = {token for token in (*given, *special) if token is not None}
    return frozenset(ends) if fields["ignore_eos"] else model.tokenizer.eos_ids | ends


def _seeded(sampling: Sampling, answer: int) -> Sampling:
    """The settings of one of several answers to a prompt, with random numbers of its own."""
    if not sampling.do_sample:
        return sampling
    return replace(sampling, seed=(sampling.seed + answer) % (1 << 64))


def _masks(fields: Fields, model: ServedModel, count: int) -> Sequence[Mask | None]:
    form = cast("Fields | None", fields["response_format"])
    if form is None or form["type"] == "text":
        return [None] * count
    if fields["ignore_eos"]:
        what = "'ignore_eos' contradicts 'response_format', which ends the answer"
        raise ApiError(400, what, param="ignore_eos", code="invalid_value")
    check_grammar_library()
    return model.grammars.masks(form, count)


def _new_tokens(prompt: int, asked: int | None, default: int, limit: int) -> int:
    """The largest number of new tokens after a prompt (status 400 where they have no room)."""
    room = limit - prompt
    if room < 1 or (asked or 0) > room:
        new = f" and {asked} new tokens" if asked else ""
        raise ApiError(
            400,
            f"This model's maximum context length is {limit} tokens, and the request has "
            f"{prompt} tokens in the prompt{new}",
            param="max_tokens" if asked and room > 0 else None,
            code="context_length_exceeded",
        )
    # Of a prompt alone the token is left out of the answer.
    return min(room, default if asked is None else max(asked, 1))


def _include_usage(fields: Fields) -> bool:
    options = cast("Fields | None", fields["stream_options"])
    if options is None:
        return False
    if not fields["stream"]:
        raise ApiError(
            400,
            "'stream_options' is only for stream = true",
            param="stream_options",
            code="invalid_value",
        )
    return bool(options["include_usage"])


def _sampling(fields: Fields) -> Sampling:
    """The sampling settings; a seed that is not given is random."""
    seed = fields["seed"]
    top_p = cast(float, fields["top_p"])
    try:
        return Sampling(
            repetition_penalty=cast(float, fields["repetition_penalty"]),
            do_sample=fields["temperature"] != 0 and top_p > 0,
            temperature=cast(float, fields["temperature"]),
            top_k=cast(int, fields["top_k"]),
            top_p=top_p or 1.0,
            min_p=cast(float, fields["min_p"]),
            seed=secrets.randbits(63) if seed is None else cast(int, seed) % (1 << 64),
        )
    except GraphgenError as error:
        raise refusal(error) from error
