"""Settings of requests: stop strings, log probabilities, biases, forms of answers."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Sequence
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from starlette.testclient import TestClient

from graphgen.runtime.server.application import make_application
from graphgen.runtime.tokenizer.text_stream import written
from tests.runtime.server.served import URL, service_of, small_engine
from tests.runtime.server.test_answers import PROMPT, answer, events

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "count to 3"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "kind": {"enum": ["llama", "naïve"]},
        "few": {"type": "array", "items": {"type": "integer", "maximum": 99}, "maxItems": 2},
    },
    "required": ["ok", "kind", "few"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}


def test_a_stop_string_ends_the_answer_before_it(client: TestClient):
    whole = answer(client, prompt=PROMPT, max_tokens=20, ignore_eos=True)["choices"][0]["text"]
    stop = whole[5:8]
    body = {"prompt": PROMPT, "max_tokens": 20, "ignore_eos": True, "stop": ["never there", stop]}
    (choice,) = answer(client, **body)["choices"]
    assert choice["text"] == whole[: whole.index(stop)]
    assert choice["finish_reason"] == "stop"
    pieces = events(client, "/v1/completions", **body)
    assert "".join(piece["choices"][0]["text"] for piece in pieces) == choice["text"]


def first_logits(prompt: list[int]) -> Any:
    """The logits after a prompt, without a server."""
    session = small_engine().session
    session.reset()
    places = np.arange(len(prompt))[None]
    result = session.step(np.array([prompt]), places, [0]).logits
    assert result is not None
    return result[0].astype(np.float64)


def whole_characters(tokens: Sequence[str]) -> list[int]:
    """The characters before each token; those of bytes become whole with later ones."""
    data, found = b"", list[int]()
    for text in tokens:
        found.append(len(codecs.getincrementaldecoder("utf-8")("replace").decode(data)))
        part = text.startswith("bytes:")
        data += bytes.fromhex(text[6:].replace("\\x", "")) if part else text.encode()
    return found


def test_log_probabilities_are_those_of_the_logits(client: TestClient):
    engine = small_engine()
    prompt = engine.tokenizer.encode(PROMPT)
    logits = first_logits(prompt)
    logs = logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())
    best = np.argsort(-logs, kind="stable")[:3]
    texts = [engine.tokenizer.token_text(int(token)) for token in best]
    (choice,) = answer(client, prompt=PROMPT, max_tokens=4, ignore_eos=True, logprobs=3)["choices"]
    given = choice["logprobs"]
    assert {len(given[name]) for name in ("tokens", "token_logprobs", "text_offset")} == {4}
    assert given["tokens"][0] == texts[0]
    assert given["token_logprobs"][0] == pytest.approx(logs[best[0]], abs=1e-4)
    assert given["top_logprobs"][0] == pytest.approx(
        dict(zip(texts, logs[best], strict=True)), abs=1e-4
    )
    assert given["text_offset"] == whole_characters(given["tokens"])


def test_log_probabilities_of_chats_are_the_same_in_a_stream(client: TestClient):
    body = {"messages": MESSAGES, "max_tokens": 8, "logprobs": True, "top_logprobs": 2}
    (choice,) = answer(client, CHAT, **body)["choices"]
    rows = choice["logprobs"]["content"]
    assert len(rows) == answer(client, CHAT, **body)["usage"]["completion_tokens"]
    for row in rows:
        assert len(row["top_logprobs"]) == 2
        assert row["top_logprobs"][0]["logprob"] >= row["logprob"]
        assert written(bytes(row["bytes"])) == row["token"]
    pieces = [piece["choices"][0] for piece in events(client, CHAT, **body)]
    streamed = [row for piece in pieces for row in (piece["logprobs"] or {}).get("content", ())]
    assert [row["token"] for row in streamed] == [row["token"] for row in rows]
    # A row that holds the prompt already goes on by another program.
    assert [row["logprob"] for row in streamed] == pytest.approx(
        [row["logprob"] for row in rows], abs=1e-4
    )


def test_a_bias_makes_a_token_certain_or_impossible(client: TestClient):
    tokenizer = small_engine().tokenizer
    (llama,) = tokenizer.encode("!")
    made = answer(client, prompt=PROMPT, max_tokens=5, logit_bias={str(llama): 100})
    assert made["choices"][0]["text"] == "!!!!!"
    first = int(first_logits(tokenizer.encode(PROMPT)).argmax())
    (choice,) = answer(
        client, prompt=PROMPT, max_tokens=1, logit_bias={str(first): -100}, logprobs=0
    )["choices"]
    assert choice["logprobs"]["tokens"] != [tokenizer.token_text(first)]


@pytest.mark.parametrize(
    ("frequency", "presence", "repetition"), [(2, 0, 1), (0, 2, 1), (1.5, 2, 1), (-1, 2, 3)]
)
def test_penalties_are_those_of_the_formulas(
    client: TestClient, frequency: float, presence: float, repetition: float
):
    prompt = small_engine().tokenizer.encode(PROMPT)
    made: list[int] = []
    for _ in range(12):
        logits = first_logits([*prompt, *made])
        count = np.bincount(made, minlength=logits.size)
        logits -= count * frequency + (count > 0) * presence
        known = [*prompt, *made]
        logits[known] *= np.where(logits[known] < 0, repetition, 1 / repetition)
        made.append(int(logits.argmax()))
    body = {
        "prompt": PROMPT,
        "max_tokens": 12,
        "ignore_eos": True,
        "frequency_penalty": frequency,
        "presence_penalty": presence,
        "repetition_penalty": repetition,
    }
    (choice,) = answer(client, **body)["choices"]
    assert choice["text"] == small_engine().tokenizer.decode(made)
    whole = answer(client, prompt=PROMPT, max_tokens=12, ignore_eos=True)["choices"][0]["text"]
    assert choice["text"] != whole


@pytest.mark.parametrize("seed", range(4))
def test_answers_match_their_schema(client: TestClient, seed: int):
    made = answer(
        client,
        CHAT,
        messages=MESSAGES,
        response_format=FORM,
        temperature=1.5,
        n=3,
        seed=seed,
        max_completion_tokens=90,
        # White space may go on forever.
        logit_bias={str(token): -100 for token in small_engine().tokenizer.encode(" \n\t")},
    )
    check = jsonschema_rs.validator_for(SCHEMA)
    ended = [c for c in made["choices"] if c["finish_reason"] == "stop"]
    assert ended
    for choice in ended:
        value = json.loads(choice["message"]["content"])
        check.validate(value)


def test_an_object_is_an_object(client: TestClient):
    form = {"type": "json_object"}
    body = {"prompt": PROMPT, "max_tokens": 30, "response_format": form}
    text = answer(client, **body)["choices"][0]["text"]
    assert text.startswith("{")
    plain = answer(client, prompt=PROMPT, max_tokens=30, response_format={"type": "text"})
    assert plain["choices"][0]["text"] != text


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"type": "objct"}, "objct"),
        ({"type": "string", "pattern": "("}, "regex"),
        ({"$ref": "https://example.com/x.json"}, "example.com"),
        (None, "json_schema.schema"),
    ],
    ids=["type", "pattern", "remote", "none"],
)
def test_a_schema_that_is_wrong_is_named(client: TestClient, schema: object, what: str):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = {"model": "small", "messages": MESSAGES, "response_format": form}
    response = client.post(CHAT, json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert what in error["message"]
    assert error["param"].startswith("response_format.json_schema")


@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
def test_a_special_token_ends_an_answer_by_its_text_and_by_its_id(client: TestClient, path: str):
    """Texts have no special tokens, so a stop string never matches one there."""
    tokenizer = small_engine().tokenizer
    text, number = next((t, n) for t, n in tokenizer.special_ids.items())
    asked = {"prompt": PROMPT} if path != CHAT else {"messages": MESSAGES}
    forced = {"max_tokens": 4, "ignore_eos": True, "logit_bias": {str(number): 100}}
    for ends in ({"stop": text}, {"stop": ["zz", text]}, {"stop_token_ids": [number]}):
        made = answer(client, path, **asked, **forced, **ends)
        (choice,) = made["choices"]
        shown = choice["text"] if path != CHAT else choice["message"]["content"]
        assert (shown, choice["finish_reason"]) == ("", "stop")
        assert made["usage"]["completion_tokens"] == 1
    (choice,) = answer(client, path, **asked, **forced, skip_special_tokens=False)["choices"]
    shown = choice["text"] if path != CHAT else choice["message"]["content"]
    assert (shown, choice["finish_reason"]) == (4 * text, "length")


def test_a_token_id_above_the_vocabulary_cannot_end_an_answer(client: TestClient):
    body = {"model": "small", "prompt": "a", "stop_token_ids": [1 << 20]}
    model = client.get("/v1/models").json()["data"][0]["id"]
    response = client.post("/v1/completions", json={**body, "model": model})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "stop_token_ids"


def test_a_character_over_the_seam_is_echoed_once(client: TestClient):
    tokenizer = small_engine().tokenizer
    ids = tokenizer.encode("a 日")
    assert tokenizer.prompt_text(ids[:-1]) != tokenizer.decode(ids[:-1])
    forced = {"max_tokens": 1, "logit_bias": {str(ids[-1]): 100}, "prompt": ids[:-1]}
    for echo, wanted in ((True, "a 日"), (False, "日")):
        assert answer(client, **forced, echo=echo)["choices"][0]["text"] == wanted
        pieces = [one["choices"] for one in events(client, "/v1/completions", **forced, echo=echo)]
        assert "".join(one[0]["text"] for one in pieces if one) == wanted


def test_arguments_of_the_template_make_the_prompt(client: TestClient):
    def prompt(**more: object) -> int:
        return answer(client, CHAT, messages=MESSAGES, max_tokens=1, **more)["usage"][
            "prompt_tokens"
        ]

    hint = " count to 7!"
    added = len(small_engine().tokenizer.encode_chat(MESSAGES, arguments={"hint": hint}))
    assert prompt(chat_template_kwargs={"hint": hint}) == added > prompt()
    assert prompt(chat_template_kwargs={}) == prompt(chat_template_kwargs=None) == prompt()
    wrong = {"messages": [], "tools": []}
    for name, value in wrong.items():
        body = {"model": "small", "messages": MESSAGES, "chat_template_kwargs": {name: value}}
        response = client.post(CHAT, json=body)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "chat_template_kwargs"
        assert name in response.json()["error"]["message"]


def test_the_server_has_arguments_for_requests_without_them():
    service = service_of(template_arguments={"hint": " so"})
    with TestClient(make_application(service), base_url=URL) as other:
        made = answer(other, CHAT, messages=MESSAGES, max_tokens=1)
    wanted = small_engine().tokenizer.encode_chat(MESSAGES, arguments={"hint": " so"})
    assert made["usage"]["prompt_tokens"] == len(wanted)


def prompt_logs(prompt: list[int]) -> list[float]:
    """The log probability of each token of a prompt but the first, without a server."""
    found: list[float] = []
    for place in range(1, len(prompt)):
        logits = first_logits(prompt[:place])
        logs = logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())
        found.append(float(logs[prompt[place]]))
    return found


@pytest.mark.parametrize("new", [0, 1, 3])
def test_an_echo_has_the_log_probabilities_of_the_prompt(client: TestClient, new: int):
    """As lm-eval asks for multiple choices: prompts of ids, several of them, no new token."""
    tokenizer = small_engine().tokenizer
    prompts = [tokenizer.encode(text) for text in (PROMPT, "to", "count to 3", PROMPT)]
    body = {"prompt": prompts, "max_tokens": new, "echo": True, "logprobs": 1, "ignore_eos": True}
    made = answer(client, **body)
    assert made["usage"]["completion_tokens"] == new * len(prompts)
    for prompt, choice in zip(prompts, made["choices"], strict=True):
        given = choice["logprobs"]
        assert choice["text"].startswith(tokenizer.decode(prompt))
        assert choice["finish_reason"] == "length"
        assert {len(row) for row in given.values()} == {len(prompt) + new}
        assert given["token_logprobs"][0] is given["top_logprobs"][0] is None
        known = given["token_logprobs"][1 : len(prompt)]
        assert known == pytest.approx(prompt_logs(prompt), abs=1e-4)
        assert all(len(row) == 1 for row in given["top_logprobs"][1:])
        assert given["text_offset"] == whole_characters(given["tokens"])
    alone = answer(client, **{**body, "prompt": prompts[0]})["choices"][0]
    assert alone["logprobs"]["token_logprobs"][1:] == pytest.approx(
        made["choices"][0]["logprobs"]["token_logprobs"][1:], abs=1e-4
    )
    pieces = [
        one["choices"][0]
        for one in events(client, "/v1/completions", **{**body, "prompt": prompts[0]})
    ]
    assert "".join(one["text"] for one in pieces) == alone["text"]
    rows = [one["logprobs"]["tokens"] for one in pieces if one["logprobs"]]
    assert [token for row in rows for token in row] == alone["logprobs"]["tokens"]


def test_no_new_token_is_for_an_echo_alone(client: TestClient):
    made = answer(client, prompt=PROMPT, max_tokens=0, echo=True)["choices"][0]
    assert (made["text"], made["finish_reason"], made["logprobs"]) == (PROMPT, "length", None)
    response = client.post(
        "/v1/completions", json={"model": "small", "prompt": PROMPT, "max_tokens": 0}
    )
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "max_tokens"
