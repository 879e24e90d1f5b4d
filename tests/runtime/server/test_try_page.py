"""The page at / in a browser: type, read the stream, stop it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.oracles.chromium import NO_BROWSER, Page, program
from tests.runtime.server.served import LENGTH, NAME, Live, live

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


@pytest.fixture
def page(server: Live, tmp_path: Path) -> Generator[Page]:
    if program() is None:
        pytest.skip(NO_BROWSER)
    made = Page(f"{server.url}/", tmp_path)
    yield made
    made.close()


def until(page: Page, condition: str) -> None:
    page.run(UNTIL.format(condition))


def send(page: Page, text: str, tokens: int) -> None:
    """Type a message and press the button."""
    page.run(
        f'at("tokens").value = {tokens}; at("text").value = "{text}"; at("send").click(); true'
    )


def test_a_message_is_answered_and_a_stream_is_stopped(page: Page, server: Live):
    until(page, f'document.querySelector("h1").textContent === "{NAME}"')
    send(page, "count", 4)
    until(page, 'at("state").textContent.includes("end:")')
    assert page.run('document.querySelector(".user").textContent') == "count"
    assert page.run(f"{ANSWER}.textContent.length > 0")
    # The conversation goes on, and this answer would be long.
    send(page, "go on", LENGTH // 2)
    until(page, f"{ANSWER}.textContent.length > 0 || !running")
    page.run('at("stop").click(); true')
    until(page, "!running")
    server.settle()
    assert page.run("messages.length") == 4
    page.run('at("clear").click(); true')
    assert page.run('document.querySelectorAll(".message").length') == 0
    assert page.complaints == []
    assert {url.startswith((server.url, "data:")) for url in page.requests} == {True}


def test_an_error_is_shown_and_the_message_may_be_sent_again(page: Page, server: Live):
    until(page, f'document.querySelector("h1").textContent === "{NAME}"')
    send(page, "count", 10**6)
    until(page, 'document.querySelector(".error") !== null')
    assert "maximum context length" in page.run('document.querySelector(".error").textContent')
    assert page.run("messages.length") == 0


def test_a_key_is_sent(tmp_path: Path):
    if program() is None:
        pytest.skip(NO_BROWSER)
    with live(api_keys=("open",)) as guarded:
        page = Page(f"{guarded.url}/", tmp_path)
        try:
            until(page, 'at("state").textContent.includes("Incorrect API key")')
            page.run('at("key").value = "open"; true')
            send(page, "count", 2)
            until(page, 'at("state").textContent.includes("end:")')
        finally:
            page.close()
