"""Loads on a fake server: the requests it gets, the faults that are counted, the files."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from graphgen.cli.main import app
from graphgen.runtime.benchmark.llmperf_report import LoadReport, file_stem
from graphgen.runtime.benchmark.load_prompts import LoadPrompt, PromptSizes, make_prompts
from graphgen.runtime.benchmark.load_run import Load, LoadResult, run_load
from graphgen.runtime.benchmark.openai_client import Api, RequestOutcome
from graphgen.runtime.benchmark.request_metrics import RequestTimes
from tests.oracles.small_gguf import write_small_model
from tests.runtime.benchmark.fake_server import ANSWER, FAULTS, FakeServer

SIZES = ("--mean-input-tokens", 12, "--stddev-input-tokens", 0)
ANSWERS = ("--mean-output-tokens", 3, "--stddev-output-tokens", 0)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def load_test(base: str, *arguments: object, key: str = "mock_key") -> Result:
    given = ["load-test", "--model", "org/fake-1B", *map(str, (*SIZES, *ANSWERS, *arguments))]
    environment = {"OPENAI_API_BASE": base, "OPENAI_API_KEY": key}
    return CliRunner().invoke(app, given, env=environment)


def measured(base: str, *arguments: object) -> list[Any]:
    shown = load_test(base, *arguments, "--json")
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


def files(folder: Path) -> tuple[Any, Any]:
    (summary,) = folder.glob("*_summary.json")
    (responses,) = folder.glob("*_individual_responses.json")
    return json.loads(summary.read_text()), json.loads(responses.read_text())


def test_requests_are_those_of_openai(tmp_path: Path):
    with FakeServer() as server:
        extra = ("--additional-sampling-params", '{"temperature": 0.5}')
        (found,) = measured(server.base + "/", "--max-num-completed-requests", 3, *extra)
    assert found["results"]["num_completed_requests"] == 3
    assert set(server.keys) == {"bearer mock_key"}
    assert set(server.paths) == {"POST /v1/chat/completions HTTP/1.1"}
    for body in server.bodies:
        (message,) = body.pop("messages")
        assert message["role"] == "user"
        assert len(message["content"].split()) == 12
        assert body == {
            "model": "org/fake-1B",
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 3,
            "temperature": 0.5,
        }


def test_prompts_as_they_are_and_no_key():
    with FakeServer() as server:
        shown = load_test(server.base, "--endpoint", "completions", key="")
    assert shown.exit_code == 0, shown.output
    assert set(server.paths) == {"POST /v1/completions HTTP/1.1"}
    assert set(server.keys) == {""}
    assert all(len(str(body["prompt"]).split()) == 12 for body in server.bodies)


def test_tokens_are_those_of_the_server_of_the_tokenizer_or_of_the_events(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    with FakeServer() as server:
        (by_server,) = measured(server.base)
        (by_tokenizer,) = measured(server.base, "--tokenizer", tmp_path / "small.gguf")
        asked = ["stream_options" in body for body in server.bodies]
        server.usage = False
        (by_events,) = measured(server.base)
    sizes = [
        [found["results"][f"number_{kind}_tokens"]["max"] for kind in ("input", "output")]
        for found in (by_server, by_tokenizer, by_events)
    ]
    assert sizes[0] == [1000, 3]
    assert sizes[2] == [12, 3]
    # The small vocabulary has letters: fewer words are sent, and an answer is more tokens.
    assert sizes[1][0] <= 12
    assert sizes[1][1] > 3
    assert asked == [True] * 10 + [False] * 10


@pytest.mark.parametrize("users", [1, 3])
def test_a_closed_loop_has_as_many_requests_at_a_time(users: int):
    with FakeServer(gap=0.02) as server:
        arguments = ("--num-concurrent-requests", users, "--max-num-completed-requests", 7)
        (found,) = measured(server.base, *arguments)
    assert server.most == users
    assert len(server.bodies) == 7
    assert found["num_concurrent_requests"] == users
    results = found["results"]
    assert results["num_completed_requests"] == results["num_requests_started"] == 7
    assert results["ttft_s"]["max"] < results["end_to_end_latency_s"]["max"]
    assert results["number_output_tokens"]["quantiles"]["p50"] == 3


def test_arrivals_of_a_rate_do_not_wait_for_answers():
    with FakeServer(gap=0.2) as server:
        arguments = ("--request-rate", "500", "--max-num-completed-requests", 6)
        (found,) = measured(server.base, *arguments)
    # Each answer takes 0.6 s, and all requests arrive in about 0.012 s.
    assert server.most > 1
    assert found["request_rate"] == 500
    assert "num_concurrent_requests" not in found
    assert found["results"]["num_completed_requests"] == 6


@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        ("429", 429, "too many requests"),
        ("500", 500, "an internal error"),
        ("dropped", -1, "RemoteProtocolError"),
        ("closed", -1, "RemoteProtocolError"),
        ("refused", 503, "out of rows"),
        ("malformed", -1, "an event is not JSON"),
        ("no-choices", -1, "an event has no choices"),
        ("not-a-stream", -1, "SSEError"),
    ],
)
def test_a_fault_is_one_error_and_the_others_are_measured(
    tmp_path: Path, fault: str, code: int, message: str
):
    with FakeServer(script=(ANSWER, fault, ANSWER)) as server:
        shown = load_test(
            server.base,
            "--results-dir",
            tmp_path,
            "--num-concurrent-requests",
            1,
            "--max-num-completed-requests",
            6,
        )
    assert shown.exit_code == 0, shown.output
    summary, responses = files(tmp_path)
    assert len(server.bodies) == 6
    assert summary["results_number_errors"] == 2
    assert summary["results_num_completed_requests"] == 4
    assert summary["results_num_requests_started"] == 6
    assert summary["results_error_rate"] == pytest.approx(1 / 3)
    assert summary["results_error_code_frequency"] == f"{{{code}: 2}}"
    assert [one["error_code"] for one in responses] == [None, code, None] * 2
    assert message in responses[1]["error_msg"]
    assert responses[0]["error_msg"] == ""
    assert "Number Of Errored Requests: 2\nError Code Frequency\n" in shown.stdout
    assert summary["results_number_output_tokens_min"] == 3
    assert f"error {code}: " in shown.stderr
    assert set(FAULTS) >= {fault}


def test_a_server_that_is_not_there():
    with FakeServer() as server:
        base = server.base
    shown = load_test(base, "--max-num-completed-requests", 2)
    assert (shown.exit_code, shown.stdout) == (1, "")
    said = f"error[GG0705]: {base} answered none of 2 requests: ConnectError"
    assert shown.stderr.startswith(said)
    assert shown.stderr.count("ConnectError") == 1


# The layout of AWS's published reports.
LAYOUT = """Results for token benchmark for org/fake-1B queried with the openai api.

