"""Texts of models, divided into content, reasoning and calls, wherever a stream cuts them."""

from __future__ import annotations

import codecs
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.runtime.tool_calls.answer_reader import (
    AnswerParts,
    AnswerReader,
    CallPiece,
    PlainReader,
    Tool,
)
from graphgen.runtime.tool_calls.call_formats import FORMATS, call_reader, reasoning_reader
from graphgen.runtime.tool_calls.deepseek_calls import DeepseekCallReader
from graphgen.runtime.tool_calls.forced_calls import ArgumentsReader, CallListReader
from graphgen.runtime.tool_calls.harmony_calls import HarmonyReader
from graphgen.runtime.tool_calls.llama_calls import LlamaCallReader
from graphgen.runtime.tool_calls.mistral_calls import MistralCallReader, MistralReader
from graphgen.runtime.tool_calls.tagged_calls import TaggedCallReader

TOOLS = (
    Tool(
        "weather",
        {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    ),
    Tool("time"),
    Tool("note", {"type": "object", "properties": {"text": {"type": "string"}}}),
)
ARGS = '{"city": "Paris", "days": 2}'
NESTED = '{"city": "a \\"b\\" }]{[", "days": {"x": [1, {"y": "\\\\"}]}}'


def result(parts: AnswerParts) -> tuple[str, str, list[tuple[str, str]]]:
    assert [call.index for call in parts.calls] == list(range(len(parts.calls)))
    calls = [(call.name, call.arguments) for call in parts.calls]
    return parts.content, parts.reasoning, calls


def read(kind: type[AnswerReader], *texts: str, **options: object) -> AnswerParts:
    reader, found = kind(TOOLS, **options), AnswerParts()  # pyright: ignore[reportArgumentType]
    for text in texts:
        found.take(reader.push(text))
    found.take(reader.end())
    return found


def tagged(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


def call(name: str = "weather", arguments: str = ARGS, key: str = "arguments") -> str:
    return f'{{"name": "{name}", "{key}": {arguments}}}'


ONE, TWO = [("weather", ARGS)], [("weather", ARGS), ("time", "{}")]
# Text, content, reasoning, calls.
Case = tuple[str, str, str, list[tuple[str, str]]]
HERMES: list[Case] = [
    ("", "", "", []),
    ("hello", "hello", "", []),
    (" hello \n", " hello \n", "", []),
    (tagged(call()), "", "", ONE),
    (tagged(call()) + "\n", "", "", ONE),
    (tagged(call()) + "\n" + tagged(call("time", "{}")), "", "", TWO),
    (tagged(call()) + tagged(call("time", "{}")), "", "", TWO),
    ("Let me look.\n" + tagged(call()), "Let me look.", "", ONE),
    (tagged(call()) + "\nDone.", "Done.", "", ONE),
    ("a\n" + tagged(call()) + "\nb\n" + tagged(call("time", "{}")) + " c", "abc", "", TWO),
    ("<tool_call>" + call() + "</tool_call>", "", "", ONE),
    ("<tool_call>\n" + call(), "", "", ONE),
    ("<tool_call>\n" + call()[:-9], "", "", [("weather", '{"city": "Paris", "d')]),
    (tagged(call(arguments=NESTED)), "", "", [("weather", NESTED)]),
    (tagged('{"arguments": ' + ARGS + ', "name": "weather"}'), "", "", ONE),
    (tagged('{"name": "time"}'), "", "", [("time", "{}")]),
    (tagged('{"name": "time", "arguments": null}'), "", "", [("time", "{}")]),
    (tagged(json.dumps({"name": "weather", "arguments": ARGS})), "", "", ONE),
    (tagged('{"name": "weather", "arguments": ' + ARGS), "", "", ONE),
    (tagged('{"name": }'), '<tool_call>\n{"name": }\n</tool_call>', "", []),
    (tagged("weather(1)"), "<tool_call>\nweather(1)\n</tool_call>", "", []),
    ("a < b <tool", "a < b <tool", "", []),
    ("<tool_call", "<tool_call", "", []),
    ("<think>\nhm\n\n</think>\n\nYes.", "Yes.", "hm", []),
    ("<think>hm</think>" + tagged(call()), "", "hm", ONE),
    ("<think>cut", "", "cut", []),
    ("<thinker>", "<thinker>", "", []),
    (tagged(call("note", '{"text": "日本 é"}')), "", "", [("note", '{"text": "日本 é"}')]),
    (tagged(call("unknown", "{}")), "", "", [("unknown", "{}")]),
]


def function(name: str, **values: str) -> str:
    rows = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<function={name}>\n{rows}</function>"


QWEN: list[Case] = [
    (tagged(function("weather", city="Paris", days="2")), "", "", ONE),
    (tagged(function("time")), "", "", [("time", "{}")]),
    ("So:\n" + tagged(function("weather", city="Paris", days="2")), "So:", "", ONE),
    (
        tagged(function("weather", city="Paris", days="2")) + "\n" + tagged(function("time")),
        *("", "", TWO),
    ),
    (tagged(function("note", text="2")), "", "", [("note", '{"text": "2"}')]),
    (tagged(function("note", text='a "b"\n c')), "", "", [("note", '{"text": "a \\"b\\"\\n c"}')]),
    (tagged(function("note", text="<b>x</b>")), "", "", [("note", '{"text": "<b>x</b>"}')]),
    (tagged(function("weather", days="two")), "", "", [("weather", '{"days": "two"}')]),
    (tagged(function("weather", days="[1, 2]")), "", "", [("weather", '{"days": [1, 2]}')]),
    (tagged(function("other", x="1")), "", "", [("other", '{"x": "1"}')]),
    (tagged(function("weather", city="")), "", "", [("weather", '{"city": ""}')]),
    (tagged(function("weather", city="日本")), "", "", [("weather", '{"city": "日本"}')]),
    ("<tool_call>" + function("time") + "</tool_call>", "", "", [("time", "{}")]),
    ("<tool_call>\n" + function("time"), "", "", [("time", "{}")]),
    ("<think>a</think>\n\n" + tagged(function("time")), "", "a", [("time", "{}")]),
    (tagged(function("time")) + "\nend", "end", "", [("time", "{}")]),
    ("<tool_call>\n<function=", "<tool_call>\n<function=", "", []),
    ("<tool_call>\n<function=\n>", "<tool_call>\n<function=\n>", "", []),
    ("<function=time>", "<function=time>", "", []),
    (
        "<tool_call>\n<function=note>\n<parameter=text>\ncut",
        *("", "", [("note", '{"text": "cut"}')]),
    ),
    (tagged(call()), "", "", ONE),
]
LLAMA: list[Case] = [
    ("", "", "", []),
    ("hello {you}", "hello {you}", "", []),
    (call(key="parameters"), "", "", ONE),
    ("<|python_tag|>" + call(key="parameters"), "", "", ONE),
    (" \n" + call(key="parameters"), "", "", ONE),
    (call(key="parameters") + "; " + call("time", "{}", "parameters"), "", "", TWO),
    (call(key="parameters") + ";" + call("time", "{}", "parameters"), "", "", TWO),
    (call(key="parameters") + "\n" + call("time", "{}", "parameters"), "", "", TWO),
    (call() + "<|python_tag|>" + call("time", "{}"), "", "", TWO),
    ("Sure: " + call(key="parameters"), "Sure:", "", ONE),
    (call(key="parameters") + " Done.", "Done.", "", ONE),
    (call(key="parameters") + "; and", "; and", "", ONE),
    ('{"type": "function", ' + call(key="parameters")[1:], "", "", ONE),
    ('{"type": "function", "function": ' + call(key="parameters") + "}", "", "", ONE),
    ('{"type": "function", "function": "weather", "parameters": ' + ARGS + "}", "", "", ONE),
    ('{"temperature": 3}', '{"temperature": 3}', "", []),
    ('{"name": "nobody", "parameters": {}}', '{"name": "nobody", "parameters": {}}', "", []),
    ('{"name": 3, "parameters": {}}', '{"name": 3, "parameters": {}}', "", []),
    ('{"name": "weather", "age": 3}', '{"name": "weather", "age": 3}', "", []),
    ('{"name": "weather"', '{"name": "weather"', "", []),
    ("{", "{", "", []),
    ('if (x) { y({"a": 1}) }', 'if (x) { y({"a": 1}) }', "", []),
    (
        call(arguments=NESTED, key="parameters"),
        *("", "", [("weather", NESTED)]),
    ),
    (
        call(key="parameters")[:-6],
        *("", "", [("weather", ARGS[:-5])]),
    ),
    ('<|python_tag|>weather.call(city="x")', '<|python_tag|>weather.call(city="x")', "", []),
    ("<think>a</think>" + call(key="parameters"), "", "a", ONE),
]


def listed(*calls: str) -> str:
    return f"[TOOL_CALLS] [{', '.join(calls)}]"


MISTRAL: list[Case] = [
    ("", "", "", []),
    ("hello [x]", "hello [x]", "", []),
    (listed(call()), "", "", ONE),
    (listed(call()).replace(" [{", "[{"), "", "", ONE),
    (listed(call(), call("time", "{}")), "", "", TWO),
    ("Well. " + listed(call()), "Well.", "", ONE),
    (listed(call()) + " Done.", "Done.", "", ONE),
    (listed(call(arguments=NESTED)), "", "", [("weather", NESTED)]),
    (listed('{"name": "weather", "arguments": ' + ARGS + ', "id": "abc123456"}'), "", "", ONE),
    (listed(call())[:-12], "", "", [("weather", ARGS[:-10])]),
    (listed(call())[:-1], "", "", ONE),
    ("[TOOL_CALLS]" + call(), "", "", ONE),
    ("[TOOL_CALLS]weather" + ARGS, "", "", ONE),
    ("[TOOL_CALLS]weather[ARGS]" + ARGS, "", "", ONE),
    ("[TOOL_CALLS]weather[CALL_ID]abc123456[ARGS]" + ARGS, "", "", ONE),
    ("[TOOL_CALLS]weather[ARGS]" + ARGS + "[TOOL_CALLS]time[ARGS]{}", "", "", TWO),
    ("a[TOOL_CALLS]weather[ARGS]" + ARGS + "b", "ab", "", ONE),
    ("[TOOL_CALLS] not a call", "[TOOL_CALLS] not a call", "", []),
    ("[TOOL_CALLS] [1, 2]", "[TOOL_CALLS] [1, 2]", "", []),
    ('[TOOL_CALLS] [{"name": x}]', '[TOOL_CALLS] [{"name": x}]', "", []),
    ("[TOOL", "[TOOL", "", []),
    ("[TOOL_CALLS]time[ARGS]", "", "", [("time", "{}")]),
    ("[THINK]a[/THINK]b", "b", "a", []),
    ("[THINK]a[/THINK]" + listed(call()), "", "a", ONE),
]
CALLS, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


def v3(name: str = "weather", arguments: str = ARGS) -> str:
    return f"{CALL}function{SEP}{name}\n```json\n{arguments}\n```{CALL_END}"


def v31(name: str = "weather", arguments: str = ARGS) -> str:
    return f"{CALL}{name}{SEP}{arguments}{CALL_END}"


DEEPSEEK: list[Case] = [
    ("", "", "", []),
    ("hello", "hello", "", []),
    (CALLS + v3() + CALLS_END, "", "", ONE),
    (CALLS + v3() + "\n" + v3("time", "{}") + CALLS_END, "", "", TWO),
    (CALLS + v31() + CALLS_END, "", "", ONE),
    (CALLS + v31() + v31("time", "{}") + CALLS_END, "", "", TWO),
    ("Well.\n" + CALLS + v3() + CALLS_END, "Well.", "", ONE),
    (CALLS + v31() + CALLS_END + "\nDone.", "Done.", "", ONE),
    (CALLS + v3(arguments=NESTED) + CALLS_END, "", "", [("weather", NESTED)]),
    (CALLS + v31(arguments=NESTED) + CALLS_END, "", "", [("weather", NESTED)]),
    (CALLS + v3(), "", "", ONE),
    (CALLS + v31()[: -len(CALL_END) - 4], "", "", [("weather", ARGS[:-4])]),
    (CALLS + f"{CALL}time{SEP}{CALL_END}" + CALLS_END, "", "", [("time", "{}")]),
    (CALLS + v3("time", "") + CALLS_END, "", "", [("time", "{}")]),
    (CALLS + f"{CALL}x{CALL_END}" + CALLS_END, f"{CALL}x{CALL_END}", "", []),
    (CALL, CALL, "", []),
    ("a <｜tool", "a <｜tool", "", []),
    ("<think>\na\n</think>\n\nb", "b", "a", []),
    ("<think>a</think>\n" + CALLS + v31() + CALLS_END, "", "a", ONE),
    (CALLS + v3().replace("```json\n", "```\n") + CALLS_END, "", "", ONE),
    (CALLS + f"{CALL}function{SEP}weather\n{ARGS}{CALL_END}" + CALLS_END, "", "", ONE),
]


def message(header: str, text: str, end: str = "<|end|>") -> str:
    return f"<|channel|>{header}<|message|>{text}{end}"


NEXT, TO = "<|start|>assistant", "commentary to=functions."
HARMONY: list[Case] = [
    ("", "", "", []),
    ("plain", "plain", "", []),
    (message("final", "hello", ""), "hello", "", []),
    (message("final", "hello", "<|return|>"), "hello", "", []),
    (message("analysis", "hm") + NEXT + message("final", "yes", ""), "yes", "hm", []),
    (message("analysis", "hm", ""), "", "hm", []),
    (message(TO + "weather <|constrain|>json", ARGS, "<|call|>"), "", "", ONE),
    (message(TO + "weather json", ARGS, ""), "", "", ONE),
    (message("analysis", "a") + NEXT + message(TO + "weather", ARGS, ""), "", "a", ONE),
    (
        message(TO + "weather", ARGS) + NEXT + message(TO + "time", "{}", ""),
        *("", "", TWO),
    ),
    (
        message(TO + "weather", ARGS, "<|call|>") + NEXT + message(TO + "time", "{}", ""),
        *("", "", TWO),
    ),
    (
        message("commentary", "Looking.") + NEXT + message(TO + "weather", ARGS, ""),
        *("Looking.", "", ONE),
    ),
    (f" to=functions.weather{message('commentary json', ARGS, '')}", "", "", ONE),
    (" to be or not", " to be or not", "", []),
    (f"{NEXT} to=functions.weather{message('commentary json', ARGS, '')}", "", "", ONE),
    (message(TO + "time", "", "<|call|>"), "", "", [("time", "{}")]),
    (message(TO + "weather", '{"city": ', ""), "", "", [("weather", '{"city": ')]),
    (message(TO + "weather", "not json", ""), "", "", [("weather", "not json")]),
    ("<|channel|>analysis", "", "", []),
    ("<|chan", "<|chan", "", []),
    (message("final", "a < b <|x", ""), "a < b <|x", "", []),
    (message("analysis", "a") + NEXT + message("analysis", "b", ""), "", "ab", []),
    (message("final", "x") + NEXT + message("final", "y", ""), "xy", "", []),
]
KINDS: dict[str, tuple[type[AnswerReader], list[Case]]] = {
    "hermes": (TaggedCallReader, HERMES),
    "qwen": (TaggedCallReader, QWEN),
    "llama": (LlamaCallReader, LLAMA),
    "mistral": (MistralCallReader, MISTRAL),
    "deepseek": (DeepseekCallReader, DEEPSEEK),
    "gpt-oss": (HarmonyReader, HARMONY),
}
CASES = [(name, *case) for name, (_, cases) in KINDS.items() for case in cases]


def test_each_form_has_twenty_texts():
    assert all(len(cases) >= 20 for _, cases in KINDS.values())


@pytest.mark.parametrize(
    ("name", "text", "content", "reasoning", "calls"),
    CASES,
    ids=[f"{case[0]}-{place}" for place, case in enumerate(CASES)],
)
def test_a_text_is_divided_wherever_it_is_cut(
    name: str, text: str, content: str, reasoning: str, calls: list[tuple[str, str]]
):
    kind, _ = KINDS[name]
    wanted = (content, reasoning, calls)
    assert result(read(kind, text)) == wanted
    assert result(read(kind, *text)) == wanted
    data = text.encode()
    for place in range(len(data) + 1):
        utf8 = codecs.getincrementaldecoder("utf-8")()
        parts = [utf8.decode(data[:place]), utf8.decode(data[place:], final=True)]
        assert result(read(kind, *parts)) == wanted


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_any_text_is_divided_alike_however_it_comes(name: str, data: st.DataObject):
    kind, cases = KINDS[name]
    marks = [
        *kind.special,
        *kind.thinks,
        *'{}[]":, \n;ax',
        '"name"',
        '"weather"',
        "<function=",
        ARGS,
    ]
    pieces = st.one_of(st.sampled_from([text for text, *_ in cases]), st.sampled_from(marks))
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    assert result(read(kind, text)) == result(read(kind, *text))


def test_arguments_are_streamed_as_they_come():
    for kind, before, after in (
        (TaggedCallReader, '<tool_call>\n{"name": "weather", "arguments": ', "}\n</tool_call>"),
        (LlamaCallReader, '{"name": "weather", "parameters": ', "}"),
        (MistralCallReader, "[TOOL_CALLS]weather[ARGS]", ""),
        (DeepseekCallReader, f"{CALLS}{CALL}weather{SEP}", CALL_END + CALLS_END),
        (HarmonyReader, f"<|channel|>{TO}weather<|message|>", "<|call|>"),
        (ArgumentsReader, "", ""),
        (CallListReader, '[{"name": "weather", "arguments": ', "}]"),
    ):
        tools = TOOLS[:1]
        reader = kind(tools)
        made = [piece for char in before for piece in reader.push(char)]
        parts = [reader.push(char) for char in ARGS]
        # Each character but one is given when it comes.
        assert sum(bool(part) for part in parts) >= len(ARGS) - 1
        for part in parts:
            made += part
        made += [*reader.push(after), *reader.end()]
        found = AnswerParts()
        found.take(made)
        assert result(found) == ("", "", ONE)
        assert all(isinstance(piece, CallPiece) for piece in made)


def test_a_prompt_that_ends_inside_of_the_reasoning():
    for kind in (PlainReader, TaggedCallReader, DeepseekCallReader):
        assert result(read(kind, "hm\n</think>\n\nyes", reasons=True)) == ("yes", "hm", [])
        assert result(read(kind, "hm", reasons=True)) == ("", "hm", [])
        assert result(read(kind, "<think>hm</think>yes", reasons=True)) == ("yes", "hm", [])
    assert result(read(MistralReader, "[THINK]hm[/THINK]yes")) == ("yes", "hm", [])


def test_further_calls_than_the_most_are_left_out():
    text = tagged(call()) + tagged(call("time", "{}"))
    assert result(read(TaggedCallReader, text, most=1)) == ("", "", ONE)


def test_ids_of_calls_differ():
    found = read(TaggedCallReader, tagged(call()) * 3)
    assert len({piece.id for piece in found.calls}) == 3


@pytest.mark.parametrize(
    ("template", "calls", "reasons"),
    [
        (None, None, None),
        ("{{ messages }}", None, None),
        ("{{ tools }}<tool_call>", TaggedCallReader, None),
        ("{{ tools }}<tool_call><think>", TaggedCallReader, PlainReader),
        ("{{ tools }}<|python_tag|>", LlamaCallReader, None),
        ("{{ tools }}[TOOL_CALLS]", MistralCallReader, None),
        ("{{ tools }}[TOOL_CALLS][THINK]", MistralCallReader, MistralReader),
        ("{{ tools }}<｜tool▁calls▁begin｜></think>", DeepseekCallReader, PlainReader),
        ("{{ tools }}<|channel|>analysis", HarmonyReader, HarmonyReader),
    ],
    ids=range(9),
)
def test_the_template_decides(template: str | None, calls: object, reasons: object):
    assert call_reader(template) is calls
    assert reasoning_reader(template) is reasons
    assert set(FORMATS.values()) >= {kind for kind, _ in KINDS.values()}
