"""Every family from a checkpoint that transformers saved: the logits of transformers, in sessions.

Prompts of three lengths in one batch, prefill and decode, across a bucket boundary; and through the
engine and an artifact to the tokens transformers generates.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedModel

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.models import FAMILIES
from graphgen.runtime.checkpoint.expert_tensors import SplitExperts, StackedExperts
from graphgen.runtime.checkpoint.name_mapping import RenamedCheckpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.split_rows import SplitRows
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Silent
from tests.oracles.families import CASES, ORACLES, save, save_tokenizer
from tests.oracles.sessions import open_session

# The third crosses from the bucket of 128 to the next one while it decodes.
LENGTHS = (5, 17, 126)
STEPS = 4


def all_logits(model: PreTrainedModel, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


@pytest.mark.every_family
@pytest.mark.parametrize(("family", "variant"), CASES)
@pytest.mark.one_in(19)
def test_logits_are_those_of_transformers(family: str, variant: str, tmp_path: Path):
    # Weights as large as those of the other tests grow with 126 tokens: rounding would show.
    model = ORACLES[family].model(variant, initializer_range=0.1)
    save(model, tmp_path)
    session = open_session(
        tmp_path, CompileConfig(dtype="f32").serving(batch=len(LENGTHS), max_len=256)
    )
    random = np.random.default_rng(3)
    texts = [random.integers(0, 61, size + STEPS).tolist() for size in LENGTHS]
    wanted = [all_logits(model, text) for text in texts]
    prompts = [text[:size] for text, size in zip(texts, LENGTHS, strict=True)]
    logits = [session.prefill(prompts, "left" if len(variant) % 2 else "right")]
    for step in range(STEPS):
        column = [text[size + step] for text, size in zip(texts, LENGTHS, strict=True)]
        logits.append(session.decode(column))
    for step, ours in enumerate(logits):
        theirs = np.stack([w[n - 1 + step] for w, n in zip(wanted, LENGTHS, strict=True)])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    used = {report.name for report in session.programs.reports}
    assert len([name for name in used if name.startswith("decode")]) == 2


def strip(folder: Path, prefix: str) -> None:
    """Rewrite a checkpoint as it was saved from the model without a head."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file({name.removeprefix(f"{prefix}."): array for name, array in tensors.items()}, file)


@pytest.mark.parametrize("family", FAMILIES)
def test_names_without_the_prefix_are_read(family: str, tmp_path: Path):
    model = ORACLES[family].model()
    save(model, tmp_path)
    saved = open_checkpoint(tmp_path)
    whole = {name: np.array(saved.read(name)) for name in saved.tensors()}
    strip(tmp_path, FAMILIES[family].prefix)
    checkpoint = open_checkpoint(tmp_path)
    renamed = checkpoint
    while isinstance(renamed, StackedExperts | SplitExperts | SplitRows):
        renamed = renamed.base
    assert isinstance(renamed, RenamedCheckpoint)
    assert checkpoint.path == tmp_path
    assert set(checkpoint.tensors()) == set(whole)
    for name, array in whole.items():
        assert checkpoint.tensors()[name].name == name
        np.testing.assert_array_equal(checkpoint.read(name), array)
    check_checkpoint(
        checkpoint,
        build_model(checkpoint.config, CompileConfig()).module,
    )
    with pytest.raises(GraphgenError, match=r"there is no tensor 'nope'"):
        checkpoint.read("nope")


def test_masks_an_old_checkpoint_kept_are_no_weights(tmp_path: Path):
    model = ORACLES["gpt2"].model()
    save(model, tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    for layer in range(2):
        tensors[f"transformer.h.{layer}.attn.bias"] = np.ones((1, 1, 300, 300), np.uint8)
        tensors[f"transformer.h.{layer}.attn.masked_bias"] = np.array(-1e4, np.float32)
    save_file(tensors, file)
    strip(tmp_path, "transformer")
    checkpoint = open_checkpoint(tmp_path)
    built = build_model(checkpoint.config, CompileConfig())
    check_checkpoint(checkpoint, built.module)
    tensors["transformer.h.0.attn.surprise"] = np.zeros(3, np.float32)
    save_file(tensors, file)
    with pytest.raises(GraphgenError, match="1 unexpected"):
        check_checkpoint(open_checkpoint(tmp_path), built.module)


def test_an_unknown_family_keeps_its_names(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nobody"}))
    save_file({"a": np.zeros(1, np.float32)}, tmp_path / "model.safetensors")
    assert list(open_checkpoint(tmp_path).tensors()) == ["a"]


@pytest.mark.parametrize("family", ["gpt2", "bloom"])
def test_the_engine_gives_the_tokens_of_transformers(family: str, tmp_path: Path):
    model = ORACLES[family].model(vocab_size=301, initializer_range=0.2, eos_token_id=None)
    folder, kept = tmp_path / "model", tmp_path / "artifact"
    save(model, folder)
    save_tokenizer(folder)
    for path in (str(folder), str(kept)):
        options = EngineOptions(artifact=kept) if path == str(folder) else EngineOptions()
        engine, prompts = open_engine(
            path, options, lambda t: [t.encode("the cat"), t.encode("that mat sat")], 12, Silent()
        )
        done = engine.generate(prompts, GenerationRequest(12)).completions
        for prompt, completion in zip(prompts, done, strict=True):
            with torch.no_grad():
                text = torch.tensor([prompt])
                mask = torch.ones_like(text)
                theirs = model.generate(  # pyright: ignore[reportCallIssue]
                    text, attention_mask=mask, max_new_tokens=12, do_sample=False, pad_token_id=0
                )
            assert completion.tokens == theirs[0, len(prompt) :].tolist()
    assert engine.from_artifact


def test_no_sequence_is_longer_than_the_table_of_positions(tmp_path: Path):
    save(ORACLES["gpt2"].model(vocab_size=301), tmp_path)
    save_tokenizer(tmp_path)
    with pytest.raises(GraphgenError, match="more than the model's 300 positions"):
        open_engine(
            str(tmp_path), EngineOptions(max_len=301), lambda t: [t.encode("a")], 1, Silent()
        )