inter_token_latency_s
{q}
ttft_s
{q}
end_to_end_latency_s
{q}
request_output_throughput_token_per_s
{q}
number_input_tokens
{q}
number_output_tokens
{q}
Number Of Errored Requests: 0
Overall Output Throughput: #
Number Of Completed Requests: 5
Completed Requests Per Minute: #
"""
QUANTILES = "\n".join(
    f"    {name} = #"
    for name in ("p25", "p50", "p75", "p90", "p95", "p99", "mean", "min", "max", "stddev")
)


def test_text_and_files_have_llmperf_s_layout(tmp_path: Path):
    with FakeServer() as server:
        shown = load_test(
            server.base,
            "--max-num-completed-requests",
            5,
            "--results-dir",
            tmp_path / "results",
            "--metadata",
            "machine=trn1,run=3",
        )
    layout = re.sub(r"(= |Throughput: |Minute: )[-+.e\d]+", r"\1#", shown.stdout)
    assert layout == LAYOUT.format(q=QUANTILES)
    assert "    min = 3\n    max = 3\n" in shown.stdout
    summary, responses = files(tmp_path / "results")
    assert (tmp_path / "results" / "org-fake-1B_12_3_summary.json").exists()
    assert summary["version"] == "2023-08-31"
    assert summary["name"] == "org-fake-1B_12_3_summary"
    assert (summary["machine"], summary["run"]) == ("trn1", "3")
    assert abs(summary["timestamp"] - time.time()) < 3600
    assert summary["results_error_code_frequency"] == "{}"
    keys = [key for key in summary if key.startswith("results_ttft_s_")]
    assert keys == [
        *(f"results_ttft_s_quantiles_p{p}" for p in (25, 50, 75, 90, 95, 99)),
        *(f"results_ttft_s_{name}" for name in ("mean", "min", "max", "stddev")),
    ]
    # The two describe the same requests.
    times = [one["ttft_s"] for one in responses]
    assert summary["results_ttft_s_quantiles_p90"] == np.percentile(times, 90)
    assert summary["results_ttft_s_stddev"] == pytest.approx(np.std(times, ddof=1))
    one = responses[0]
    assert one["number_total_tokens"] == one["number_input_tokens"] + one["number_output_tokens"]
    gaps = one["end_to_end_latency_s"] - one["ttft_s"]
    assert one["inter_token_latency_s"] == pytest.approx(gaps / 2)


def test_accepted_tokens_of_speculation_are_those_that_the_server_names(tmp_path: Path):
    for predicted, known in (((2, 1), True), ((0, 0), False)):
        with FakeServer(predicted=predicted) as server:
            options = ("--max-num-completed-requests", 5, "--results-dir", tmp_path / str(known))
            shown = load_test(server.base, *options).stdout
        assert ("Accepted Proposed Tokens: 10 of 15\n" in shown) is known
        summary, _ = files(tmp_path / str(known))
        assert ("results_acceptance_rate" in summary) is known
        if known:
            assert summary["results_number_accepted_tokens"] == 10
            assert summary["results_acceptance_rate"] == pytest.approx(2 / 3)


def test_several_loads_have_files_of_their_own_and_a_picture(tmp_path: Path):
    picture = tmp_path / "load.svg"
    with FakeServer(script=(ANSWER, ANSWER, "429")) as server:
        shown = load_test(
            server.base,
            "--num-concurrent-requests",
            "1,2",
            "--max-num-completed-requests",
            4,
            "--results-dir",
            tmp_path,
            "--plot",
            picture,
        )
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("1 at a time\n\nResults for token benchmark")
    names = sorted(path.name for path in tmp_path.glob("*_summary.json"))
    assert names == [f"org-fake-1B_12_3_{n}-at-a-time_summary.json" for n in (1, 2)]
    sent = [str(body["messages"]) for body in server.bodies]
    assert len(set(sent)) == 8
    root = ElementTree.parse(picture).getroot()
    texts = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
    for text in ("requests at a time", "time to first token, s", "p99", "org/fake-1B"):
        assert any(text in item for item in texts), (text, texts)


def test_the_time_limit_drops_what_has_not_ended(tmp_path: Path):
    with FakeServer(hang=True) as server:
        shown = load_test(
            server.base,
            "--timeout",
            0.5,
            "--num-concurrent-requests",
            2,
            "--results-dir",
            tmp_path,
        )
    assert shown.exit_code == 0, shown.output
    summary, responses = files(tmp_path)
    assert (summary["num_requests_unfinished"], responses) == (2, [])
    assert "2 at a time: timed out; 2 requests had not ended, left out" in shown.stderr


def test_an_interruption_writes_what_was_measured(tmp_path: Path):
    def interrupt(number: int) -> None:
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with FakeServer(on_request=interrupt) as server:
        shown = load_test(
            server.base,
            "--num-concurrent-requests",
            "1,2",
            "--max-num-completed-requests",
            400,
            "--results-dir",
            tmp_path,
        )
    assert shown.exit_code == 130
    summary, responses = files(tmp_path)
    assert 3 <= len(responses) < 400
    assert summary["interrupted"] is True
    assert summary["results_num_completed_requests"] == len(responses)
    assert "wrote" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--num-concurrent-requests", "2", "--request-rate", "1"], "exclude each other"),
        (["--num-concurrent-requests", "2,x"], "is not a list of positive numbers"),
        (["--num-concurrent-requests", "0"], "is not a list of positive numbers"),
        (["--request-rate", "1,1"], "is not a list of positive numbers"),
        (["--request-rate", "inf"], "is not a list of positive numbers"),
        (["--request-rate", "nan"], "is not a list of positive numbers"),
        (["--additional-sampling-params", "{"], "is not a JSON object"),
        (["--additional-sampling-params", "[]"], "is not a JSON object"),
        (["--metadata", "name"], "'name' is not name=value"),
        (["--metadata", "a=1,a=2"], "'a=2' is not name=value"),
        (["--plot", "load.gif"], "is not the name of a picture file"),
    ],
)
def test_bad_arguments_send_nothing(arguments: list[str], what: str):
    shown = load_test("http://127.0.0.1:9/v1", *arguments)
    assert shown.exit_code == 1
    assert what in shown.stderr


@pytest.mark.parametrize(
    ("base", "what"), [("", "OPENAI_API_BASE is not set"), ("localhost:8000", "not an http URL")]
)
def test_the_server_has_to_be_named(base: str, what: str):
    shown = load_test(base)
    assert shown.exit_code == 1
    assert what in shown.stderr


def letters(text: str) -> int:
    return len(text)


@given(st.integers(1, 200), st.integers(0, 100), st.integers(0, 5), st.booleans())
def test_prompts_have_the_tokens_that_were_drawn(mean: int, stddev: int, seed: int, count: bool):
    sizes = PromptSizes(mean, stddev, 5, 2)
    made = make_prompts(4, sizes, seed, letters if count else None)
    assert made == make_prompts(6, sizes, seed, letters if count else None)[:4]
    for prompt in made:
        words = len(prompt.text.split())
        assert words >= 1
        assert prompt.input_tokens == (len(prompt.text) if count else words)
        assert prompt.output_tokens >= 1
        if stddev == 0:
            assert prompt.input_tokens <= max(mean, len("information"))
            assert count or words == mean


def test_prompts_differ_from_their_first_words():
    made = make_prompts(20, PromptSizes(50, 0, 5, 0), seed=0)
    assert len({tuple(prompt.text.split()[:6]) for prompt in made}) == 20


@pytest.mark.parametrize("load", [Load(users=2), Load(rate=1000.0)], ids=str)
def test_a_load_sends_each_prompt_once(load: Load):
    prompts = [LoadPrompt(str(number), 1, 1) for number in range(9)]
    sent: list[str] = []
    done: list[int] = []

    async def send(prompt: LoadPrompt) -> RequestOutcome:
        sent.append(prompt.text)
        await asyncio.sleep(0)
        return RequestOutcome(0.0, RequestTimes(1, 1, 0.1, 0.1))

    async def run() -> LoadResult:
        return await run_load(send, prompts, load, 60, asyncio.Event(), done.append)

    result = asyncio.run(run())
    assert sent == [prompt.text for prompt in prompts]
    assert done == list(range(1, 10))
    assert (len(result.outcomes), result.unfinished, result.interrupted) == (9, 0, False)
    assert result.wall > 0


def test_names_of_files_have_no_special_characters():
    report = LoadReport(
        Api("", "/models/Llama 3.1--8B"), PromptSizes(10, 0, 5, 0), LoadResult(Load())
    )
    assert file_stem(report, several=False) == "-models-Llama-3-1-8B_10_5"
