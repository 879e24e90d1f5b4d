"""A request of one user, its progress, and its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.serving.answer_text import AnswerText
from graphgen.runtime.serving.request_choice import Mask, TokenLogprobs, penalized_bias
from graphgen.runtime.session.pending_step import DeviceToken

if TYPE_CHECKING:
    from graphgen.runtime.lora.adapter_store import StoredAdapter
    from graphgen.runtime.session.adapter_slots import PreparedAdapter

# Token ids are s32.
_TOKEN_BITS = 32


class Finish(Enum):
    """Reasons that end a request."""

    EOS = "eos"  # a token of ``eos_ids`` was chosen; it is the last token
    STOP = "stop"  # the text has a stop string
    LENGTH = "length"  # ``max_new_tokens``, or the end of the cache row
    CANCELLED = "cancelled"  # by the user
    DEADLINE = "deadline"  # the deadline passed
    ERROR = "error"  # a launch failed
    REFUSED = "refused"  # the mask of the request cannot go on


@dataclass(frozen=True, slots=True)
class ServingRequest:
    """One prompt to be answered.

    Attributes:
        id: unique among the requests that are not finished.
        prompt: token ids, at least one.
        max_new_tokens: largest number of new tokens.
        eos_ids: tokens that end the answer; the ending token is part of it.
        sampling: the settings, of this request alone. Random numbers depend on its seed and on the
            number of tokens so far, not on the row or on other requests.
        priority: smaller ones go first.
        deadline: time on the engine's clock, in seconds, at which the request ends; ``None`` for
            no end.
        stop: strings that end the answer; its text ends before the first of them.
        logprobs: number of most probable tokens to give with each token, beside the logarithm of
            the chosen one's probability; 0 for the chosen one's only, ``None`` for none.
        logit_bias: added to the logits of these tokens before any other setting applies.
        frequency_penalty: with the bias, subtracted from a token's logit as often as the answer has
            the token.
        presence_penalty: with the bias, subtracted from the logits of tokens that the answer has.
        mask: gives the tokens that may come next; such as those that a grammar allows.
        adapter: name of the adapter that the model is used with; empty for the model as it is.
        prompt_logprobs: number of most probable tokens to give with each token of the prompt, as
            ``logprobs``; ``None`` for none. Such a prompt is processed token by token, and shares
            no row.
        text_of_its_own: the text is the decoding of the answer alone, as after a chat template;
            else what the answer adds to the text of the prompt.
        skip_special: the text has no special tokens.
        kept_special: special tokens that it has all the same, such as marks of tool calls.
    """

    id: str
    prompt: tuple[int, ...]
    max_new_tokens: int = 128
    eos_ids: frozenset[int] = frozenset()
    sampling: Sampling = GREEDY
    priority: int = 0
    deadline: float | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    mask: Mask | None = None
    adapter: str = ""
    prompt_logprobs: int | None = None
    text_of_its_own: bool = False
    skip_special: bool = True
    kept_special: tuple[str, ...] = ()

    def bias_after(self, answer: Sequence[int]) -> Mapping[int, float]:
        """The logit bias of the token after an answer, with the penalties."""
        frequency, presence = self.frequency_penalty, self.presence_penalty
        return penalized_bias(self.logit_bias, answer, frequency, presence)


@dataclass(slots=True, eq=False)
class RequestProgress:
    """A request that is not finished.

    Attributes:
        request: the request.
        order: its place among all that were submitted.
        turn: its place in the order of the scheduler.
        tokens: chosen so far.
        row: the row of the cache that it has; ``None`` while it waits.
        processed: tokens that the row holds, or will when the launches in flight are done.
        unread: tokens that launches in flight choose.
        launched: step of the scheduler in which it last took a launch of answers.
        last: the last one of those.
        spent: the token in flight is the answer's last one, whatever it is.
        written: the answer's text; ``None`` without a tokenizer.
        adapter: that its tokens are computed with; ``None`` for the model as it is.
        prompt_rows: log probabilities of the tokens of the prompt after the first.
    """

    request: ServingRequest
    order: int
    turn: int = 0
    tokens: list[int] = field(default_factory=list[int])
    row: int | None = None
    processed: int = 0
    unread: int = 0
    launched: int = 0
    last: DeviceToken | None = None
    spent: bool = False
    written: AnswerText | None = None
    adapter: StoredAdapter[PreparedAdapter] | None = None
    prompt_rows: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])

    @property
    def text(self) -> list[int]:
        """Prompt and chosen tokens that were read."""
        return [*self.request.prompt, *self.tokens]

    @property
    def cached_text(self) -> list[int]:
        """The text as pools of caches know it: see :meth:`cached`."""
        return self.cached(self.text)

    def cached(self, tokens: list[int]) -> list[int]:
        """Tokens as pools know them: other numbers for each adapter, as their caches differ.

        A row that holds tokens already gives no logits of them.
        """
        if self.request.prompt_logprobs is not None:
            return [token + (~self.order << _TOKEN_BITS) for token in tokens]
        if self.adapter is None:
            return tokens
        return [token + (self.adapter.number << _TOKEN_BITS) for token in tokens]

    @property
    def remaining(self) -> int:
        """Tokens that have to be processed before the next one is chosen, at least one."""
        return len(self.request.prompt) + len(self.tokens) + self.unread - self.processed


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """News of a request.

    Attributes:
        id: of the request.
        token: the token that was chosen; ``None`` where the request ends without one.
        finish: the reason, with the last event of a request.
        error: of a request that ends with an error or is refused, the message.
        text: the next piece of the answer's text, whole characters only; empty without a tokenizer.
            The pieces of all events, joined, are the text of the tokens without the ending one of
            ``eos_ids``, cut before the first stop string. A piece may come later than its tokens.
        logprobs: of the token, where the request wants them.
        proposed: number of tokens that were proposed for the step that gave the token; at the first
            token of the step only, so that they can be added up.
        accepted: the token is a proposed one.
        prompt_logprobs: with the first token, those of the prompt's tokens after the first, where
            the request wants them.
    """

    id: str
    token: int | None = None
    finish: Finish | None = None
    error: str = ""
    text: str = ""
    logprobs: TokenLogprobs | None = None
    proposed: int = 0
    accepted: bool = False
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
