"""vLLM's own scheduler and servers over our programs: the tokens of our engine."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import LlamaForCausalLM

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.generation import GenerationRequest, generate
from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.oracles.lora_adapters import merged, random_factors, save_adapter
from tests.oracles.sessions import open_session
from tests.runtime.vllm_plugin.vllm_environment import answers, environment, needs_vllm, python

pytestmark = [pytest.mark.slow, needs_vllm]
VOCABULARY, LENGTH, NEW = 301, 64, 12
ENGINE = {
    "dtype": "float32",
    "max_model_len": LENGTH,
    "max_num_seqs": 4,
    "skip_tokenizer_init": False,
    "enable_prefix_caching": True,
    "block_size": 16,
}
GREEDY = {"temperature": 0, "max_tokens": NEW, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mini of Llama with a tokenizer."""
    made = tmp_path_factory.mktemp("vllm") / "llama"
    sizes = {"vocab_size": VOCABULARY, "initializer_range": 0.2, "max_position_embeddings": 128}
    save(ORACLES["llama"].model(**sizes), made)
    save_tokenizer(made)
    return made


def prompts(count: int, most: int = 40) -> list[list[int]]:
    rng = np.random.default_rng(count)
    return [rng.integers(0, VOCABULARY, rng.integers(2, most)).tolist() for _ in range(count)]


def wanted(folder: Path, texts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Greedy tokens of our engine, a text at a time."""
    session = open_session(folder, CompileConfig(dtype="f32").serving(batch=1, max_len=LENGTH))
    found: list[list[int]] = []
    for text in texts:
        done, _ = generate(session, [text], GenerationRequest(NEW))
        found.append(list(done[0].tokens))
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tensor_parallel_size": 2},
        {"pipeline_parallel_size": 2, "tensor_parallel_size": 2, "max_num_batched_tokens": 16},
        # Prompts in parts beside answers, and requests that lose their blocks.
        {"max_num_batched_tokens": 16, "num_gpu_blocks_override": 9},
    ],
)
def test_greedy_tokens_are_ours(changes: dict[str, Any], folder: Path, tmp_path: Path):
    texts = prompts(24)
    asked = [{"prompt": text, "sampling": GREEDY} for text in texts]
    found = answers(tmp_path, {"model": str(folder), **ENGINE, **changes}, asked)
    assert [one["tokens"] for one in found] == wanted(folder, texts)


def test_beginnings_are_processed_once(folder: Path, tmp_path: Path):
    texts = [[*range(40), last] for last in range(6)]
    asked = [{"prompt": text, "sampling": GREEDY} for text in texts]
    found = answers(tmp_path, {"model": str(folder), **ENGINE}, asked, rounds=2)
    assert [one["tokens"] for one in found] == wanted(folder, texts)
    assert [one["cached"] for one in found] == [32] * 6


def test_settings_are_those_of_the_request(folder: Path, tmp_path: Path):
    """The peers take the settings of whichever request came first."""
    text = prompts(1)[0]
    (greedy,) = wanted(folder, [text])
    drawn = {"temperature": 1.0, "max_tokens": NEW, "ignore_eos": True, "seed": 5}
    biased = {**GREEDY, "logit_bias": {"7": 100.0}}
    sampling = [GREEDY, drawn, biased, {**GREEDY, "logprobs": 2}, drawn, {**drawn, "seed": 6}]
    asked = [{"prompt": text, "sampling": one} for one in sampling]
    ends = {"temperature": 0, "max_tokens": NEW}
    asked.append({"prompt": text, "sampling": ends, "choice": ["the cat", "a mat"]})
    found = answers(tmp_path, {"model": str(folder), **ENGINE}, asked)
    tokens = [one["tokens"] for one in found]
    assert tokens[0] == tokens[3] == greedy
    assert tokens[1] == tokens[4]
    assert len({tuple(one) for one in (tokens[0], tokens[1], tokens[5])}) == 3
    assert tokens[2] == [7] * NEW
    assert all(str(token) in row for token, row in zip(greedy, found[3]["logprobs"], strict=True))
    assert found[6]["text"] in ("the cat", "a mat")


def test_requests_have_adapters_of_their_own(folder: Path, tmp_path: Path):
    model = LlamaForCausalLM.from_pretrained(folder)
    texts, expected = prompts(3), list[list[int]]()
    asked: list[dict[str, Any]] = []
    for place, text in enumerate(texts):
        request: dict[str, Any] = {"prompt": text, "sampling": GREEDY}
        source = folder
        if place:
            factors = random_factors(model, ["q_proj", "down_proj"], 4, place)
            adapter = save_adapter(tmp_path / f"adapter{place}", model, factors)
            source = tmp_path / f"merged{place}"
            save(merged(model, factors, 2.0), source)
            request["adapter"] = str(adapter)
        asked.append(request)
        expected += wanted(source, [text])
    engine = {"model": str(folder), **ENGINE, "enable_lora": True, "max_loras": 2}
    found = answers(tmp_path, {**engine, "max_lora_rank": 8}, asked)
    assert [one["tokens"] for one in found] == expected


@contextmanager
def served(folder: Path, home: Path, *more: str, **variables: str) -> Generator[str]:
    """vLLM's server of OpenAI's API over the plugin, by its address.

    Args:
        folder: of the model.
        home: for the log and what makes an entry point.
        more: flags.
        variables: of its environment.
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    flags = ["--dtype", "float32", "--max-model-len", str(LENGTH), "--max-num-seqs", "8"]
    command = [python(), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += [*flags, *more, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", "mini"]
    log = home / "server.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env={**environment(home), **variables}, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        url = f"http://127.0.0.1:{port}"
        import httpx2 as httpx

        for _ in range(300):
            assert process.poll() is None, log.read_text()[-6000:]
            try:
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(1)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def test_a_hundred_concurrent_requests_of_the_server(folder: Path, tmp_path: Path):
    import openai

    texts = prompts(100)
    expected = wanted(folder, texts)
    with served(folder, tmp_path) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

        def ask(text: list[int]) -> list[int]:
            made = client.completions.create(
                model="mini",
                prompt=text,
                max_tokens=NEW,
                temperature=0,
                extra_body={"ignore_eos": True, "return_token_ids": True},
            )
            return made.choices[0].model_dump()["token_ids"]

        def abort(text: list[int]) -> None:
            """Leave an answer after its first event."""
            stream = client.completions.create(
                model="mini", prompt=text, max_tokens=20, stream=True, extra_body={"min_tokens": 20}
            )
            next(iter(stream))
            stream.close()

        with ThreadPoolExecutor(100) as pool:
            asked = [pool.submit(ask, text) for text in texts]
            left = [pool.submit(abort, text) for text in texts[:10]]
            found = [one.result() for one in asked]
            for one in left:
                one.result()
        assert found == expected
        assert ask(texts[0]) == expected[0]
