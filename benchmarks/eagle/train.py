"""Training of a draft on the target's own text, by the losses of EAGLE's paper."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from benchmarks.eagle.collect import Answer
from benchmarks.eagle.draft_network import DraftNetwork, losses
from graphgen.runtime.checkpoint.interfaces import Checkpoint


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings of a training.

    Attributes:
        epochs: passes over the answers.
        batch: answers of a step.
        rate: largest learning rate of AdamW; it rises over 5 % of the steps and falls as a cosine.
        entropy: weight of the cross-entropy; that of the smooth L1 loss is 1. The paper takes 0.1.
        noise: half the width of the uniform noise on features.
        penalty: of the ridge regression that ``fc`` begins with.
        decay: of weights.
        words: tokens of the draft's head.
        seed: of all random numbers.
    """

    epochs: int = 3
    batch: int = 8
    rate: float = 5e-4
    entropy: float = 0.5
    noise: float = 0.4
    penalty: float = 1000.0
    decay: float = 0.3
    words: int = 4096
    seed: int = 0


def frequent_words(answers: Sequence[Answer], count: int, most: int) -> np.ndarray:
    """s64 [count] in order: the tokens that occur most, then those of the lowest numbers."""
    seen = Counter(token for answer in answers for token in answer.tokens)
    chosen = [token for token, _ in seen.most_common(count)]
    rest = (token for token in range(most) if token not in seen)
    chosen += [next(rest) for _ in range(count - len(chosen))]
    return np.sort(np.array(chosen, np.int64))


def network_of(target: Checkpoint, seed: int) -> DraftNetwork:
    """A draft with the embedding of a target of Llama's kind."""
    torch.manual_seed(seed)
    config = target.config
    embedding = torch.from_numpy(np.array(target.read("model.embed_tokens.weight"), np.float32))
    sizes = {key: value for key, value in config.items() if isinstance(value, int)}
    theta, epsilon = config.get("rope_theta", 10000.0), config["rms_norm_eps"]
    assert isinstance(theta, int | float)
    assert isinstance(epsilon, float)
    return DraftNetwork(sizes, embedding, float(theta), epsilon)


def train(
    network: DraftNetwork,
    answers: Sequence[Answer],
    words: np.ndarray,
    recipe: Recipe,
    note: Callable[[str], None],
) -> None:
    """Train a draft in place; ``note`` gets a line for each epoch."""
    random = torch.Generator().manual_seed(recipe.seed)
    tokens, features, wanted, real = _padded(answers)
    joined = torch.cat([network.embedding[tokens[real]], features[real]], -1)
    network.begin_linear(joined, wanted[real], recipe.penalty)
    head = network.embedding[torch.from_numpy(words)]
    steps = recipe.epochs * math.ceil(len(answers) / recipe.batch)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=recipe.decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(answers), generator=random).tolist()
        sums, count = torch.zeros(3), 0
        for start in range(0, len(order), recipe.batch):
            batch = [answers[n] for n in order[start : start + recipe.batch]]
            tokens, features, wanted, real = _padded(batch)
            noise = (torch.rand(features.shape, generator=random) - 0.5) * 2 * recipe.noise
            made = network(tokens, features + noise)[real]
            regression, entropy = losses(made, wanted[real], head, torch.ones(len(made)))
            loss = regression + recipe.entropy * entropy
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            right = (made @ head.T).argmax(-1) == (wanted[real] @ head.T).argmax(-1)
            sums += torch.stack([regression, entropy, right.float().mean()]).detach()
            count += 1
        regression, entropy, share = (sums / count).tolist()
        note(f"epoch {epoch + 1}: smooth L1 {regression:.3f}, CE {entropy:.3f}, top-1 {share:.3f}")


def _rate(step: int, steps: int) -> float:
    warm = max(steps // 20, 1)
    return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)) + 0.02)


def _padded(answers: Sequence[Answer]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens s64 [B,S], features and wanted features f32 [B,S,E], and where they count pred [B,S].

    Place t has token t + 1 and the features of token t, and wants those of token t + 1.
    """
    size = max(len(answer.tokens) for answer in answers) - 2
    width = answers[0].features.shape[1]
    tokens = torch.zeros((len(answers), size), dtype=torch.int64)
    features = torch.zeros((len(answers), size, width))
    wanted = torch.zeros_like(features)
    real = torch.zeros((len(answers), size), dtype=torch.bool)
    for row, answer in enumerate(answers):
        count = len(answer.tokens) - 2
        given = torch.from_numpy(answer.features)
        tokens[row, :count] = torch.tensor(answer.tokens[1:-1])
        features[row, :count], wanted[row, :count] = given[:-1], given[1:]
        # The template before the question is the same in every answer.
        real[row, max(answer.prompt - 2, 0) : count] = True
    return tokens, features, wanted, real
