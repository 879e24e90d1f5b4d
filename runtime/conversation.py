"""A conversation with a model: the message history, and answers streamed as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from graphgen.json_value import Json
from graphgen.runtime.generation import GenerationRequest

if TYPE_CHECKING:
    from graphgen.runtime.engine import Engine, GenerationResult


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer and its prompt.

    Attributes:
        prompt: the tokens of the whole conversation up to the answer.
        result: the answer's tokens, finish reason and timings.
        text: the answer.
    """

    prompt: list[int]
    result: GenerationResult
    text: str


class Conversation:
    """Alternating messages of a user and a model, rendered with the model's chat template.

    Every answer sees the whole conversation; it is never truncated. Tokens that the cache holds are
    not processed again. A message that makes the conversation too long is refused, and the history
    stays unchanged.

    Args:
        engine: an opened model.
        request: the generation settings of every answer.
        arguments: names that the chat template reads, such as ``enable_thinking``.
    """

    def __init__(
        self,
        engine: Engine,
        request: GenerationRequest,
        arguments: Mapping[str, Json] | None = None,
    ) -> None:
        self.engine: Final = engine
        self.request: Final = request
        self.arguments: Final = arguments
        self.messages: list[dict[str, str]] = []
        # Contents of the row, and the session's number of changes at that time.
        self._row: list[int] = []
        self._changes = -1

    def forget(self) -> None:
        """Delete the history."""
        self.messages = []

    def say(self, message: str, write: Callable[[str], None]) -> Turn:
        """Answer ``message``.

        After an interrupt (``KeyboardInterrupt``) the history holds the partial answer.

        Args:
            message: the user's message.
            write: called with each piece of the answer's text as soon as it is final.

        Raises:
            GraphgenError: GG0603 if the model has no chat template or it fails, GG0701 for a
                conversation longer than the largest compiled bucket.
        """
        messages = [*self.messages, {"role": "user", "content": message}]
        tokenizer = self.engine.tokenizer
        prompt = tokenizer.encode_chat(messages, arguments=self.arguments)
        stream, tokens = tokenizer.stream(), list[int]()

        def tell(_: int, token: int) -> None:
            tokens.append(token)
            piece = stream.push(token)
            if piece:
                write(piece)

        held, self._row = self._held(prompt), []
        try:
            result = self.engine.generate([prompt], self.request, tell, [held])
            # The last token was chosen, and not processed.
            self._row, self._changes = [*prompt, *tokens[:-1]], self.engine.session.changes
            rest = stream.flush()
            if rest:
                write(rest)
        finally:
            text = tokenizer.decode(tokens)
            if tokens:
                self.messages = [*messages, {"role": "assistant", "content": text}]
        return Turn(prompt, result, text)

    def _held(self, prompt: Sequence[int]) -> int:
        """The number of tokens at the front of a prompt that the cache holds, all but the last.

        The cache is that of the engine: answers to others in between replace what it holds.
        """
        session = self.engine.session
        if session.changes != self._changes:
            return 0
        pairs = zip(self._row, prompt[:-1], strict=False)
        same = next((n for n, (a, b) in enumerate(pairs) if a != b), len(self._row))
        same = min(same, len(prompt) - 1)
        return same if session.may_start(0, same) else 0
