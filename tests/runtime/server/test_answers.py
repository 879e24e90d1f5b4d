"""Answers of both endpoints: the texts are those of the model without a server."""

from __future__ import annotations

import json
import threading
from typing import Any

from starlette.testclient import TestClient

from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.engine_thread import EngineThread
from tests.runtime.server.served import LENGTH, NAME, URL, service_of, small_engine

PROMPT = "The llama said"


def alone(prompt: list[int], new_tokens: int) -> list[int]:
    """The tokens of a greedy answer without a server."""
    engine = small_engine()
    request = GenerationRequest(new_tokens, engine.tokenizer.eos_ids)
    return engine.generate([prompt], request).completions[0].tokens


def text_of(tokens: list[int]) -> str:
    return small_engine().tokenizer.decode(tokens)


def answer(client: TestClient, path: str = "/v1/completions", **body: Any) -> Any:
    response = client.post(path, json={"model": NAME, "temperature": 0, **body})
    assert response.status_code == 200, response.text
    return response.json()


def events(client: TestClient, path: str, **body: Any) -> list[Any]:
    """The values of a stream's events; it ends with [DONE]."""
    response = client.post(path, json={"model": NAME, "temperature": 0, "stream": True, **body})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *lines, last, end = response.text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_completion_is_the_text_of_the_model(client: TestClient):
    prompt = small_engine().tokenizer.encode(PROMPT)
    tokens = alone(prompt, 8)
    made = answer(client, prompt=PROMPT, max_tokens=8)
    assert made["object"] == "text_completion"
    assert made["model"] == NAME
    (choice,) = made["choices"]
    assert choice["text"] == text_of(tokens)
    assert choice["finish_reason"] == ("length" if len(tokens) == 8 else "stop")
    count = len(prompt)
    assert made["usage"] == {
        "prompt_tokens": count,
        "completion_tokens": len(tokens),
        "total_tokens": count + len(tokens),
    }


def test_a_chat_is_rendered_by_the_models_template(client: TestClient):
    messages = [
        {"role": "system", "content": "Count."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "to "}, {"type": "text", "text": "3"}],
        },
    ]
    plain = [{"role": "system", "content": "Count."}, {"role": "user", "content": "to 3"}]
    tokens = alone(small_engine().tokenizer.encode_chat(plain), 8)
    made = answer(client, "/v1/chat/completions", messages=messages, max_tokens=8)
    assert made["object"] == "chat.completion"
    message = made["choices"][0]["message"]
    assert (message["role"], message["content"]) == ("assistant", text_of(tokens))
    renamed = [{**plain[0], "role": "developer"}, plain[1]]
    again = answer(client, "/v1/chat/completions", messages=renamed, max_completion_tokens=8)
    assert again["choices"][0]["message"]["content"] == text_of(tokens)


def test_a_stream_gives_the_same_text_in_pieces(client: TestClient):
    whole = answer(client, prompt=PROMPT, max_tokens=12)
    options = {"include_usage": True}
    *pieces, usage = events(
        client, "/v1/completions", prompt=PROMPT, max_tokens=12, stream_options=options
    )
    texts = [piece["choices"][0]["text"] for piece in pieces]
    assert len(texts) > 1
    assert "".join(texts) == whole["choices"][0]["text"]
    reasons = [piece["choices"][0]["finish_reason"] for piece in pieces]
    assert set(reasons[:-1]) == {None}
    assert reasons[-1] == whole["choices"][0]["finish_reason"]
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])


def test_a_streamed_chat_begins_with_the_role(client: TestClient):
    messages = [{"role": "user", "content": "naïve 🦙"}]
    path = "/v1/chat/completions"
    whole = answer(client, path, messages=messages, max_tokens=9)
    first, *rest = events(client, path, messages=messages, max_tokens=9)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    deltas = [piece["choices"][0]["delta"].get("content", "") for piece in rest]
    assert "".join(deltas) == whole["choices"][0]["message"]["content"]
    assert rest[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert {piece["object"] for piece in rest} == {"chat.completion.chunk"}


def test_each_prompt_has_n_choices_in_order(client: TestClient):
    encode = small_engine().tokenizer.encode
    first, second = encode("don't panic"), encode("1000000!")
    made = answer(client, prompt=[first, second], n=2, max_tokens=5)
    assert [choice["index"] for choice in made["choices"]] == [0, 1, 2, 3]
    texts = [choice["text"] for choice in made["choices"]]
    assert texts == [text_of(alone(first, 5))] * 2 + [text_of(alone(second, 5))] * 2
    assert made["usage"]["prompt_tokens"] == len(first) + len(second)


def test_a_seed_repeats_an_answer_and_n_answers_differ(client: TestClient):
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 2, "n": 2, "ignore_eos": True}
    texts = [
        [choice["text"] for choice in answer(client, seed=seed, **body)["choices"]]
        for seed in (-5, -5, 6)
    ]
    assert texts[0] == texts[1]
    assert texts[0][0] != texts[0][1]
    assert texts[2] != texts[0]


def test_echo_begins_with_the_prompt(client: TestClient):
    plain = answer(client, prompt=PROMPT, max_tokens=4)["choices"][0]["text"]
    body = {"prompt": PROMPT, "max_tokens": 4, "echo": True}
    assert answer(client, **body)["choices"][0]["text"] == PROMPT + plain
    pieces = events(client, "/v1/completions", **body)
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == PROMPT + plain


def test_a_chat_without_a_limit_ends_where_the_row_does(client: TestClient):
    messages = [{"role": "user", "content": "count"}]
    made = answer(client, "/v1/chat/completions", messages=messages, ignore_eos=True)
    assert made["choices"][0]["finish_reason"] == "length"
    assert made["usage"]["total_tokens"] == LENGTH


def test_facts_of_the_server(client: TestClient):
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == (NAME, LENGTH)
    assert client.get(f"/v1/models/{NAME}").json() == model
    assert client.get("/v1/models/other").json()["error"]["code"] == "model_not_found"
    assert client.get("/health").json() == {"status": "ok"}


def _wait_for(event: threading.Event) -> None:
    assert event.wait(60)


def test_readiness_comes_with_the_warm_up():
    go = threading.Event()
    service = service_of()
    service.thread = EngineThread(service.thread.engine, lambda: _wait_for(go))
    with TestClient(make_application(service), base_url=URL) as starting:
        assert starting.get("/ready").status_code == 503
        assert starting.get("/health").status_code == 200
        go.set()
        # This one waits for the warm-up.
        assert answer(starting, prompt=PROMPT, max_tokens=1)
        assert starting.get("/ready").status_code == 200
