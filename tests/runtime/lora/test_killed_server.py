"""A server that is killed while it loads adapters: files stay, and the next server is right."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.graphgen.cli.conftest import ROOT
from tests.oracles.families import save_tokenizer
from tests.oracles.lora_adapters import merged, random_factors, save_adapter

NAMES = ("a", "b", "c", "d")
FLAGS = ("--max-loras", "2", "--max-num-seqs", "2", "--max-model-len", "32")

DYNAMIC = ("--enable-dynamic-multi-lora", "--lora-dir")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, four adapters, and the model with the first of them merged."""
    made = tmp_path_factory.mktemp("killed")
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=512, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        initializer_range=0.2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(made / "base")
    for seed, name in enumerate(NAMES):
        factors = random_factors(model, ["q_proj", "down_proj"], 4, seed)
        save_adapter(made / name, model, factors)
        if not seed:
            merged(model, factors, 2.0).save_pretrained(made / "merged")
    for name in ("base", "merged"):
        save_tokenizer(made / name)
    return made


class Served:
    """A server as a process of its own."""

    def __init__(self, model: Path, *flags: str | Path) -> None:
        command = [sys.executable, "-m", "graphgen", "serve", str(model), "--port", "0", *flags]
        self.process = subprocess.Popen(
            [*command, "--json", "--served-model-name", "base"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split('"')[3]
        end = time.monotonic() + 120
        while httpx2.get(f"{self.url}/ready").status_code != 200:
            assert time.monotonic() < end
            time.sleep(0.1)

    def end(self, *, killed: bool = False) -> int:
        """Its status."""
        if killed:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.communicate(timeout=60)
        return self.process.returncode

    def post(self, path: str, **body: Any) -> httpx2.Response:
        return httpx2.post(f"{self.url}/v1/{path}", json=body, timeout=120)

    def answer(self, model: str) -> str:
        made = self.post(
            "completions", model=model, prompt="the cat", max_tokens=8, temperature=0,
            ignore_eos=True,
        )  # fmt: skip
        assert made.status_code == 200, made.text
        return made.json()["choices"][0]["text"]


@pytest.mark.slow
def test_adapters_are_whole_after_a_server_was_killed_while_it_loads_them(folder: Path):
    files = {path: path.read_bytes() for name in NAMES for path in (folder / name).iterdir()}
    first = Served(folder / "base", *FLAGS, *DYNAMIC, folder)
    plain = first.answer("base")

    def load_and_ask() -> None:
        # Each loads another one in the middle of the others' requests.
        for name in NAMES * 20:
            try:
                first.post("load_lora_adapter", lora_name=name, lora_path=str(folder / name))
                first.answer(name)
                first.post("unload_lora_adapter", lora_name=name)
            except (httpx2.TransportError, AssertionError):
                return

    clients = [threading.Thread(target=load_and_ask) for _ in range(3)]
    for client in clients:
        client.start()
    time.sleep(1)
    assert first.end(killed=True) < 0
    for client in clients:
        client.join(60)
    assert files == {path: path.read_bytes() for path in files}

    again = Served(folder / "base", *FLAGS, *DYNAMIC, folder)
    try:
        loaded = again.post("load_lora_adapter", lora_name="a", lora_path=str(folder / "a"))
        assert loaded.status_code == 200, loaded.text
        with_adapter, without = again.answer("a"), again.answer("base")
    finally:
        again.end()
    assert without == plain
    alone = Served(folder / "merged", *FLAGS[2:])
    try:
        assert with_adapter == alone.answer("base") != plain
    finally:
        alone.end()
