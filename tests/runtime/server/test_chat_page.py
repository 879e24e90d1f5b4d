"""The page at / in a browser: conversations, what is kept, and what answers may hold."""

from __future__ import annotations

import json
from collections.abc import Generator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.oracles.chromium import NO_BROWSER, Page, program
from tests.runtime.server.served import LENGTH, NAME, Live, engine_of, live
from tests.runtime.server.test_compiled_settings import CHOOSES
from tests.runtime.server.test_tools import answering

# Waits for a condition of the page.
UNTIL = """new Promise((done, fail) => {{
  const end = Date.now() + 50000;
  (function look() {{
    if ({0}) done(true);
    else if (Date.now() > end) fail(new Error(document.body.innerText));
    else setTimeout(look, 20);
  }})();
}})"""
ANSWER = 'document.querySelector(".assistant:last-child")'
# Notes the bodies that the page sends.
LISTEN = """globalThis.sent = []; globalThis.plainly = fetch;
globalThis.fetch = (url, options) => {
  if (options?.body) sent.push(options.body);
  return plainly(url, options);
}; true"""
# Markup that must not become elements, attributes or requests.
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<a href=javascript:alert(1)>x</a>",
    "<a href='&#106;avascript:alert(1)'>x</a>",
    "<a href=data:text/html,x>x</a>",
    "<p onclick=alert(1) style=color:red id=form class=message>x</p>",
    "<form action=/v1/completions><input name=text></form>",
    "<iframe srcdoc='<img src=x onerror=alert(1)>'></iframe>",
    "<math><mtext><table><mglyph><style><!--</style><img src=x onerror=alert(1)>",
    "<base href=//example.org><meta http-equiv=refresh content=0><link rel=stylesheet href=//x>",
)
CLEAN = """[...purified({0}).querySelectorAll("*")].map((found) =>
  [found.localName, ...[...found.attributes].map(({{ name, value }}) => `${{name}}=${{value}}`)])"""


@pytest.fixture
def page(server: Live, tmp_path: Path) -> Generator[Page]:
    if program() is None:
        pytest.skip(NO_BROWSER)
    made = Page(f"{server.url}/", tmp_path)
    until(made, f'document.querySelector("h1").textContent === "{NAME}"')
    yield made
    made.close()


def until(page: Page, condition: str) -> None:
    page.run(UNTIL.format(condition))


def send(page: Page, text: str, tokens: int) -> None:
    """Type a message and press the button."""
    page.run(
        f'at("tokens").value = {tokens}; at("text").value = "{text}"; at("send").click(); true'
    )


def answered(page: Page, text: str, answer: str) -> None:
    """Send a message whose answer is this text."""
    with answering(answer):
        send(page, text, 60)
        until(page, 'at("state").textContent.includes("end:") && !running')


def test_a_message_is_answered_and_a_stream_is_stopped(page: Page, server: Live):
    send(page, "count", 4)
    until(page, 'at("state").textContent.includes("end:") && !running')
    assert page.run('document.querySelector(".user").textContent') == "count"
    assert page.run(f"{ANSWER}.textContent.length > 0")
    # The conversation goes on, and this answer would be long.
    send(page, "go on", LENGTH // 2)
    until(page, f"{ANSWER}.textContent.length > 0 || !running")
    page.run('at("stop").click(); true')
    until(page, "!running")
    server.settle()
    assert page.run("messages.map(({ role }) => role)") in (
        ["user", "assistant"] * 2,
        # Stopped before the first token: the message may be sent again.
        ["user", "assistant"],
    )
    page.run('at("clear").click(); true')
    assert page.run('document.querySelectorAll(".message").length') == 0
    assert page.complaints == []
    assert {url.startswith((server.url, "data:")) for url in page.requests} == {True}


def test_an_answer_is_shown_as_markdown(page: Page):
    answered(page, "table", "**b** `c`\n\n```py\nif a < 1:\n```\n\n1. one\n\n[d](https://e.org)")
    assert page.run(f'{ANSWER}.querySelector("strong").textContent') == "b"
    assert page.run(f'{ANSWER}.querySelector("pre code").textContent') == "if a < 1:\n"
    assert page.run(f'{ANSWER}.querySelector("ol li").textContent') == "one"
    assert page.run(f'{ANSWER}.querySelector("a").rel') == "noopener noreferrer nofollow"
    assert page.complaints == []


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
        ("[x](javascript:alert(1))", "x"),
        ("![x](https://e.org/y.png)", "x"),
    ],
)
def test_an_answer_of_a_model_runs_and_fetches_nothing(page: Page, answer: str, seen: str):
    page.requests.clear()
    answered(page, "go", answer)
    assert page.run(f'{ANSWER}.querySelector(".written").textContent.trim()') == seen
    assert page.run('document.querySelectorAll("img, [onerror], a[href^=javascript]").length') == 0
    assert page.complaints == []
    assert [url for url in page.requests if "/v1/" not in url] == []


