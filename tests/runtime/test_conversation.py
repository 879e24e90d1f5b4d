"""A conversation keeps what was said, tells answers as they grow, and outlives what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.conversation import Conversation
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from tests.oracles.small_gguf import write_small_model

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}a:"
SLOTS = 64


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("chat") / "small.gguf"
    write_small_model(path, {"tokenizer.chat_template": TEMPLATE})
    opened, _ = open_engine(
        str(path), EngineOptions(max_len=SLOTS), lambda t: [t.encode("hi")], 1, Silent()
    )
    return opened


def test_each_answer_is_that_to_the_whole_conversation(engine: Engine):
    talk = Conversation(engine, GenerationRequest(6))
    first, second = [], []
    one = talk.say("count", first.append)
    two = talk.say("to ten", second.append)
    assert ("".join(first), "".join(second)) == (one.text, two.text)
    said = f"u:count|a:{one.text}|u:to ten|a:"
    assert two.prompt == engine.tokenizer.encode(said, add_special=False)
    alone = engine.generate([two.prompt], GenerationRequest(6))
    assert alone.completions == two.result.completions
    assert [message["role"] for message in talk.messages] == ["user", "assistant"] * 2
    talk.forget()
    assert talk.say("count", first.append).prompt == one.prompt


class NewTokens:
    """Tokens that each launch processes."""

    def __init__(self, session: Session) -> None:
        self.counts: list[int] = []
        session.observers[:] = [self]

    def before_launch(
        self, session: Session, program: str, inputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        self.counts.append(int((np.asarray(inputs["positions"], np.int32) >= 0).sum()))

    def after_launch(self, session: Session, program: str) -> None: ...


def test_a_turn_processes_what_the_cache_does_not_hold(tmp_path: Path):
    path = tmp_path / "small.gguf"
    write_small_model(path, {"tokenizer.chat_template": TEMPLATE})
    options = EngineOptions(max_len=SLOTS, chunk=(4, 8))
    chunked, _ = open_engine(str(path), options, lambda t: [t.encode("hi")], 1, Silent())
    talk = Conversation(chunked, GenerationRequest(6))
    first = talk.say("count", lambda _: None)
    launches = NewTokens(chunked.session)
    second = talk.say("to ten", lambda _: None)
    held = next(
        (n for n, (a, b) in enumerate(zip(second.prompt, first.prompt, strict=False)) if a != b),
        len(first.prompt),
    )
    assert held == len(first.prompt)
    assert sum(launches.counts[:-5]) <= len(second.prompt) - held
    assert launches.counts[-5:] == [1] * 5
    alone = chunked.generate([second.prompt], GenerationRequest(6))
    assert alone.completions == second.result.completions
    # Somebody else's prompt is in the cache now, as long as the conversation or not.
    launches.counts.clear()
    third = talk.say("and on", lambda _: None)
    assert launches.counts[0] == len(third.prompt)


def test_an_answer_that_is_stopped_is_kept_as_far_as_it_got(engine: Engine):
    talk = Conversation(engine, GenerationRequest(20))
    whole = Conversation(engine, GenerationRequest(20)).say("don't panic", lambda _: None)
    pieces: list[str] = []

    def write(piece: str) -> None:
        pieces.append(piece)
        if len(pieces) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        talk.say("don't panic", write)
    (asked, answered) = talk.messages
    assert asked == {"role": "user", "content": "don't panic"}
    assert answered["content"].startswith("".join(pieces))
    assert whole.text.startswith("".join(pieces))
    assert len(answered["content"]) < len(whole.text)
    # The engine is as good as before.
    again = Conversation(engine, GenerationRequest(20)).say("don't panic", lambda _: None)
    assert again.text == whole.text


def test_a_conversation_that_does_not_fit_stays_as_it_was(engine: Engine):
    talk = Conversation(engine, GenerationRequest(4))
    talk.say("count", lambda _: None)
    before = list(talk.messages)
    with pytest.raises(GraphgenError) as caught:
        talk.say("日本語 " * 40, lambda _: None)
    assert caught.value.code == "GG0701"
    assert talk.messages == before
    talk.say("well", lambda _: None)
    assert len(talk.messages) == 4


def test_a_model_without_a_template(tmp_path: Path):
    write_small_model(tmp_path / "plain.gguf")
    opened, _ = open_engine(
        str(tmp_path / "plain.gguf"), EngineOptions(), lambda t: [t.encode("hi")], 1, Silent()
    )
    with pytest.raises(GraphgenError, match="the model has no chat template"):
        Conversation(opened, GenerationRequest(4)).say("hi", lambda _: None)
