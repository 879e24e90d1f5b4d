"""The openai package's own client against a server on a port."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.runtime.server.served import NAME, Live, live
from tests.runtime.server.test_answers import PROMPT
from tests.runtime.server.test_settings import FORM, MESSAGES


def openai_of(server: Live, key: str = "none") -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def test_completions_and_their_stream(server: Live):
    with openai_of(server) as client:
        asked: dict[str, Any] = {"model": NAME, "prompt": PROMPT, "max_tokens": 10, "seed": 3}
        whole = client.completions.create(**asked, n=2, logprobs=1)
        assert [choice.index for choice in whole.choices] == [0, 1]
        assert whole.choices[0].logprobs is not None
        parts: dict[int, str] = {0: "", 1: ""}
        for event in client.completions.create(**asked, n=2, stream=True):
            for choice in event.choices:
                parts[choice.index] += choice.text
        assert list(parts.values()) == [choice.text for choice in whole.choices]


def test_chats_and_their_stream(server: Live):
    with openai_of(server) as client:
        asked: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "max_completion_tokens": 10}
        asked["seed"] = 4
        whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
        assert whole.choices[0].logprobs is not None
        text, usage = "", None
        asked["stream_options"] = {"include_usage": True}
        for event in client.chat.completions.create(**asked, stream=True):
            text += "".join(choice.delta.content or "" for choice in event.choices)
            usage = event.usage or usage
        assert text == whole.choices[0].message.content
        assert usage == whole.usage
        models = client.models.list().data
        assert [model.id for model in models] == [NAME]


def test_a_json_schema(server: Live):
    with openai_of(server) as client:
        asked: dict[str, Any] = {"model": NAME, "messages": MESSAGES, "response_format": FORM}
        made = client.chat.completions.create(**asked, seed=1, max_tokens=90)
        text = made.choices[0].message.content or ""
        assert text.lstrip().startswith("{")
        if made.choices[0].finish_reason == "stop":
            assert set(json.loads(text)) == {"ok", "kind", "few"}


def test_errors_are_the_clients_exceptions(server: Live):
    with openai_of(server) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model=NAME, prompt=PROMPT, max_tokens=10**6)
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="other", prompt=PROMPT)
    with live(api_keys=("right",)) as guarded:
        with openai_of(guarded, "wrong") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()
        with openai_of(guarded, "right") as client:
            assert client.models.list().data


def test_many_at_once_get_what_each_gets_alone(server: Live):
    prompts = [f"{PROMPT} {n}" for n in range(10)]

    async def all_at_once() -> list[str]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            made = await asyncio.gather(
                *(
                    client.completions.create(
                        model=NAME, prompt=prompt, max_tokens=12, temperature=0
                    )
                    for prompt in prompts
                )
            )
        return [one.choices[0].text for one in made]

    together = asyncio.run(all_at_once())
    with openai_of(server) as client:
        alone = [
            client.completions.create(model=NAME, prompt=p, max_tokens=12, temperature=0)
            for p in prompts
        ]
    assert together == [one.choices[0].text for one in alone]
