"""Chat templates with tools, in the forms of families: what they show and what calls look like."""
# ruff: noqa: E501 (templates as they are)

from __future__ import annotations

from typing import Any

# As those of Qwen 2.5 and Hermes.
TAGGED = """{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- "# Tools\\n\\nYou may call one or more functions.\\n\\n<tools>" }}
{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
{{- "\\n</tools>\\n\\nFor each call, return json within <tool_call></tool_call>:\\n<tool_call>\\n" }}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role in ('user', 'system') and not (loop.first and tools and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>' + message.role }}
{%- if message.reasoning_content %}{{- '\\n<think>\\n' + message.reasoning_content + '\\n</think>' }}{%- endif %}
{%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
{%- for call in message.tool_calls %}
{%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
{{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
{{- call.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if thinking_on %}{{- '<think>\\n' }}{%- endif %}{%- endif %}
"""
# As that of Llama 3.1: types are looked at, and null contents.
LLAMA = """{{- bos_token }}{%- if tools is not none %}{{- "Environment: ipython\\n" }}
{{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}{%- endif %}
{%- for message in messages %}
{%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
{{- '<|' + message['role'] + '|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
{%- elif 'tool_calls' in message %}
{%- if message.content is none %}{{- '-' }}{%- endif %}
{%- set tool_call = message.tool_calls[0].function %}
{{- '{"name": "' + tool_call.name + '", "parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}<|eot|>" }}
{%- elif message.role == "tool" %}
{%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
{%- else %}{{- message.content }}{%- endif %}{{- "<|eot|>" }}
{%- endif %}
{%- endfor %}
"""
# As those of Qwen3-Coder and gpt-oss: parameters are read one by one.
PARAMETERS = """{%- macro kind(spec) %}
{%- if spec.type == 'array' %}{{- kind(spec['items']) }}[]{%- elif spec.enum %}{{- spec.enum | join(' | ') }}
{%- else %}{{- spec.type }}{%- endif %}{%- endmacro %}
{%- for tool in tools %}{%- set tool = tool.function %}
{{- '// ' + tool.description + '\\ntype ' + tool.name + ' = (_: {' }}
{%- for name, spec in tool.parameters.properties.items() %}
{{- '\\n' + name + ('' if name in tool.parameters.required else '?') + ': ' + kind(spec) }}
{%- endfor %}{{- '\\n}) => any;' }}{%- endfor %}
{%- for m in messages %}{{- m.role + ':' + (m.content or '') }}
{%- for call in m.tool_calls %}{%- for k, v in call.function.arguments | items %}
{{- '\\n<parameter=' + k + '>' }}{{- v | tojson if v is not string else v }}
{%- endfor %}{%- endfor %}{%- endfor %}
"""
TEMPLATES = {"tagged": TAGGED, "llama": LLAMA, "parameters": PARAMETERS}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": 'The "weather" <b>now</b>, and é',
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "unit": {"type": "string", "enum": ["c", "f"]},
                    "days": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "The time",
            "parameters": {"type": "object", "properties": {}, "required": []},
        },
    },
]
ARGUMENTS = {"city": "Paris <3", "days": [1, 2]}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
CONVERSATIONS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Weather?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi \n"}],
    [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "12 C", "tool_call_id": "c1"},
    ],
    [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [CALL],
            "reasoning_content": "I need a tool.",
        },
        {"role": "tool", "content": "12 C", "tool_call_id": "c1"},
        {"role": "assistant", "content": "12 degrees."},
        {"role": "user", "content": "Thanks"},
    ],
]
