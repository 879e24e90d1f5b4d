"""Show tools, calls and results to a model whose chat template knows none, in Hermes's form.

llama.cpp's server does so too; vLLM renders such a template without the tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from graphgen.json_value import Json

_FORM = """To call one, write a JSON object with its name and its arguments between these tags:
<tool_call>
{"name": "NAME", "arguments": {}}
</tool_call>
Without a call, answer in plain text."""


def tool_prompt(tools: Sequence[Json]) -> str:
    """The description of the tools, as requests have them, for the system message."""
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    head = "You can call these functions, each described by a JSON object:"
    return f"{head}\n<tools>\n{lines}\n</tools>\n{_FORM}"


def with_default_tools(
    messages: Sequence[Mapping[str, Json]], prompt: str, *, role: str = "system"
) -> list[dict[str, Json]]:
    """Messages that such a template can render.

    Calls become text of the assistant, and results, those of one turn together with what the user
    adds, text of the user: some templates refuse two turns of the user in a row.

    Args:
        messages: as templates read them.
        prompt: of :func:`tool_prompt`.
        role: of the message that has the prompt: ``user`` where the template refuses ``system``.
    """
    found: list[dict[str, Json]] = []
    results = False
    for message in messages:
        if message["role"] == "tool":
            text = f"<tool_response>\n{message['content'] or ''}\n</tool_response>"
            if results:
                text = f"{found.pop()['content']}\n{text}"
            found.append({"role": "user", "content": text})
        elif results and message["role"] == "user" and isinstance(message["content"], str):
            found[-1] = {**message, "content": f"{found[-1]['content']}\n\n{message['content']}"}
        else:
            found.append(_said(message))
        results = message["role"] == "tool"
    return _prompted(found, prompt, role)


def _said(message: Mapping[str, Json]) -> dict[str, Json]:
    """A message whose calls are in its text."""
    plain = {key: value for key, value in message.items() if key != "tool_calls"}
    calls = message.get("tool_calls")
    if not isinstance(calls, list | tuple):
        return plain
    texts = [str(message["content"])] if message["content"] else []
    for call in calls:
        assert isinstance(call, Mapping)
        body = json.dumps(call["function"], ensure_ascii=False)
        texts.append(f"<tool_call>\n{body}\n</tool_call>")
    return {**plain, "content": "\n".join(texts)}


def _prompted(messages: list[dict[str, Json]], prompt: str, role: str) -> list[dict[str, Json]]:
    """The messages with the prompt before the first one of a role."""
    place = next((n for n, one in enumerate(messages) if one["role"] == role), None)
    if place is None:
        return [{"role": role, "content": prompt}, *messages]
    changed = {**messages[place], "content": f"{prompt}\n\n{messages[place]['content'] or ''}"}
    return [*messages[:place], changed, *messages[place + 1 :]]
