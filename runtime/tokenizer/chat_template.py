"""Render a conversation to one prompt with a model's own Jinja2 chat template."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final, cast

from graphgen.errors import GraphgenError
from graphgen.json_value import Json, parse_json
from graphgen.limits import TEMPLATE_CHARACTERS, TEMPLATE_MS
from graphgen.runtime.tokenizer.marked_text import Marks
from graphgen.worker_process import WorkerProcess

# Bytes of a character in JSON, with some to spare.
_BYTES: Final = 7
# Names that come from the conversation, and parameters of the call in Hugging Face.
_GIVEN: Final = frozenset(
    (
        *("messages", "conversation", "tools", "add_generation_prompt"),
        *("continue_final_message", "chat_template", "tokenize"),
    )
)
_WORKER: Final = Path(__file__).with_name("template_worker.py")


def render_chat(
    template: str | None,
    messages: Sequence[Mapping[str, Json]],
    *,
    bos_token: str | None,
    eos_token: str | None,
    add_generation_prompt: bool = True,
    marks: Marks | None = None,
    other_tokens: Mapping[str, str] | None = None,
    arguments: Mapping[str, Json] | None = None,
    tools: Sequence[Json] = (),
) -> str:
    """The prompt text of a conversation, equal to Hugging Face's ``apply_chat_template``.

    The template is untrusted code from a checkpoint: it runs in Jinja2's immutable sandbox, in a
    process of limited processor time and memory.

    Args:
        template: the Jinja2 text.
        messages: the turns, each with the keys ``role`` and ``content``, and others that the
            template reads.
        bos_token: the template's ``bos_token``; undefined in the template if None.
        eos_token: the template's ``eos_token``; undefined in the template if None.
        add_generation_prompt: end the prompt with the beginning of the model's answer.
        marks: of the texts of messages; the template reads them without marks and writes them
            marked.
        other_tokens: named tokens beside BOS and EOS, such as ``pad_token``.
        arguments: names of the template with their values, such as ``enable_thinking``. They take
            the place of tokens.
        tools: functions that the model may call, as OpenAI's API describes them.

    Raises:
        GraphgenError: GG0705 for arguments that :func:`check_arguments` refuses, GG0603 if the
            template is missing, fails, takes longer, or makes more text than the limits
            ``template-ms`` and ``template-characters``.
    """
    if template is None:
        raise GraphgenError("GG0603", "the model has no chat template", help="give a plain prompt")
    tokens = {"bos_token": bos_token, "eos_token": eos_token, **(other_tokens or {})}
    check_arguments(arguments or {})
    names: dict[str, object] = {
        # Without null, as in transformers: many templates fail on it, or write it.
        "messages": [{k: v for k, v in one.items() if v is not None} for one in messages],
        "tools": list(tools) or None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        **{name: token for name, token in tokens.items() if token is not None},
        **(arguments or {}),
    }
    answer = _answer(template, names, marks)
    text, line = answer.get("text"), answer.get("line")
    if isinstance(text, str):
        return text
    at = f" at its line {line}" if line is not None else ""
    reason = answer.get("error")
    if "long" in answer:
        reason = f"it makes {answer['long']} characters, and {TEMPLATE_CHARACTERS} are taken"
    raise GraphgenError("GG0603", f"the chat template fails{at}: {reason}")


def check_arguments(arguments: Mapping[str, Json]) -> None:
    """Refuse arguments of a template that take the place of what it is given (GG0705)."""
    wrong = next((name for name in arguments if name in _GIVEN or not name.isidentifier()), None)
    if wrong is not None:
        what = f"a chat template cannot be given '{wrong}'"
        raise GraphgenError("GG0705", what, help="give a name that the template reads")


def _answer(
    template: str, names: Mapping[str, object], marks: Marks | None
) -> Mapping[str, object]:
    """The answer of the process :mod:`graphgen.runtime.tokenizer.template_worker`."""
    asked = {"template": template, "names": names, "marks": marks}
    line = _RENDERER.ask(json.dumps(asked).encode() + b"\n", _whole_line)
    if not line:
        return {"error": f"it takes too much memory or time: {TEMPLATE_MS} milliseconds"}
    found = parse_json(line, most=len(line), objects=8)
    return cast("Mapping[str, object]", found)


def _whole_line(made: IO[bytes]) -> bytes:
    line = made.readline(_BYTES * TEMPLATE_CHARACTERS.most)
    return line if line.endswith(b"\n") else b""


def _command() -> Sequence[str]:
    # -P: the worker's own folder would come first on the path.
    seconds, characters = TEMPLATE_MS.most / 1000, TEMPLATE_CHARACTERS.most
    return (sys.executable, "-P", str(_WORKER), str(seconds), str(characters))


_RENDERER: Final = WorkerProcess(_command)
