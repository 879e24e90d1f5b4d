"""``graphgen generate --chat``: a conversation from a pipe and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from graphgen.cli import chat_loop as chat
from graphgen.cli.chat_loop import QUIT
from graphgen.runtime.conversation import Conversation
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from tests.graphgen.cli.conftest import ROOT, done, graphgen
from tests.oracles.small_gguf import write_small_model

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}a:"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact, which opens fast, of a model that has 64 positions."""
    folder = tmp_path_factory.mktemp("chat")
    write_small_model(folder / "small.gguf", {"tokenizer.chat_template": TEMPLATE})
    kept = ["--artifact", folder / "kept", "--max-new-tokens", 3]
    done("generate", folder / "small.gguf", "--chat", *kept, input="count\n")
    return folder / "kept"


def test_each_line_of_a_pipe_is_a_message(model: Path):
    talk = ["generate", model, "--chat", "--max-new-tokens", 3]
    lines = done(*talk, "--json", input="count\n\n  to ten  \n/new\ncount").stdout.splitlines()
    turns = [json.loads(line) for line in lines]
    assert [turn["message"] for turn in turns] == ["count", "to ten", "count"]
    outputs = [turn["outputs"][0] for turn in turns]
    assert len(outputs[1]["prompt_tokens"]) > len(outputs[0]["prompt_tokens"])
    # A conversation that begins anew is the same again.
    assert outputs[2] == outputs[0]
    assert {output["finish_reason"] for output in outputs} == {"length"}
    result = done(*talk, input="count\n/quit\nto ten\n")
    assert result.stdout == outputs[0]["text"] + "\n"
    assert "note: the answer ends after 3 tokens: --max-new-tokens\n" in result.stderr


def test_no_message_at_all_is_no_answer(model: Path):
    result = done("generate", model, "--chat", "--summary", input="")
    assert result.stdout == ""


def test_a_message_from_a_pipe_that_does_not_fit_ends_it(model: Path):
    arguments = ["generate", model, "--chat", "--max-new-tokens", 2]
    result = graphgen(*arguments, input=f"count\n{'日本語 ' * 40}\ncount\n")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    assert "error[GG0701]" in result.stderr


def test_several_answers_are_none_in_a_conversation(model: Path):
    drawn = ["--do-sample", "--num-return-sequences", 2]
    result = graphgen("generate", model, "--chat", *drawn, input="count\n")
    assert result.exit_code == 1
    assert "--num-return-sequences has no meaning in a conversation" in result.stderr


# A terminal sends Ctrl-C to those it belongs to. Taking it before the program starts would be the
# place of preexec_fn, which forks: that does not go with JAX.
ON_TERMINAL = """
import fcntl, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
# What a shell starts in the background ignores Ctrl-C, and so does all that is started from there.
signal.signal(signal.SIGINT, signal.default_int_handler)
from graphgen.cli.main import main
main()
"""


class Terminal:
    """``graphgen`` on a terminal of its own."""

    def __init__(self, *arguments: object) -> None:
        self.ours, self.theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, *map(str, arguments)],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "JAX_PLATFORMS": "cpu"},
            start_new_session=True,
        )
        self.seen = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)

    def until(self, text: str) -> str:
        """Reads on to ``text``; what came before it."""
        while text not in self.seen:
            ready, _, _ = select.select([self.ours], [], [], 120)
            assert ready, f"no {text!r} in {self.seen!r}"
            self.seen += os.read(self.ours, 4096).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def interrupted(self) -> int:
        """The exit status after Ctrl-C, as a shell shows it.

        Python forgets one that comes between showing the prompt and waiting for a key. A second
        one may find a process that is ending slowly, and kills it.
        """
        for sent in range(10):
            self.type("\x03")
            with suppress(subprocess.TimeoutExpired):
                status = self.process.wait(6)
                return 128 + signal.SIGINT if sent and status == -signal.SIGINT else status
        raise AssertionError(f"it goes on: {self.seen!r}")

    def status(self) -> int:
        """The exit status, when it has ended."""
        return self.process.wait(60)


def test_on_a_terminal(model: Path):
    with Terminal("generate", model, "--chat", "--max-new-tokens", 40, "--ignore-eos") as terminal:
        terminal.until("say something")
        terminal.until("\n> ")
        # What cannot be answered ends nothing.
        terminal.type(f"{'count ' * 40}\n")
        terminal.until("error[GG0701]")
        terminal.until("\n> ")
        terminal.type("count\n")
        terminal.until("note: the answer ends after ")
        terminal.until("\n> ")
        terminal.type("\x04")
        assert terminal.status() == 0


def test_ctrl_c_where_no_answer_is_given_ends_it(model: Path):
    with Terminal("generate", model, "--chat") as terminal:
        terminal.until("\n> ")
        assert terminal.interrupted() == 130
        assert "Traceback" not in terminal.seen


def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    typed = iter(["count", "to ten", QUIT])
    monkeypatch.setattr(chat, "_read", lambda terminal: next(typed))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    pieces: list[str] = []

    def write(piece: str) -> None:
        pieces.append(piece)
        if len(pieces) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(chat, "write_stdout", write)
    engine, _ = open_engine(str(model), EngineOptions(), lambda t: [t.encode("hi")], 1, Silent())
    talk = Conversation(engine, GenerationRequest(5))
    last = chat.talk(talk, as_json=False)
    assert "note: stopped; the answer is kept as far as it got\n" in capsys.readouterr().err
    assert [message["content"] for message in talk.messages][::2] == ["count", "to ten"]
    assert talk.messages[1]["content"].startswith("".join(pieces[:2]))
    assert last is not None
    assert len(last.completions[0].tokens) == 5
