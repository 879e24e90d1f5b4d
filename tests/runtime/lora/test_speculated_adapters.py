"""Speculation over rows with adapters: the tokens are those without it, row by row."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.lora.loaded_adapters import LoadedAdapters
from graphgen.runtime.open_speculator import SpeculationOptions, open_speculator
from graphgen.runtime.progress import Silent
from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.http_server import make_service
from graphgen.runtime.server.server_options import ServerOptions
from graphgen.runtime.speculation.fused_model import FusedDraft
from tests.runtime.lora.test_loaded_adapters import PROMPT, answers, folder
from tests.runtime.server.served import URL

__all__ = ["folder"]

# The adapter of each row, and the models that propose tokens.
IDS, NEW = ("a", "", "b"), 8
DRAFTS: dict[str, dict[str, Any]] = {
    "its prompt": {"lookup": 2, "length": 3},
    "another model": {"draft": "base", "length": 3},
    "a merged model": {"draft": "a-merged", "length": 3, "adaptive": True},
    "its first layers": {"layers": 1, "length": 4},
}


def opened(
    folder: Path, fused: FusedDraft | None = None, **requested: object
) -> tuple[Engine, LoadedAdapters]:
    """The model with slots for two adapters, which are loaded."""
    options = EngineOptions(
        CompileConfig.of(**{"max_loras": 2, "max_lora_rank": 4, **requested}),
        batch=3,
        max_len=32,
        bucketing=False,
        fused=fused,
    )
    engine, _ = open_engine(str(folder / "base"), options, lambda _: [[0]], 1, Silent())
    adapters = LoadedAdapters(engine.session, engine.model)
    for name in "ab":
        adapters.load(name, folder / name)
    return engine, adapters


@pytest.fixture(scope="module")
def wanted(folder: Path) -> list[list[int]]:
    engine, adapters = opened(folder)
    adapters.use(IDS)
    prompt = engine.tokenizer.encode(PROMPT)
    done = engine.generate([prompt] * 3, GenerationRequest(NEW, frozenset()))
    found = [completion.tokens for completion in done.completions]
    assert len({tuple(tokens) for tokens in found}) == 3
    return found


def speculating(folder: Path, name: str) -> tuple[Engine, LoadedAdapters]:
    """The same with one of ``DRAFTS``, none of which has an adapter."""
    given = dict(DRAFTS[name])
    if "draft" in given:
        given["draft"] = str(folder / given["draft"])
    engine, adapters = opened(folder, speculation_length=given["length"])
    options = SpeculationOptions(model=str(folder / "base"), **given)
    engine.speculator = open_speculator(engine, options, Silent())
    return engine, adapters


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTS)
def test_rows_with_adapters_accept_what_they_would_have_taken(
    folder: Path, wanted: list[list[int]], name: str
):
    engine, adapters = speculating(folder, name)
    adapters.use(IDS)
    prompt = engine.tokenizer.encode(PROMPT)
    done = engine.generate([prompt] * 3, GenerationRequest(NEW, frozenset()))
    assert [completion.tokens for completion in done.completions] == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["its prompt", "another model"])
def test_a_server_speculates_for_requests_with_adapters(
    folder: Path, wanted: list[list[int]], name: str
):
    """All at once, and another adapter in the row of an earlier request."""
    engine, _ = speculating(folder, name)
    server = ServerOptions("base", adapters={each: folder / each for each in "ab"})
    service = make_service(engine, server)
    with (
        TestClient(make_application(service), base_url=URL) as client,
        ThreadPoolExecutor(5) as pool,
    ):

        def answer(model: str) -> Any:
            body = {"model": model, "prompt": PROMPT, "max_tokens": NEW, "temperature": 0}
            return client.post("/v1/completions", json={**body, "ignore_eos": True}).json()

        models = ["a", "base", "b", "a", "base"]
        found = list(pool.map(answer, models))
    expected = {name: engine.tokenizer.decode(own) for name, own in zip(IDS, wanted, strict=True)}
    texts = [each["choices"][0]["text"] for each in found]
    assert texts == [expected["" if model == "base" else model] for model in models]
    assert any("completion_tokens_details" in each["usage"] for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["base", "a-merged"])
def test_programs_that_speculate_by_themselves_have_the_adapters_of_the_model(
    folder: Path, wanted: list[list[int]], draft: str
):
    checkpoint = open_checkpoint(folder / draft)
    fused = FusedDraft(checkpoint, checkpoint.config)
    sampling = {"speculation_length": 3, "sampling": "on-device-sampling"}
    engine, adapters = opened(folder, fused, **sampling)
    prompt, request = engine.tokenizer.encode(PROMPT), GenerationRequest(NEW, frozenset())
    for ids in (IDS, IDS[::-1]):
        adapters.use(ids)
        done = engine.generate([prompt] * 3, request)
        expected = [wanted[IDS.index(name)] for name in ids]
        assert [completion.tokens for completion in done.completions] == expected


def test_the_draft_of_such_programs_has_no_adapter(folder: Path):
    shared = ("--prompt", PROMPT)
    assert answers(
        folder, "base", *shared, "--draft-model-path", folder / "base",
        "--enable-fused-speculation", "--lora", f"a={folder / 'a'}", "--adapter-id", "a",
    ) == answers(folder, "a-merged", *shared)  # fmt: skip
