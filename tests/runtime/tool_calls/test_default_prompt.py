"""Messages with tools for chat templates that know none."""

from __future__ import annotations

from graphgen.json_value import Json
from graphgen.runtime.tool_calls.default_prompt import with_default_tools


def message(role: str, content: str) -> dict[str, Json]:
    return {"role": role, "content": content}


def test_results_and_what_the_user_adds_are_one_turn():
    given = [
        message("system", "Be brief."),
        message("user", "Weather?"),
        {
            **message("assistant", ""),
            "tool_calls": [{"function": {"name": "weather", "arguments": {}}}],
        },
        message("tool", "sun"),
        message("tool", "wind"),
        message("user", "And tomorrow?"),
        message("assistant", "Rain."),
        message("user", "Thanks."),
    ]
    made = with_default_tools(given, "TOOLS")
    roles = [one["role"] for one in made]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert made[0]["content"] == "TOOLS\n\nBe brief."
    assert made[3]["content"] == (
        "<tool_response>\nsun\n</tool_response>\n<tool_response>\nwind\n</tool_response>\n\n"
        "And tomorrow?"
    )
    assert made[-1] == message("user", "Thanks.")
