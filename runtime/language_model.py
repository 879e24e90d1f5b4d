"""A language model in Python: prompts in, texts and tokens out, many of them at a time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import zip_longest
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, TypedDict, Unpack, cast, overload

import numpy as np
import numpy.typing as npt

from graphgen.config.fields import number, text
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.runtime.engine import Engine, locate_checkpoint
from graphgen.runtime.progress import Progress
from graphgen.runtime.server.answer_grammar import AnswerGrammars
from graphgen.runtime.server.answer_request import (
    AnswerRequest,
    Fields,
    ServedModel,
    chat_request,
    choice_requests,
)
from graphgen.runtime.server.api_error import ApiError
from graphgen.runtime.server.field_kinds import (
    ANY_OBJECT,
    TEXT,
    array,
    body_field,
    either,
    integer,
    read_body,
    record,
)
from graphgen.runtime.server.request_fields import CHAT_FIELDS, COMPLETION_FIELDS, MOST_TOKENS
from graphgen.runtime.serving.request_choice import TokenLogprobs
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest, TokenEvent
from graphgen.runtime.session.buckets import bucket_limit
from graphgen.runtime.tool_calls.answer_reader import AnswerParts, AnswerReader

if TYPE_CHECKING:
    from graphgen.runtime.accuracy.perplexity import Perplexity
    from graphgen.runtime.session.session import Session
    from graphgen.runtime.tokenizer.tokenizer import Tokenizer

# A prompt: text, or token ids.
Prompt = str | Sequence[int]
# Several prompts.
Prompts = list[str] | tuple[str, ...] | Sequence[Sequence[int]]
# A turn of a conversation: ``role``, ``content``, and the further fields of OpenAI's messages.
Message = Mapping[str, Json]


class GenerateOptions(TypedDict, total=False):
    """The options of answers, with the names of the server; each may be left out.

    Attributes:
        max_new_tokens: most tokens of an answer, 128 by default.
        temperature: scores are divided by it; 0, the default, takes the best token each time.
        top_k, top_p, min_p: filters of the tokens that are drawn from.
        repetition_penalty: of tokens that prompt or answer have; 1 for none.
        frequency_penalty, presence_penalty: of tokens that the answer has, as in OpenAI's API.
        logit_bias: added to the scores of tokens, by token id.
        seed: of the random numbers, for all prompts or one for each; by default random.
        stop: a text or several that end the answer, without being part of it.
        stop_token_ids: tokens that end the answer.
        ignore_eos: go on after the end token.
        skip_special_tokens: the text has no special tokens, the default.
        logprobs: log probabilities of each token and of this many best ones.
        prompt_logprobs: the same for the tokens of the prompt, which is read token by token then.
        schema: a JSON schema that the answer matches.
    """

    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float]
    seed: int | Sequence[int]
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    skip_special_tokens: bool
    logprobs: int
    prompt_logprobs: int
    schema: Mapping[str, Json]


_SEED = integer(0, (1 << 63) - 1)
_SEEDS = array(_SEED, "seeds", largest=MOST_TOKENS)
_TEXTS = array(text(1), "strings", smallest=0, largest=1024)
_FIELDS: Final = {row.name: row for row in COMPLETION_FIELDS}
# Options that mean what the fields of the same name mean in a request.
_SHARED: Final = (
    *("top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty"),
    *("logit_bias", "stop_token_ids", "ignore_eos", "skip_special_tokens"),
)
_OPTIONS: Final = record(
    (
        body_field("max_new_tokens", integer(1, MOST_TOKENS), default=128),
        body_field("temperature", number(0, 1e6), default=0.0),
        body_field(
            "seed",
            either(
                "an integer, or one for each prompt",
                lambda value: _SEEDS if isinstance(value, list) else _SEED,
                *(_SEED, _SEEDS),
            ),
        ),
        body_field(
            "stop",
            either(
                "a string, or several",
                lambda value: _TEXTS if isinstance(value, list) else text(1),
                *(TEXT, _TEXTS),
            ),
            default=(),
        ),
        body_field("logprobs", integer(0, MOST_TOKENS)),
        body_field("prompt_logprobs", integer(0, MOST_TOKENS)),
        body_field("schema", ANY_OBJECT),
        *(_FIELDS[name] for name in _SHARED),
    )
)
_TURNS: Final = (
    *("messages", "tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs"),
)
_CHAT: Final = record(row for row in CHAT_FIELDS if row.name in _TURNS)
# Makes requests of fields, the largest number of new tokens, and the number of log probabilities.
_Make = Callable[[Fields, int, int | None], AnswerRequest]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a function by an answer.

    Attributes:
        id: of the call; the message with its result has it as ``tool_call_id``.
        name: of the function.
        arguments: a JSON text, as the model has written it.
    """

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one prompt; ``str`` of it is its text.

    Attributes:
        text: of the answer, cut before a stop string.
        tokens: the new tokens, the ending one included.
        finish_reason: ``eos`` for a token that ends answers, ``stop`` for a stop string, ``length``
            for ``max_new_tokens`` or a full row.
        prompt_tokens: token ids of the prompt.
        logprobs: of each token, where they are requested.
        prompt_logprobs: of each token of the prompt after the first, where they are requested.
        reasoning: of a chat, the text before the answer itself.
        tool_calls: of a chat, the functions that the answer calls.
    """

    text: str
    tokens: list[int]
    finish_reason: str
    prompt_tokens: list[int]
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list["ToolCall"])

    def __str__(self) -> str:
        return self.text


class AnswerStream(Iterator[str]):
    """An answer while it is made: an iterator of the pieces of its text.

    Several streams of one model go on beside each other, whichever is read. One that is closed, or
    forgotten, frees its row.
    """

    def __init__(
        self, queue: _RequestQueue, request: ServingRequest, reader: AnswerReader | None = None
    ) -> None:
        self._progress: Final = _Progress(request, reader)
        self._queue: Final = queue
        queue.submit([request])

    def __iter__(self) -> AnswerStream:
        return self

    def __next__(self) -> str:
        """The next piece of the text, which has whole characters only."""
        while not self._progress.finish:
            piece = self._progress.take(self._queue.next(self._progress.request.id))
            if piece:
                return piece
        raise StopIteration

    @property
    def answer(self) -> Answer:
        """The whole answer; what is left of it is made first."""
        for _ in self:
            pass
        return self._progress.answer

    def close(self) -> None:
        """End the answer, and free its row."""
        self._queue.cancel([self._progress.request])

    def __del__(self) -> None:
        if hasattr(self, "_progress"):
            self._queue.forget(self._progress.request)


class LanguageModel:
    """An opened model: generates text, and gives logits and perplexities.

    It may be used by several threads: their prompts are answered together. Use it in a ``with``
    block, or call :meth:`close`, to free its memory before it is forgotten.

    Args:
        engine: the opened model.
        name: path or name that it was opened by.
        progress: notified of long tasks.

    Attributes:
        name: as given.
        tokenizer: of the model.
        engine: programs, weights and cache; closed models have none.
    """

    def __init__(self, engine: Engine, name: str, progress: Progress) -> None:
        self.name: Final = name
        self.tokenizer: Final[Tokenizer] = engine.tokenizer
        self.engine: Engine | None = engine
        self._progress: Final = progress
        self._queue: Final = _RequestQueue(ServingEngine(engine.session, tokenizer=self.tokenizer))
        vocabulary = engine.session.token_ids or self.tokenizer.vocab_size
        self._served: Final = ServedModel(
            name,
            self.tokenizer,
            engine.session.limit,
            vocabulary,
            0,
            AnswerGrammars(self.tokenizer, vocabulary),
        )
        self._every_token: Session | None = None

    def __repr__(self) -> str:
        if self.engine is None:
            return f"<LanguageModel {self.name}, closed>"
        settings, session = self.engine.model.settings, self.engine.session
        return (
            f"<LanguageModel {self.name}, {settings.dtype}, tp {settings.tp}, {session.rows} rows "
            f"of {session.limit} tokens>"
        )

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free programs, weights and caches; open answers end. A second call changes nothing."""
        if self.engine is None:
            return
        self._queue.close()
        for session in (self.engine.session, self._every_token):
            if session is not None:
                session.devices.values.clear()
        self.engine = self._every_token = None

    @overload
    def generate(
        self,
        prompts: Prompt,
        *,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Answer: ...

    @overload
    def generate(
        self,
        prompts: Prompt,
        *,
        stream: Literal[True],
        **options: Unpack[GenerateOptions],
    ) -> AnswerStream: ...

    @overload
    def generate(
        self,
        prompts: Prompts,
        *,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Answer]: ...

    def generate(
        self,
        prompts: Prompt | Prompts,
        *,
        stream: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Answer | AnswerStream | list[Answer]:
        """Answer prompts; several are answered together, in the rows of the cache.

        Tokens do not depend on the other prompts. The text of an answer goes on from that of the
        prompt: joined they are the text of all tokens.

        Args:
            prompts: one prompt or several, as text or as token ids.
            stream: return an iterator of the text while it is made; for one prompt.
            options: of :class:`GenerateOptions`.

        Returns:
            An answer for one prompt, a list of answers for several.

        Raises:
            GraphgenError: GG0702 for an empty prompt, GG0701 for one that has no room, GG0706 for a
                token outside of the vocabulary, GG0705 for an option that is unknown, out of range
                or without effect, and for a closed model; GG0711 where a launch fails.
        """
        self._require_open()
        single, given = _prompts_of(prompts)
        if stream and not single:
            raise GraphgenError(
                "GG0705",
                "stream=True is for one prompt",
                help="[model.generate(prompt, stream=True) for prompt in prompts] streams several",
            )
        requests = self._requests([self._encoded(prompt) for prompt in given], options)
        if stream:
            return AnswerStream(self._queue, requests[0])
        answers = self._queue.answers(requests)
        return answers[0] if single else answers

    @overload
    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Json]] = (),
        tool_choice: str | Mapping[str, Json] | None = None,
        parallel_tool_calls: bool = True,
        template_args: Mapping[str, Json] | None = None,
        stream: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> Answer: ...

    @overload
    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Json]] = (),
        tool_choice: str | Mapping[str, Json] | None = None,
        parallel_tool_calls: bool = True,
        template_args: Mapping[str, Json] | None = None,
        stream: Literal[True],
        **options: Unpack[GenerateOptions],
    ) -> AnswerStream: ...

    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Json]] = (),
        tool_choice: str | Mapping[str, Json] | None = None,
        parallel_tool_calls: bool = True,
        template_args: Mapping[str, Json] | None = None,
        stream: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> Answer | AnswerStream:
        """Answer a conversation, rendered with the model's chat template.

        Special tokens that a message spells out are text, as for the server.

        Args:
            messages: the turns, with the fields of OpenAI's messages.
            tools: functions that the answer may call, as OpenAI's API describes them.
            tool_choice: ``none``, ``auto``, ``required``, or an object that names a function.
            parallel_tool_calls: the answer may have several calls.
            template_args: names that the template reads, such as ``enable_thinking``.
            stream: return an iterator of the text while it is made.
            options: of :class:`GenerateOptions`.

        Raises:
            GraphgenError: as :meth:`generate`; GG0603 if the model has no chat template or it
                fails.
        """
        self._require_open()
        given = {
            "messages": _plain(messages),
            "tools": _plain(tools),
            "tool_choice": _plain(tool_choice),
            "parallel_tool_calls": parallel_tool_calls,
            "chat_template_kwargs": _plain(template_args),
        }
        with _with_codes():
            turns = cast("Fields", read_body(_CHAT, cast("Json", given)))
        made = self._asked(options, lambda f, new, log: self._chat(f, turns, new, log), 1)
        request, reader = made.requests[0], made.reader and made.reader()
        if stream:
            return AnswerStream(self._queue, request, reader)
        return self._queue.answers([request], [reader])[0]

    def _chat(
        self, fields: Fields, turns: Fields, new_tokens: int, logprobs: int | None
    ) -> AnswerRequest:
        found = {**fields, **turns, "reasoning_effort": None}
        if turns["tools"] and turns["tool_choice"] != "none":
            _require_grammars("tools")
        return chat_request(found, self._served, (None, new_tokens), logprobs)

    def logits(self, ids: Prompt) -> npt.NDArray[np.float32]:
        """The logits after each token of a text, f32 [S,V].

        A call that is longer than those before compiles a program that gives the logits of every
        token.

        Args:
            ids: token ids, or a text.

        Raises:
            GraphgenError: as :meth:`generate`; GG0705 for an artifact, which has no such program.
        """
        self._require_open()
        tokens = self._encoded(ids)
        if not tokens:
            raise GraphgenError("GG0702", "the text is empty", help="give at least one token")
        self._check_room(len(tokens), self._served.limit)
        session = self._every_token_session(len(tokens))
        session.reset()
        return np.array(session.prefill([tokens])[0][: len(tokens)], np.float32)

    def perplexity(self, text: str, *, window: int = 256) -> float:
        """The perplexity of a text: exp(mean of -log p(token | earlier tokens of its window)).

        Args:
            text: at least two tokens.
            window: tokens that are read together, as of ``graphgen perplexity``.

        Raises:
            GraphgenError: GG0702 for a text of fewer than two tokens, GG0705 for a window that the
                model does not take; as :meth:`logits`.
        """
        return self.measured_perplexity(text, window=window).value

    def measured_perplexity(self, text: str, *, window: int = 256) -> Perplexity:
        """As :meth:`perplexity`, with the numbers that it is made of."""
        # Only here: text is generated without measuring it.
        from graphgen.runtime.accuracy.perplexity import read_windows, session_perplexity

        engine = self._require_open()
        self._require_checkpoint(engine)
        windows = read_windows(locate_checkpoint(self.name), text, window)
        self._check_room(len(windows[0]), self._served.limit)
        session = self._every_token_session(len(windows[0]))
        return session_perplexity(session, windows, engine.model.settings, self._progress)

    def _require_open(self) -> Engine:
        if self.engine is None:
            what = f"the model {self.name} is closed"
            raise GraphgenError("GG0705", what, help="graphgen.load opens it again")
        return self.engine

    def _require_checkpoint(self, engine: Engine) -> None:
        if engine.from_artifact:
            raise GraphgenError(
                "GG0705",
                "an artifact has no program that gives the logits of every token",
                help="load the checkpoint, or give prompt_logprobs to generate",
            )

    def _every_token_session(self, tokens: int) -> Session:
        """A session whose program gives the logits of every token, kept for shorter texts."""
        # Only here: text is generated without it.
        from graphgen.runtime.accuracy.perplexity import every_token_session

        engine = self._require_open()
        self._require_checkpoint(engine)
        if self._every_token is None or self._every_token.slots < tokens:
            self._every_token = every_token_session(
                locate_checkpoint(self.name),
                bucket_limit(tokens, engine.session.limit),
                replace(engine.model.settings, chunk=(), rows=0, prefill_batch=()),
                self._progress,
                engine.session,
            )
        return self._every_token

    def _encoded(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return tuple(self.tokenizer.encode(prompt))
        return tuple([int(token) for token in prompt])

    def _check_room(self, tokens: int, most: int) -> None:
        if tokens > most:
            raise GraphgenError(
                "GG0701",
                f"{tokens} tokens, and {most} fit in a row of the cache",
                help=f"graphgen.load(..., max_len={tokens + self._served.limit - most}) has longer "
                "rows",
            )

    def _requests(
        self, prompts: Sequence[tuple[int, ...]], options: GenerateOptions
    ) -> list[ServingRequest]:
        """The requests of prompts with the same options (GG0701, GG0705)."""
        for prompt in prompts:
            self._check_room(len(prompt), self._served.most)

        def make(fields: Fields, new_tokens: int, logprobs: int | None) -> AnswerRequest:
            return choice_requests(fields, self._served, prompts, (None, new_tokens), logprobs)

        return list(self._asked(options, make, len(prompts)).requests)

    def _asked(self, options: GenerateOptions, make: _Make, prompts: int) -> AnswerRequest:
        """The requests that ``make`` makes of the options, with a seed for each prompt (GG0705)."""
        fields, new_tokens = self._fields(options)
        seeds = cast("int | tuple[int, ...] | None", fields["seed"])
        each = seeds if isinstance(seeds, tuple) else None
        if each is not None and len(each) != prompts:
            what = f"{len(each)} seeds for {prompts} prompt{'s' * (prompts > 1)}"
            raise GraphgenError("GG0705", what, help="give one for all, or one for each")
        logprobs = cast("int | None", fields["logprobs"])
        with _with_codes():
            made = make({**fields, "seed": 0 if each else seeds}, new_tokens, logprobs)
        own = cast("int | None", fields["prompt_logprobs"])
        requests = [
            replace(
                request,
                prompt_logprobs=own,
                sampling=replace(request.sampling, seed=each[place]) if each else request.sampling,
            )
            for place, request in enumerate(made.requests)
        ]
        return replace(made, requests=tuple(requests))

    def _fields(self, options: GenerateOptions) -> tuple[Fields, int]:
        """The options as fields of a request, and the largest number of new tokens (GG0705)."""
        given: dict[str, object] = {name: _plain(value) for name, value in options.items()}
        with _with_codes():
            fields = read_body(_OPTIONS, cast("Json", given))
        schema = fields.pop("schema")
        if schema is not None:
            _require_grammars("schema")
        if fields["temperature"] == 0:
            _check_greedy(given)
        form = {"type": "json_schema", "json_schema": {"schema": schema}}
        fields |= {
            "model": self.name,
            "n": 1,
            "priority": 0,
            "stream": False,
            "stream_options": None,
            "response_format": None if schema is None else form,
        }
        return fields, cast(int, fields["max_new_tokens"])


def _prompts_of(
    prompts: Prompt | Prompts,
) -> tuple[bool, Sequence[Prompt]]:
    """True for one prompt alone, and the list of prompts (GG0702 for none)."""
    if isinstance(prompts, str):
        return True, [prompts]
    if not len(prompts):
        raise GraphgenError("GG0702", "there is no prompt", help="give a text or token ids")
    if isinstance(prompts[0], str) or hasattr(prompts[0], "__len__"):
        return False, cast("Sequence[Prompt]", prompts)
    return True, [cast("Sequence[int]", prompts)]


def _plain(value: object) -> object:
    """A value as JSON has it: lists, keys that are texts, Python's numbers in place of NumPy's."""
    if isinstance(value, np.generic | np.ndarray):
        return cast("object", value.tolist())
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {str(key): _plain(entry) for key, entry in entries.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(entry) for entry in cast("Sequence[object]", value)]
    return value


def _require_grammars(name: str) -> None:
    if find_spec("llguidance") is None:
        what = f"{name} needs llguidance, which is not installed"
        raise GraphgenError("GG0705", what, help="pip install 'graphgen-compiler[serve]'")


def _check_greedy(given: Mapping[str, object]) -> None:
    """Refuse filters that have no effect, as the best token is taken (GG0705)."""
    for name in ("top_k", "top_p", "min_p"):
        if given.get(name) is not None:
            raise GraphgenError(
                "GG0705",
                f"{name} has no effect at temperature 0, which takes the best token each time",
                help="give a temperature, such as temperature=1.0, or leave it out",
            )


@contextmanager
def _with_codes() -> Generator[None]:
    """Raise the refusals of a request's fields as errors with a code."""
    try:
        yield
    except ApiError as error:
        code = error.code or ""
        known = code if code.startswith("GG") else "GG0705"
        raise GraphgenError(known, error.message) from error


@dataclass(slots=True)
class _Progress:
    """One answer while it is made; the reader divides its text, ``None`` for content alone."""

    request: ServingRequest
    reader: AnswerReader | None = None
    pieces: list[str] = field(default_factory=list[str])
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    prompt_logprobs: list[TokenLogprobs] | None = None
    parts: AnswerParts = field(default_factory=AnswerParts)
    returned: int = 0
    finish: str = ""

    def take(self, event: TokenEvent) -> str:
        """Add an event; its piece of the text (GG0711 for an answer that ends with an error)."""
        if event.token is not None:
            self.tokens.append(event.token)
        if event.logprobs is not None:
            self.logprobs.append(event.logprobs)
        if event.prompt_logprobs is not None:
            self.prompt_logprobs = list(event.prompt_logprobs)
        if event.finish is not None:
            self.finish = event.finish.value
        if event.finish is Finish.REFUSED:
            raise GraphgenError("GG0705", event.error, help="give a simpler schema")
        if event.finish is Finish.CANCELLED:
            raise GraphgenError("GG0711", "the answer was ended before its last token")
        if event.finish is Finish.ERROR:
            raise GraphgenError(
                "GG0711",
                "a launch failed while the answer was made",
                note=event.error,
                help="the other answers of the model go on; try this one again",
            )
        text = self._content(event)
        self.pieces.append(text)
        return text

    def _content(self, event: TokenEvent) -> str:
        """The content of an event; reasoning and calls are kept."""
        if self.reader is None:
            return event.text
        pieces = self.reader.push(event.text)
        self.parts.take([*pieces, *(self.reader.end() if event.finish is not None else ())])
        content, self.returned = self.parts.content[self.returned :], len(self.parts.content)
        return content

    @property
    def answer(self) -> Answer:
        """The whole answer."""
        return Answer(
            "".join(self.pieces),
            self.tokens,
            self.finish,
            list(self.request.prompt),
            self.logprobs if self.request.logprobs is not None else None,
            self.prompt_logprobs,
            self.parts.reasoning,
            [ToolCall(call.id, call.name, call.arguments) for call in self.parts.calls],
        )


class _RequestQueue:
    """Requests of any threads for one engine, which goes on whenever one of them waits.

    Args:
        engine: called by one thread at a time.
    """

    def __init__(self, engine: ServingEngine) -> None:
        self._engine: Final = engine
        self._lock: Final = threading.RLock()
        self._events: dict[str, deque[TokenEvent]] = {}
        # Streams are forgotten at any moment, also in the middle of a step.
        self._forgotten: Final = deque[ServingRequest]()
        self._closed = False

    def forget(self, request: ServingRequest) -> None:
        """End a request before the next step."""
        self._forgotten.append(request)

    def _end_forgotten(self) -> None:
        while self._forgotten:
            self.cancel([self._forgotten.popleft()])

    def submit(self, requests: Sequence[ServingRequest]) -> None:
        """Enter all requests, or none if one is refused."""
        with self._lock:
            self._end_forgotten()
            try:
                for request in requests:
                    self._engine.submit(request)
                    self._events[request.id] = deque()
            except BaseException:
                self.cancel(requests)
                raise

    def next(self, id: str) -> TokenEvent:
        """The next event of a request; the engine makes steps until there is one."""
        while True:
            with self._lock:
                mine = self._events.get(id)
                if mine is None:
                    return TokenEvent(id, finish=Finish.CANCELLED)
                if mine:
                    event = mine.popleft()
                    if event.finish is not None:
                        del self._events[id]
                    return event
                for made in self._step():
                    if made.id in self._events:
                        self._events[made.id].append(made)

    def _step(self) -> Sequence[TokenEvent]:
        """The events of a step; an interrupt of it ends all answers."""
        self._end_forgotten()
        try:
            return self._engine.step()
        except BaseException:
            for id, events in self._events.items():
                self._engine.cancel(id)
                events.append(TokenEvent(id, finish=Finish.ERROR, error="it was interrupted"))
            raise

    def answers(
        self,
        requests: Sequence[ServingRequest],
        readers: Sequence[AnswerReader | None] = (),
    ) -> list[Answer]:
        """The answers to requests, when all of them are whole.

        Args:
            requests: to answer.
            readers: of the answers; empty for content alone.
        """
        self.submit(requests)
        made = [_Progress(*pair) for pair in zip_longest(requests, readers)]
        try:
            for progress in made:
                while not progress.finish:
                    progress.take(self.next(progress.request.id))
        except BaseException:
            self.cancel(requests)
            raise
        return [progress.answer for progress in made]

    def cancel(self, requests: Sequence[ServingRequest]) -> None:
        """End what is not finished."""
        with self._lock:
            for request in requests:
                if self._events.pop(request.id, None) is not None and not self._closed:
                    self._engine.cancel(request.id)

    def close(self) -> None:
        """End all requests."""
        with self._lock:
            for id in self._events:
                self._engine.cancel(id)
            self._events.clear()
            self._closed = True
