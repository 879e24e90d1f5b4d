"""Paged caches in sessions: the tokens and logits of plain rows, whatever the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session, reserve_blocks
from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.oracles.sessions import open_session

TABLE = [[9, 2, 5, 0], [1, -1, -1, -1], [3, 7, -1, -1]]


def logits_of(session: Session) -> list[np.ndarray]:
    """Prompts of 40, 3 and 17 tokens in rows of 64 slots, then three steps with an idle row."""
    rng = np.random.default_rng(5)
    prompts = [rng.integers(0, 61, size).tolist() for size in (40, 3, 17)]
    found = [session.prefill(prompts)]
    for _ in range(3):
        tokens = rng.integers(0, 61, 3).tolist()
        found.append(session.decode(tokens, [True, False, True]))
    return [np.asarray(step)[[0, 2]] for step in found]


@pytest.mark.parametrize("tp", [1, 2])
def test_logits_are_those_of_plain_rows(tp: int, tmp_path: Path):
    save(ORACLES["llama"].model(initializer_range=0.1), tmp_path)
    plain = CompileConfig(dtype="f32", tp=tp).serving(batch=3, max_len=64)
    paged = CompileConfig(dtype="f32", tp=tp, page_cache=16, cache_blocks=10)
    session = open_session(tmp_path, paged.serving(batch=3, max_len=64))
    for row in session.module.entries(Role.STATE):
        assert row.physical.dims[:2] == (10, 16)
    session.use_layout("block_table", TABLE)
    wanted = logits_of(open_session(tmp_path, plain))
    for ours, theirs in zip(logits_of(session), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    with pytest.raises(GraphgenError, match=r"shape \[2, 4\]: the programs have s32\[3,4\]"):
        session.use_layout("block_table", TABLE[:2])


def test_the_engine_gives_the_same_tokens_from_an_artifact_too(tmp_path: Path):
    folder, kept = tmp_path / "model", tmp_path / "artifact"
    model = ORACLES["llama"].model(vocab_size=301, initializer_range=0.2, eos_token_id=None)
    save(model, folder)
    save_tokenizer(folder)
    said: list[list[list[int]]] = []
    first = EngineOptions(CompileConfig.of(page_cache=16), artifact=kept)
    for path, options in ((folder, EngineOptions()), (folder, first), (kept, EngineOptions())):
        engine, prompts = open_engine(
            str(path), options, lambda t: [t.encode("the cat"), t.encode("a mat")], 12, Silent()
        )
        done = engine.generate(prompts, GenerationRequest(12)).completions
        said.append([list(completion.tokens) for completion in done])
    assert engine.session.module.entries(Role.LAYOUT)
    assert said[0] == said[1] == said[2]


def test_generation_gives_rows_the_blocks_that_they_need(tmp_path: Path):
    save(ORACLES["llama"].model(initializer_range=0.1), tmp_path)
    rows = CompileConfig(dtype="f32").serving(batch=3, max_len=64)
    few = replace(rows, page_cache=16, cache_blocks=5)
    rng = np.random.default_rng(7)
    prompts = [rng.integers(0, 61, size).tolist() for size in (30, 3, 17)]
    session, plain = open_session(tmp_path, few), open_session(tmp_path, rows)
    # 47, 20 and 34 tokens would need 8 blocks: two at a time have room.
    for chosen in ([0, 1], [2, 1], [0]):
        asked = [prompts[number] for number in chosen]
        wanted, _ = generate(plain, asked, GenerationRequest(17))
        assert generate(session, asked, GenerationRequest(17))[0] == wanted
    what = "sequences of 46, 19, 33 tokens do not fit into the 5 blocks of 16 tokens"
    with pytest.raises(GraphgenError, match=what) as caught:
        generate(session, prompts, GenerationRequest(17))
    assert caught.value.code == "GG0701"


def test_rows_that_go_on_keep_their_blocks(tmp_path: Path):
    save(ORACLES["llama"].model(initializer_range=0.1), tmp_path)
    rows = CompileConfig(dtype="f32").serving(batch=2, max_len=64)
    session = open_session(tmp_path, replace(rows, page_cache=16, cache_blocks=4))
    plain = open_session(tmp_path, rows)
    text = np.random.default_rng(8).integers(0, 61, 30).tolist()
    for each in (session, plain):
        generate(each, [text[:10]], GenerationRequest(1))
    assert session.blocks is not None
    # The other row gets what the ten tokens do not need.
    with pytest.raises(GraphgenError, match="of which other rows have 1"):
        reserve_blocks(session, {1: 49})
    reserve_blocks(session, {1: 48})
    assert sorted(session.blocks.table[:, :3].flat) == [-1, -1, 0, 1, 2, 3]
    wanted, _ = generate(plain, [text], GenerationRequest(3), held=[10])
    assert generate(session, [text], GenerationRequest(3), held=[10])[0] == wanted
