"""A conversation with a model: what was said is kept, and each answer is told as it grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from graphgen.runtime.generation import GenerationRequest

if TYPE_CHECKING:
    from graphgen.runtime.engine import Engine, GenerationResult


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer and what it answers.

    Attributes:
        prompt: the tokens of the whole conversation up to the answer.
        result: the answer's tokens, why it ended, and how long it took.
        text: of the answer.
    """

    prompt: list[int]
    result: GenerationResult
    text: str


class Conversation:
    """Messages of a user and a model in turn, rendered with the model's chat template.

    The whole conversation is given to the model each time: nothing of it is ever cut off. One that
    no longer fits is refused, and stays as it was.

    Args:
        engine: an opened model.
        request: how to answer.
    """

    def __init__(self, engine: Engine, request: GenerationRequest) -> None:
        self.engine: Final = engine
        self.request: Final = request
        self.messages: list[dict[str, str]] = []

    def forget(self) -> None:
        """Begin anew."""
        self.messages = []

    def say(self, message: str, write: Callable[[str], None]) -> Turn:
        """Answer ``message``.

        An answer that is interrupted (``KeyboardInterrupt``) is kept as far as it got.

        Args:
            message: what the user says.
            write: called with each piece of the answer's text as soon as it is certain.

        Raises:
            GraphgenError: GG0603 if the model has no chat template or it fails, GG0701 for a
                conversation that is longer than what the programs were compiled for.
        """
        asked = [*self.messages, {"role": "user", "content": message}]
        tokenizer = self.engine.tokenizer
        prompt = tokenizer.encode_chat(asked)
        stream, said = tokenizer.stream(), list[int]()

        def tell(_: int, token: int) -> None:
            said.append(token)
            piece = stream.push(token)
            if piece:
                write(piece)

        try:
            result = self.engine.generate([prompt], self.request, tell)
            rest = stream.flush()
            if rest:
                write(rest)
        finally:
            text = tokenizer.decode(said)
            if said:
                self.messages = [*asked, {"role": "assistant", "content": text}]
        return Turn(prompt, result, text)
