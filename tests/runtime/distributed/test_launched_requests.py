"""Adapters and steps in flight of several processes: the tokens are those of one process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from tests.graphgen.cli.test_chat_loop import TEMPLATE
from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.oracles.lora_adapters import random_factors, save_adapter
from tests.oracles.small_gguf import write_small_model
from tests.runtime.distributed.launches import GRAPHGEN, answered

pytestmark = pytest.mark.slow

# Other work may keep a process from its core for long.
LAUNCH = ("launch", "--nproc-per-node", "2", "--silent-after", "60", "--")
PROMPTS = ("--prompt", "the cat", "--prompt", "a dog and")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama, whose tokens vary."""
    folder = tmp_path_factory.mktemp("model")
    save(ORACLES["llama"].model(vocab_size=301, initializer_range=0.2), folder)
    save_tokenizer(folder)
    return folder


def ran(words: tuple[str, ...], model: Path, *more: str) -> list[list[int]]:
    """The tokens that ``generate`` answers."""
    line = [*GRAPHGEN, *words, "generate", str(model), "--dtype", "f32", "--json", *more]
    line += ["--max-new-tokens", "6", "--ignore-eos"]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    return answered(ended.stdout)


def test_each_prompt_has_its_adapter(model: Path, tmp_path: Path):
    base = AutoModelForCausalLM.from_pretrained(model)
    flags: list[str] = []
    for seed, (name, target) in enumerate({"a": "o_proj", "b": "up_proj"}.items()):
        factors = random_factors(base, ["q_proj", target], 4, seed)
        save_adapter(tmp_path / name, base, factors, r=4, lora_alpha=8)
        flags += ["--lora", f"{name}={tmp_path / name}", "--adapter-id", name]
    wanted = ran((), model, *PROMPTS, *flags)
    assert wanted != ran((), model, *PROMPTS)
    assert ran(LAUNCH, model, *PROMPTS, *flags, "--tp", "2") == wanted


def test_steps_in_flight(model: Path):
    drawn = ("--on-device-sampling", "--do-sample", "--top-k", "20", "--seed", "3")
    wanted = ran((), model, *PROMPTS, *drawn)
    assert ran(LAUNCH, model, *PROMPTS, *drawn, "--async-mode", "--tp", "2") == wanted


def test_a_conversation_goes_on_where_it_was(tmp_path: Path):
    model = tmp_path / "small.gguf"
    write_small_model(model, {"tokenizer.chat_template": TEMPLATE, "llama.context_length": 512})
    found: list[list[object]] = []
    for words, more in (((), ()), (LAUNCH, ("--tp", "2"))):
        line = [*GRAPHGEN, *words, "generate", str(model), "--dtype", "f32", "--json", "--chat"]
        line += ["--max-new-tokens", "6", "--ignore-eos", *more]
        ended = subprocess.run(
            line, input="abc\nand\n", capture_output=True, text=True, timeout=240
        )
        assert ended.returncode == 0, ended.stderr
        found.append([json.loads(turn)["outputs"] for turn in ended.stdout.splitlines()])
    assert len(found[0]) == 2
    assert found[1] == found[0]
