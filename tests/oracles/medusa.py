"""Medusa in NumPy, from the paper (arXiv 2401.10774): heads, and trees of their guesses.

Section 2.1.1: head k is ``softmax(W2 (SiLU(W1 h) + h))`` on the last hidden state h. Section 2.1.2:
a node attends to its predecessors alone, and has the position of its depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import PreTrainedModel

Array = np.ndarray


def head_logits(heads: Mapping[str, Array], number: int, hidden: Array, own: Array) -> Array:
    """The logits of a head in float64; ``own`` is the model's head, for heads without one."""
    x, block = hidden.astype(np.float64), 0
    while f"{number}.{block}.linear.weight" in heads:
        weight, bias = (heads[f"{number}.{block}.linear.{n}"] for n in ("weight", "bias"))
        y = x @ weight.astype(np.float64).T + bias
        x = x + y / (1 + np.exp(-y))
        block += 1
    return x @ heads.get(f"{number}.{block}.weight", own).astype(np.float64).T


def tree_buffers(choices: Sequence[Sequence[int]]) -> tuple[Array, Array, Array]:
    """The mask [n,n], the positions [n] and the places of guesses of a tree with its root.

    Guess b of head d is at place ``1 + 10 d + b`` of the candidates, as the paper's code has it.
    """
    nodes = [(), *sorted(map(tuple, choices), key=lambda path: (len(path), path))]
    mask = np.array([[a[: len(b)] == b for b in nodes] for a in nodes])
    positions = np.array([len(path) for path in nodes])
    places = np.array([0 if not path else 1 + 10 * (len(path) - 1) + path[-1] for path in nodes])
    return mask, positions, places


def random_heads(
    hidden: int, vocabulary: int, heads: int, blocks: int = 1, own: bool = True, seed: int = 0
) -> dict[str, Array]:
    """Heads of random numbers under the published names."""
    rng = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for head in range(heads):
        for block in range(blocks):
            made[f"{head}.{block}.linear.weight"] = rng.normal(size=(hidden, hidden)) * 0.2
            made[f"{head}.{block}.linear.bias"] = rng.normal(size=hidden) * 0.1
        if own:
            made[f"{head}.{blocks}.weight"] = rng.normal(size=(vocabulary, hidden)) * 0.2
    return {name: array.astype(np.float32) for name, array in made.items()}


def table_size(model: PreTrainedModel) -> tuple[int, int]:
    """Rows and columns of the embedding."""
    rows, columns = cast(torch.nn.Embedding, model.get_input_embeddings()).weight.shape
    return rows, columns


def fitted_heads(
    model: PreTrainedModel, sequences: Sequence[Sequence[int]], heads: int
) -> dict[str, Array]:
    """Heads that guess the tokens of these sequences: a least-squares fit on hidden states."""
    states, (vocabulary, size) = list[Array](), table_size(model)
    for tokens in sequences:
        with torch.no_grad():
            out = model(torch.tensor([list(tokens)]), output_hidden_states=True)
        states.append(out.hidden_states[-1][0].double().numpy())
    made: dict[str, Array] = {}
    for head in range(heads):
        pairs = [
            (state, tokens[at + 2 + head])
            for tokens, hidden in zip(sequences, states, strict=True)
            for at, state in enumerate(hidden)
            if at + 2 + head < len(tokens)
        ]
        wanted = np.eye(vocabulary)[[token for _, token in pairs]]
        given = np.stack([state for state, _ in pairs])
        ridge = given.T @ given + 1e-4 * np.eye(size)
        made[f"{head}.0.linear.weight"] = np.zeros((size, size), np.float32)
        made[f"{head}.0.linear.bias"] = np.zeros(size, np.float32)
        made[f"{head}.1.weight"] = np.linalg.solve(ridge, given.T @ wanted).T.astype(np.float32)
    return made


def save_heads(folder: Path, heads: Mapping[str, Array], prefix: str = "") -> Path:
    """Write a file of heads as published ones are."""
    folder.mkdir(exist_ok=True)
    path = folder / "medusa_lm_head.safetensors"
    save_file({f"{prefix}{name}": np.ascontiguousarray(a) for name, a in heads.items()}, path)
    return path
