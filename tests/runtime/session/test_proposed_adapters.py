"""Rows with adapters that a draft of EAGLE, or heads of Medusa, propose tokens for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.open_speculator import eagle_session
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.feature_log import FeatureLog
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.eagle_checkpoint import EagleCheckpoint
from graphgen.runtime.speculation.eagle_draft import EagleDraft
from graphgen.runtime.speculation.medusa_checkpoint import with_medusa
from graphgen.runtime.speculation.medusa_tree import MedusaProposer, medusa_tree
from graphgen.runtime.speculation.speculator import Speculator
from graphgen.runtime.speculation.tree_speculator import TreeSpeculator
from tests.oracles.eagle import write_eagle
from tests.oracles.llama import SIZES, write_llama
from tests.oracles.medusa import random_heads, save_heads
from tests.oracles.sessions import open_session, session_of

PROMPTS, COUNT, LENGTH = [[5, 9, 3, 7, 2], [4], [6, 1, 8]], 10, 4
SIZED = CompileConfig(batch=(1, 3), rows=3, context=(8,), tokens=(32,))
ADAPTED = SIZED.updated({"max_loras": 2, "max_lora_rank": 4})
TREE = medusa_tree([[0], [1], [0, 0], [0, 1]], 2)


def answers(session: Session, speculator: Speculator | TreeSpeculator | None) -> list[list[int]]:
    """The tokens of three rows: with one adapter, with another, and with none."""
    slots, random = session.adapters, np.random.default_rng(0)
    assert slots is not None
    layers = {name: shapes for name, shapes in slots.targets.items() if ".layers." in name}
    for slot in range(2):
        parts = {
            f"{name}.{part}": random.normal(0, 0.3, shape).astype(np.float32)
            for name, shapes in sorted(layers.items())
            for part, shape in zip(("lora_A", "lora_B"), shapes, strict=True)
        }
        slots.write(slot, parts)
        slots.assign(slot, slot)
    decode = speculator.decode if speculator else None
    request = GenerationRequest(COUNT, frozenset())
    return [item.tokens for item in generate(session, PROMPTS, request, decode=decode)[0]]


def proposing(kind: str, root: Path) -> tuple[Session, Speculator | TreeSpeculator]:
    """The model with a random draft of EAGLE, or with random heads of Medusa."""
    target = open_checkpoint(root / "model")
    if kind == "EAGLE":
        write_eagle(root / "draft")
        eagle = EagleCheckpoint(open_checkpoint(root / "draft"), target)
        more = {"speculation_length": LENGTH, "feature_layers": eagle.feature_layers()}
        session = open_session(root / "model", ADAPTED.updated(more))
        log = session.feature_log = FeatureLog()
        own = eagle_session(eagle, SIZED.updated({"speculation_length": LENGTH}), Silent())
        return session, Speculator(EagleDraft(own, log, eagle.token_ids), LENGTH)
    heads = random_heads(SIZES["hidden_size"], SIZES["vocab_size"], 2)
    stored = with_medusa(target, str(save_heads(root / "heads", heads)), 2)
    more = {"tree_nodes": TREE.nodes, "num_medusa_heads": 2}
    session = session_of(stored, ADAPTED.updated(more))
    return session, TreeSpeculator(MedusaProposer(TREE), TREE.nodes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["EAGLE", "Medusa"])
def test_rows_take_what_they_would_have_taken(kind: str, tmp_path: Path):
    write_llama(tmp_path / "model", num_hidden_layers=4)
    wanted = answers(open_session(tmp_path / "model", ADAPTED), None)
    assert len(set(map(str, wanted))) == 3
    assert answers(*proposing(kind, tmp_path)) == wanted
