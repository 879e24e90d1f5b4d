"""Listings of AWS's documents, from the documents themselves, on small random checkpoints.

``GRAPHGEN_AWS_DOCUMENTS`` names a folder of them; without it the tests are skipped. A listing is
changed only in its imports and in the folder of its checkpoints, and runs to its end.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.eagle import write_eagle
from tests.oracles.families import ORACLES, save_as
from tests.oracles.listings import Listing, listings

DOCUMENTS = os.environ.get("GRAPHGEN_AWS_DOCUMENTS", "")
FOUND = [
    listing
    for path in sorted(Path(DOCUMENTS).glob("*.*") if DOCUMENTS else [])
    for listing in listings(path)
]
# Sizes that let a small model run every listing: long sequences, heads for eight ranks.
SIZES = {
    "llama": {"max_position_embeddings": 16384, "num_attention_heads": 8, "vocab_size": 600},
    "mistral": {"max_position_embeddings": 4096, "vocab_size": 600},
    "gpt2": {"n_positions": 4096, "vocab_size": 600},
    "bloom": {"vocab_size": 600},
}
# The documents' home directory, which becomes the working directory.
_HOME = "/".join(("", "home", "ubuntu", ""))
_PATH = re.compile(r"""['"]([\w-]+/[\w./-]+|gpt2|[\w-]*Llama-[\w.-]+)['"]""")
_FRAGMENT = """
import copy, json, torch
from graphgen.runtime.aws.{home} import *
max_loras, lora_ckpt_paths, kwargs = 1, {{"a": "adapter"}}, {{}}
"""
_MODEL = """
from transformers import AutoTokenizer, GenerationConfig
model_path, compiled_model_path, prompts = "model/Llama-mini", "compiled", ["the cat sat"]
config = LlamaInferenceConfig(NeuronConfig(), load_config=load_pretrained_config(model_path))
tokenizer = AutoTokenizer.from_pretrained(model_path)
generation_config = GenerationConfig(max_new_tokens=4)
"""
_LOADED = """
model = neuron_model = NeuronLlamaForCausalLM(model_path, config)
model.compile(compiled_model_path)
model.load(compiled_model_path)
inputs = tokenizer(prompts, return_tensors="pt")
"""


@pytest.mark.slow
@pytest.mark.skipif(not FOUND, reason="GRAPHGEN_AWS_DOCUMENTS names no folder of documents")
@pytest.mark.parametrize("listing", FOUND, ids=lambda listing: listing.place)
def test_a_listing_runs(listing: Listing, tmp_path: Path):
    script = tmp_path / "listing.py"
    script.write_text(_script(listing))
    for name in _checkpoints(script.read_text()):
        _write_checkpoint(tmp_path / name, listing.text)
    for name in re.findall(r'"([\w-]+[.]json)"', listing.text):
        (tmp_path / name).write_text("[[0], [1]]")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


def _script(listing: Listing) -> str:
    """The listing, after what its document takes for granted."""
    text = listing.ours.replace(_HOME, "")
    fragment = "import" not in text or "# Init Neuron model" in text
    if not fragment or text.startswith("class"):
        return text
    other = "transformers_neuronx" in Path(DOCUMENTS, listing.place.partition(":")[0]).read_text()
    before = _FRAGMENT.format(home="tnx" if other else "nxdi")
    if re.search(r"model\.compile|GenerationAdapter", text):
        before += _MODEL
        if "GenerationAdapter" in text:
            before += _LOADED
    return before + text


def _checkpoints(text: str) -> set[str]:
    names = set(_PATH.findall(text))
    return {name for name in names if not re.search("quantized|compiled|neuron_models", name)}


def _write_checkpoint(folder: Path, corpus: str) -> None:
    """A small random model of the family that the name of the folder names."""
    name = folder.name.lower()
    family = next((family for family in SIZES if family in name), "")
    if not family:
        return
    changes: dict[str, Any] = dict(SIZES[family])
    if family == "llama":
        changes["num_key_value_heads"] = 2
    model = ORACLES[family].model(**changes)
    if "eagle" in name and "enable_eagle_speculation" in corpus:
        sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
        config = model.config.to_dict()
        own = {"vocab_size": 600, "own": ["lm_head"], **{size: config[size] for size in sizes}}
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_eagle(folder, **own)
        _write_tokenizer(folder, corpus)
        return
    # An EAGLE recipe reads the index of a checkpoint in parts.
    save_as(model, folder, "safetensors sharded" if "meta" in name else "safetensors single")
    _write_tokenizer(folder, corpus)


def _write_tokenizer(folder: Path, corpus: str) -> None:
    """A BPE of the words of a listing: prompts have as few tokens as with the real one.

    One listing stacks two prompts without padding, which differ by one word: it is dropped.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.Replace(" also", "")
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=599, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([corpus] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="Ġ", pad_token="Ġ")
    tokenizer.save_pretrained(folder)
