"""Choose the form of a model's tool calls by its chat template."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.runtime.tool_calls.answer_reader import AnswerReader, PlainReader
from graphgen.runtime.tool_calls.deepseek_calls import DeepseekCallReader
from graphgen.runtime.tool_calls.harmony_calls import HarmonyReader
from graphgen.runtime.tool_calls.llama_calls import LlamaCallReader
from graphgen.runtime.tool_calls.mistral_calls import MistralCallReader, MistralReader
from graphgen.runtime.tool_calls.tagged_calls import TaggedCallReader

# Texts of templates that only those of one form have; the first one that a template has decides.
FORMATS: Mapping[str, type[AnswerReader]] = {
    "<|channel|>": HarmonyReader,
    "<｜tool▁call": DeepseekCallReader,
    "[TOOL_CALLS]": MistralCallReader,
    "<tool_call>": TaggedCallReader,
    "<|python_tag|>": LlamaCallReader,
    '"parameters": dictionary of argument': LlamaCallReader,
}


def has_tools(template: str | None) -> bool:
    """True if a chat template shows tools to the model."""
    return template is not None and "tools" in template


def call_reader(template: str | None) -> type[AnswerReader] | None:
    """The reader of the calls of a template's model; ``None`` for an unknown form."""
    if template is None:
        return None
    return next((made for text, made in FORMATS.items() if text in template), None)


def reasoning_reader(template: str | None) -> type[AnswerReader] | None:
    """The reader of answers without tools; ``None`` where the model does not reason."""
    if template is None:
        return None
    if "<|channel|>" in template:
        return HarmonyReader
    if "[THINK]" in template:
        return MistralReader
    return PlainReader if "<think>" in template or "</think>" in template else None
