"""Sessions on a matrix unit: a prompt has its tokens in any batch and in any chunks."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.lowering.cpu_kernels.build_kernels import EMULATED
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.session.session import Session
from tests.lowering.cpu_kernels.tile_numbers import instruction_set
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session

pytestmark = [
    pytest.mark.usefixtures("optimized_code"),
    pytest.mark.skipif(not kernel_library().targets, reason=kernel_library().missing or "no"),
]
CONFIG = CompileConfig(dtype="bf16", kernels="on", batch=(1,), context=(64,), tokens=(128,))
LENGTHS = (50, 3, 64, 31)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    write_llama(path, hidden_size=128, intermediate_size=192, max_position_embeddings=128)
    return path


@pytest.fixture(params=[EMULATED, *({"amx"} & {kernel_library().instruction_set})])
def unit(request: pytest.FixtureRequest) -> Generator[str]:
    with instruction_set(request.param):
        yield request.param


def prompts() -> list[list[int]]:
    random = np.random.default_rng(3)
    return [random.integers(3, 60, size).tolist() for size in LENGTHS]


def tokens(session: Session) -> list[list[int]]:
    """Greedy tokens of each prompt, in batches of the session's rows."""
    rows, texts = len(session.lengths), prompts()
    batches = [texts[first : first + rows] for first in range(0, len(texts), rows)]
    return [list(each.tokens) for some in batches for each in generate(session, some, ASKED)[0]]


ASKED = GenerationRequest(6)


@pytest.mark.usefixtures("unit")
def test_a_prompt_has_its_tokens_in_any_batch_and_in_chunks(folder: Path):
    alone = tokens(open_session(folder, CONFIG))
    assert len({*map(tuple, alone)}) > 1
    for other in (
        replace(CONFIG, batch=(4,)),
        replace(CONFIG, context=(), chunk=(16,)),
        replace(CONFIG, batch=(2,), context=(16,), chunk=(16, 32)),
    ):
        assert tokens(open_session(folder, other)) == alone