def test_markup_is_kept_to_plain_elements(page: Page):
    allowed = {"a", "p", "table", "target=_blank", "rel=noopener noreferrer nofollow"}
    for text in HOSTILE:
        found = page.run(CLEAN.format(json.dumps(text)))
        assert {*chain(*found)} <= allowed, (text, found)
    assert page.run("purified(\"<a href='https://e.org'>x</a>\").firstChild.href")
    # The policy refuses styles and bases already where DOMPurify parses them.
    assert all("Content Security Policy" in text for text in page.complaints)


def test_the_policy_refuses_scripts_and_other_hosts(page: Page, server: Live):
    refused = 'fetch("https://example.org/").then(() => false, () => true)'
    assert page.run(refused)
    assert page.run('try { document.body.innerHTML = "<p>"; false } catch { true }')
    page.run('document.head.append(make("style", {}, "body { color: red }")); true')
    assert page.run('getComputedStyle(document.body).color !== "rgb(255, 0, 0)"')
    assert any("connect-src" in text for text in page.complaints)
    assert any("style-src" in text for text in page.complaints)


def test_the_policy_is_a_header(client: TestClient):
    policy = client.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy
    directives = dict(part.split(maxsplit=1) for part in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"].startswith("'sha256-")
    assert directives["require-trusted-types-for"] == "'script'"


def test_the_browser_keeps_conversation_and_settings(page: Page):
    page.run('at("key").value = "secret"; at("system").value = "Be short."; true')
    page.run('at("temperature").value = "0"; at("system").dispatchEvent(new Event("change")); true')
    answered(page, "one", "*two*")
    assert "secret" not in page.run("JSON.stringify({ ...localStorage })")
    page.reload()
    until(page, f'document.querySelector("h1").textContent === "{NAME}"')
    assert page.run('[...document.querySelectorAll(".message")].map((m) => m.innerText[0])') == [
        "o",
        "t",
    ]
    assert page.run('[at("system").value, at("temperature").value]') == ["Be short.", "0"]
    page.run(LISTEN)
    answered(page, "three", "four")
    (body,) = page.run("sent.map((body) => JSON.parse(body))")
    assert body["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "*two*"},
        {"role": "user", "content": "three"},
    ]
    assert (body["temperature"], body["max_tokens"]) == (0, 60)
    page.run('at("clear").click(); true')
    page.reload()
    assert page.run('document.querySelectorAll(".message").length') == 0
    assert page.run('at("system").value') == "Be short."


def test_what_another_page_has_stored_is_passed_over(page: Page):
    for stored in ("{", "[]", '{"messages": [{"role": "tool", "content": "x"}]}'):
        page.run(f"localStorage.setItem(KEPT, {json.dumps(stored)}); true")
        page.reload()
        assert page.run("messages.length") == 0
    assert page.complaints == []


def test_an_adapter_is_chosen_as_a_model(page: Page):
    models = '{"data": [{"id": "small"}, {"id": "poet", "parent": "small"}]}'
    page.run(f"globalThis.fetch = async () => new Response({json.dumps(models)}); true")
    page.run("findModels()")
    assert page.run("[...at('served').options].map(({ text }) => text)") == [
        "small",
        "poet (adapter)",
    ]
    page.run("at('served').value = 'poet'; at('served').dispatchEvent(new Event('change')); true")
    assert page.run("[asked().model, at('model').textContent]") == ["poet", "poet"]
    # The list may be read again.
    page.run("findModels()")
    assert page.run("at('served').value") == "poet"


def test_tokens_have_their_probabilities(page: Page):
    page.run(LISTEN)
    answered(page, "go", "a b")
    (body,) = page.run("sent.map((body) => JSON.parse(body))")
    assert (body["logprobs"], body["top_logprobs"]) == (True, 5)
    page.run(f'{ANSWER}.querySelector(".below button").click(); true')
    count = page.run(f'{ANSWER}.querySelectorAll(".token").length')
    assert count == page.run("messages[1].tokens.length")
    assert page.run("messages[1].tokens.map(([text]) => text).join('')").startswith("a b")
    hovering = f'{ANSWER}.querySelectorAll(".token")[{{}}]'
    over = 'dispatchEvent(new PointerEvent("pointerover", { bubbles: true }))'
    page.run(f"{hovering.format(1)}.{over}; true")
    kept: Any = page.run("messages[1].tokens[1]")
    shown = page.run('document.querySelector("#hover tr.taken").innerText')
    assert f"{kept[1]:.3f}" in shown
    assert page.run('document.querySelectorAll("#hover tr").length') in (5, 6)
    # The arrow keys go on from there.
    view = f'{ANSWER}.querySelector(".tokens")'
    page.run(f'{view}.dispatchEvent(new KeyboardEvent("keydown", {{ key: "ArrowLeft" }})); true')
    assert page.run(f'{hovering.format(0)}.classList.contains("chosen")')
    page.run(f'{ANSWER}.querySelector(".below button").click(); true')
    assert page.run('at("hover").hidden')
    assert page.run(f'{ANSWER}.querySelector(".written").textContent.trim()') == "a b"
    assert page.complaints == []


def test_an_error_is_shown_and_the_message_may_be_sent_again(page: Page, server: Live):
    send(page, "count", 10**6)
    until(page, 'document.querySelector(".failure") !== null')
    assert "maximum context length" in page.run('document.querySelector(".failure").textContent')
    assert page.run("messages.length") == 0
    assert page.run('at("text").value') == "count"


def test_a_server_that_has_ended_is_said_in_words(tmp_path: Path):
    if program() is None:
        pytest.skip(NO_BROWSER)
    with live() as ended:
        page = Page(f"{ended.url}/", tmp_path)
        until(page, f'document.querySelector("h1").textContent === "{NAME}"')
    try:
        send(page, "count", 4)
        until(page, 'document.querySelector(".failure") !== null')
        said = page.run('document.querySelector(".failure").textContent')
        assert said.startswith("The connection to the server broke off")
    finally:
        page.close()


def test_a_model_without_log_probabilities_is_asked_without_them(tmp_path: Path):
    if program() is None:
        pytest.skip(NO_BROWSER)
    with live(engine=engine_of(sampling=CHOOSES)) as choosing:
        page = Page(f"{choosing.url}/", tmp_path)
        try:
            page.run('at("temperature").value = 0; true')
            send(page, "count", 2)
            until(page, 'at("state").textContent.includes("end:") && !running')
            assert not page.run('at("logprobs").checked')
            assert page.run("messages[1].tokens.length") == 0
        finally:
            page.close()


def test_a_key_is_sent(tmp_path: Path):
    if program() is None:
        pytest.skip(NO_BROWSER)
    with live(api_keys=("open",)) as guarded:
        page = Page(f"{guarded.url}/", tmp_path)
        try:
            until(page, 'at("state").textContent.includes("Incorrect API key")')
            page.run('at("key").value = "open"; at("key").dispatchEvent(new Event("change")); true')
            until(page, f'document.querySelector("h1").textContent === "{NAME}"')
            send(page, "count", 2)
            until(page, 'at("state").textContent.includes("end:")')
        finally:
            page.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(page: Page, width: int):
    page.resize(width, 800)
    page.run('at("settings").open = true; true')
    answered(page, "x" * 40, f"{'a' * 20}\n\n    {'b' * 20}")
    assert page.run("document.documentElement.scrollWidth") <= width
    boxes = page.run(
        '[...document.querySelectorAll("button, input, textarea, select, .message")]'
        ".map((found) => found.getBoundingClientRect()).map(({ left, right }) => [left, right])"
    )
    assert all(left >= 0 and right <= width for left, right in boxes)
