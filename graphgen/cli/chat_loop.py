"""``graphgen generate --chat`` without a prompt: a conversation, typed or piped."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from graphgen.cli.console import note, write_error, write_json, write_stdout
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.runtime.conversation import Conversation
    from graphgen.runtime.engine import GenerationResult

PROMPT = "> "
NEW, QUIT = "/new", "/quit"
_WELCOME = f"say something; {NEW} starts over, {QUIT} or Ctrl-D ends, Ctrl-C stops an answer"


def talk(conversation: Conversation, *, as_json: bool) -> GenerationResult | None:
    """Answer messages until there are no more; return the last result.

    On a terminal an error is printed, and the conversation goes on. From a pipe each line is a
    message, and the first error ends the conversation.

    Raises:
        GraphgenError: what is wrong with a message that came from a pipe.
        KeyboardInterrupt: Ctrl-C where no answer is being given.
    """
    terminal = sys.stdin.isatty()
    if terminal:
        note(_WELCOME)
        # For the arrow keys; not every Python has it.
        with suppress(ImportError):
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
    last: GenerationResult | None = None
    while (message := _read(terminal)) is not None:
        text = message.strip()
        if text == QUIT:
            break
        if text == NEW:
            conversation.forget()
        elif text:
            last = _answer(conversation, text, terminal, as_json) or last
    return last


def _read(terminal: bool) -> str | None:
    """The next message; ``None`` at the end."""
    try:
        if not terminal:
            line = sys.stdin.readline()
            return line or None
        if sys.stdout.isatty():
            return input(PROMPT)
        # Standard output belongs to the answers.
        print(PROMPT, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline() or _ended()
    except EOFError:
        return _ended()
    except UnicodeDecodeError as error:
        raise GraphgenError("GG0705", "standard input is not UTF-8 text") from error


def _ended() -> None:
    """End the line, for the shell's prompt."""
    print(file=sys.stderr)


def _answer(
    conversation: Conversation, message: str, terminal: bool, as_json: bool
) -> GenerationResult | None:
    """Answer one message; ``None`` if it was interrupted or failed."""
    try:
        turn = conversation.say(message, _silent if as_json else write_stdout)
    except KeyboardInterrupt:
        if not terminal:
            raise
        if not as_json:
            write_stdout("\n")
        note("stopped; the answer is kept as far as it got")
        return None
    except GraphgenError as error:
        if not terminal or error.code == "GG0704":
            raise
        write_error(error)
        return None
    if as_json:
        from graphgen.cli.generate_report import describe

        write_json(
            {"message": message, **describe(conversation.engine, [turn.prompt], turn.result)}
        )
    else:
        write_stdout("\n")
    _tell_cut(turn.result, conversation.request.max_new_tokens)
    return turn.result


def _silent(_: str) -> None:
    """Print nothing: with --json an answer is written when it is complete."""


def _tell_cut(result: GenerationResult, most: int) -> None:
    (completion,) = result.completions
    if completion.finish_reason == "length":
        why = "--max-new-tokens" if len(completion.tokens) >= most else "--max-len"
        note(f"the answer ends after {len(completion.tokens)} tokens: {why}")
