"""``graphgen serve`` as a process: an artifact compiles nothing, SIGTERM lets requests finish."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.graphgen.cli.conftest import ROOT, done, error, graphgen
from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.oracles.small_gguf import HEAD_DIM, KV_HEADS, LAYERS, write_small_model


def start(*arguments: object, **variables: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """A server, and the line that it prints."""
    command = [sys.executable, "-m", "graphgen", "serve", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **variables}
    process = subprocess.Popen(
        [*command, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return process, json.loads(line)


def ready(url: str) -> None:
    end = time.monotonic() + 120
    while httpx2.get(f"{url}/ready").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.1)


def arrived(url: str) -> float:
    """Number of choices that wait, have a row, or have ended."""
    names = ("graphgen_rows_taken", "graphgen_requests_waiting", "graphgen_choices_total")
    lines = httpx2.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))


@pytest.mark.slow
def test_a_server_starts_from_its_artifact_and_drains(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf", {"llama.context_length": 256})
    kept = tmp_path / "kept"
    variables = {"NEURON_COMPILED_ARTIFACTS": str(kept), "NEURON_RT_EXEC_TIMEOUT": "600"}
    made, _ = start(tmp_path / "small.gguf", "--max-num-seqs", 2, **variables)
    made.terminate()
    _, log = made.communicate(timeout=120)
    assert "note: the variable NEURON_RT_EXEC_TIMEOUT has no effect" in log
    process, facts = start(kept, "--served-model-name", "s")
    url = facts["url"]
    # The address is written when it answers.
    assert httpx2.get(f"{url}/ready").status_code == 200
    body = {"model": "s", "prompt": "a", "max_tokens": 200, "ignore_eos": True, "temperature": 0}
    answers: list[Any] = []

    def ask() -> None:
        response = httpx2.post(f"{url}/v1/completions", json=body, timeout=120)
        answers.append((response.status_code, response.json()))

    # Two have rows, the others wait.
    clients = [threading.Thread(target=ask) for _ in range(6)]
    for client in clients:
        client.start()
    end = time.monotonic() + 60
    while arrived(url) < len(clients):
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    for client in clients:
        client.join()
    _, log = process.communicate(timeout=60)
    assert process.returncode == 0, log
    assert [status for status, _ in answers] == [200] * 6
    texts = {made["choices"][0]["text"] for _, made in answers}
    assert len(texts) == 1
    assert {made["usage"]["completion_tokens"] for _, made in answers} == {200}
    assert "compiling" not in log
    assert "startup" not in log
    assert '"prompts"' not in log


@pytest.mark.slow
@pytest.mark.parametrize("layout", [(), ("--block-size", 8)])
def test_the_end_says_what_caches_have_clamped(tmp_path: Path, layout: tuple[object, ...]):
    model, narrow = tmp_path / "small.gguf", json.dumps({"kv_cache_quant": True})
    write_small_model(model)
    flags = ("--override-neuron-config", narrow, "--max-num-seqs", 1, *layout)
    process, facts = start(model, *flags)
    ready(facts["url"])
    body = {"model": facts["model"], "prompt": "a", "max_tokens": 5, "ignore_eos": True}
    for _ in range(3):
        assert httpx2.post(f"{facts['url']}/v1/completions", json=body).status_code == 200
    process.terminate()
    _, log = process.communicate(timeout=60)
    # A prompt of one token and four that came after it; the last one is not in the cache.
    numbers = 5 * 2 * LAYERS * KV_HEADS * HEAD_DIM
    assert f"caches saturated: 0 of {numbers} numbers, 0 %, at an end of their type" in log


@pytest.mark.slow
@pytest.mark.parametrize("adaptive", [(), ("--speculative-adaptive",)])
def test_a_draft_of_vllm_s_flags_proposes_tokens(tmp_path: Path, adaptive: tuple[str, ...]):
    model = tmp_path / "small.gguf"
    write_small_model(model, {"llama.context_length": 256})
    flags = ("--speculative-model", model, "--num-speculative-tokens", 3, "--max-num-seqs", 2)
    more = ("--speculative-max-model-len", 200, "--served-model-name", "s", *adaptive)
    process, facts = start(model, *flags, *more)
    url = facts["url"]
    ready(url)
    body = {"model": "s", "prompt": "a", "max_tokens": 230, "ignore_eos": True, "temperature": 0}
    made = httpx2.post(f"{url}/v1/completions", json=body, timeout=120).json()
    process.terminate()
    process.communicate(timeout=60)
    details = made["usage"]["completion_tokens_details"]
    # The model accepts its own proposals, which end at 200 tokens.
    assert details["rejected_prediction_tokens"] <= 3
    assert (0 if adaptive else 135) < details["accepted_prediction_tokens"] < 155
    plain = done(
        "generate", model, "--prompt", "a", "--max-new-tokens", 230, "--ignore-eos", "--json"
    )
    assert made["choices"][0]["text"] == json.loads(plain.stdout)["outputs"][0]["text"]


# The server command of the 405B tutorial's second scenario, with lengths of a small model.
SECOND = (
    *("--max-num-seqs", 1, "--max-model-len", 128, "--tensor-parallel-size", 2),
    *("--device", "neuron", "--use-v2-block-manager"),
)
PROPOSING = ("--speculative-max-model-len", 128, "--num-speculative-tokens", 7)
OVERRIDE = '"quantized-mlp-kernel-enabled":true, "quantization-type":"per_channel_symmetric"}'


def answer(*flags: object) -> str:
    """What a server with these flags answers to a prompt, greedily."""
    process, facts = start(*flags, "--served-model-name", "s", UNSAFE_FP8FNCAST="1")
    url = facts["url"]
    ready(url)
    body = {"model": "s", "prompt": "a b", "max_tokens": 24, "ignore_eos": True, "temperature": 0}
    made = httpx2.post(f"{url}/v1/completions", json=body, timeout=120).json()
    process.terminate()
    process.communicate(timeout=60)
    return made["choices"][0]["text"]


@pytest.mark.slow
def test_the_server_of_the_tutorials_second_scenario_starts_as_printed(tmp_path: Path):
    target, draft, stored = (tmp_path / name for name in ("target", "draft", "stored"))
    for folder, layers in ((target, 2), (draft, 1)):
        save(ORACLES["llama"].model(vocab_size=300, num_hidden_layers=layers), folder)
        save_tokenizer(folder)
    done("quantize", target, "-o", stored, "--quantization-dtype", "f8e4m3", "--format", "nxdi")
    flags = ("--model", stored, *SECOND, "--override-neuron-config")
    proposing = ("--speculative-model", draft, *PROPOSING)
    printed = answer(*flags, '{"enable_fused_speculation":true, ' + OVERRIDE, *proposing)
    assert len(printed) > 5
    assert printed == answer(*flags, "{" + OVERRIDE)


@pytest.mark.slow
def test_products_of_8_bits_are_refused_for_a_plain_model(tmp_path: Path):
    save(ORACLES["llama"].model(vocab_size=300), tmp_path / "plain")
    save_tokenizer(tmp_path / "plain")
    flags = ("serve", tmp_path / "plain", "--override-neuron-config", "{" + OVERRIDE)
    refused = " ".join(error(*flags).split())
    assert "quantized_mlp_kernel_enabled = True: the weights of the MLP are not" in refused
    assert "graphgen repro" not in refused


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--num-speculative-tokens", 4), "--num-speculative-tokens has no effect: nothing"),
        (("--speculation-length", 4), "--speculation-length has no effect: nothing proposes"),
        (("--speculative-max-model-len", 64), "has no effect: nothing proposes"),
        (("--prompt-lookup", 2, "--draft-layers", 1), "exclude each other"),
        (("--prompt-lookup", 2, "--speculative-max-model-len", 64), "which has no draft"),
        (
            ("--prompt-lookup", 2, "--override-neuron-config", '{"speculation_length": 4}'),
            "which --speculation-length gives too",
        ),
    ],
)
def test_flags_of_speculation_that_say_nothing_are_refused(
    tmp_path: Path, flags: tuple[object, ...], message: str
):
    model = tmp_path / "small.gguf"
    write_small_model(model)
    assert message in " ".join(error("serve", model, *flags).split())


def test_flags_that_are_not_built_are_refused():
    assert "--device tpu is unknown" in error("serve", "x", "--device", "tpu")
    assert "is not a list of sizes" in error("serve", "x", "--chunked-prefill-size", "a")
    assert "--kv-cache-dtype has no effect" in error("serve", "x", "--kv-cache-dtype", "int8")
    assert "is unknown" in error("serve", "x", "--special-tokens-in-messages", "ids")
    assert "which is not a host" in error("serve", "x", "--allowed-hosts", "a,")
    assert "which is not a host" in error("serve", "x", "--allowed-hosts", "http://a")


def test_an_empty_key_is_refused_wherever_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    keys = tmp_path / "keys"
    for text in ("", "\n", "a\n\nb\n", "a\n \n"):
        keys.write_text(text)
        assert "is empty" in error("serve", "x", "--api-key-file", keys)
    assert "No such file" in error("serve", "x", "--api-key-file", tmp_path / "none")
    for flags in (("",), (" ",), ("a", "--api-key", "")):
        assert "is empty: every client" in error("serve", "x", "--api-key", *flags)
    for value in ("", " "):
        monkeypatch.setenv("GRAPHGEN_API_KEY", value)
        shown = error("serve", "x", "--api-key", "a")
        assert "GRAPHGEN_API_KEY is empty" in " ".join(shown.split())


def test_a_key_on_the_command_line_is_noted(tmp_path: Path):
    model, keys = tmp_path / "none.gguf", tmp_path / "keys"
    shown = graphgen("serve", model, "--port", 0, "--api-key", "a").stderr
    assert "--api-key is visible in the list of processes" in " ".join(shown.split())
    keys.write_text("one\ntwo\n")
    assert "visible" not in graphgen("serve", model, "--port", 0, "--api-key-file", keys).stderr
