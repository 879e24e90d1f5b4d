"""The trained draft of EAGLE is the draft that our programs run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.eagle.collect import Answer, load, save
from benchmarks.eagle.draft_network import DraftNetwork, losses
from benchmarks.eagle.prompts import kept_prompts, training_prompts
from benchmarks.eagle.train import Recipe, frequent_words, network_of, train
from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.open_speculator import eagle_session
from graphgen.runtime.progress import Silent
from graphgen.runtime.speculation.eagle_checkpoint import EagleCheckpoint
from tests.oracles.llama import write_llama

WORDS = 40


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target")
    write_llama(path)
    return path


def answers(count: int = 12) -> list[Answer]:
    random = np.random.default_rng(2)
    made: list[Answer] = []
    for number in range(count):
        size = 9 + number % 3
        tokens = random.integers(0, WORDS, size)
        # Features that follow from two tokens, and not by a linear map.
        features = np.eye(32, dtype=np.float32)[(tokens[:-1] * np.roll(tokens[:-1], 1)) % 32]
        made.append(Answer(tokens.tolist(), 4, features))
    return made


def trained(target: Path, **changes: float) -> tuple[DraftNetwork, np.ndarray, list[str]]:
    given, lines = answers(), list[str]()
    network = network_of(open_checkpoint(target), 0)
    words = frequent_words(given, WORDS, 131)
    recipe = Recipe(epochs=30, batch=4, rate=3e-3, penalty=1.0, **changes)  # pyright: ignore[reportArgumentType]
    train(network, given, words, recipe, lines.append)
    return network, words, lines


def test_our_programs_compute_the_network(target: Path, tmp_path: Path):
    network, words, _ = trained(target)
    network.save(tmp_path / "draft", open_checkpoint(target).config, words)
    eagle = EagleCheckpoint(open_checkpoint(tmp_path / "draft"), open_checkpoint(target))
    config = CompileConfig(context=(8,), tokens=(16,), speculation_length=4)
    session = eagle_session(eagle, config, Silent())
    given = answers()[0]
    tokens, features = given.tokens[1:8], given.features[:7]
    made = session.step([tokens], [np.arange(7)], features=[features])
    with torch.no_grad():
        wanted = network(torch.tensor([tokens]), torch.from_numpy(features[None]))[0].numpy()
    np.testing.assert_allclose(made.outputs["next_features"][0], wanted, rtol=0, atol=1e-4)
    head = open_checkpoint(target).read("lm_head.weight").astype(np.float32)[words]
    assert made.logits is not None
    np.testing.assert_allclose(made.logits[0], head @ wanted[-1], rtol=0, atol=1e-3)
    assert eagle.token_ids is not None
    assert eagle.token_ids.tolist() == words.tolist()


def test_training_begins_with_the_best_linear_map_and_improves(target: Path):
    network, words, lines = trained(target, noise=0.0)
    first, last = (float(line.split()[4].rstrip(",")) for line in (lines[0], lines[-1]))
    assert last < first
    inputs, wanted = torch.randn(200, 64), torch.randn(200, 32)
    network.begin_linear(inputs, wanted, 1e-3)
    exact = torch.linalg.lstsq(torch.cat([inputs, torch.ones(200, 1)], 1), wanted).solution
    with torch.no_grad():
        ours = network.fc(inputs)
    torch.testing.assert_close(ours, inputs @ exact[:-1] + exact[-1], atol=1e-3, rtol=0)
    assert len(words) == WORDS


def test_losses_are_zero_and_the_entropy_at_the_target():
    wanted, head = torch.randn(3, 5), torch.randn(7, 5)
    regression, entropy = losses(wanted, wanted, head, torch.ones(3))
    teacher = torch.softmax(wanted @ head.T, -1)
    assert regression == 0
    assert entropy == pytest.approx(float(-(teacher * teacher.log()).sum(-1).mean()), rel=1e-5)


def test_answers_are_kept_as_they_were(tmp_path: Path):
    given = answers(3)
    save(tmp_path / "text.npz", given)
    for one, other in zip(given, load(tmp_path / "text.npz"), strict=True):
        assert (one.tokens, one.prompt) == (other.tokens, other.prompt)
        np.testing.assert_array_equal(one.features, other.features)


def test_no_judged_prompt_is_trained_on():
    assert not {text for group in kept_prompts().values() for text in group} & set(
        training_prompts()
    )
