"""A draft of EAGLE proposes for requests that come and go: each has the tokens of plain serving."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.open_speculator import eagle_session
from graphgen.runtime.progress import Silent
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish
from graphgen.runtime.session.feature_log import FeatureLog
from graphgen.runtime.speculation.eagle_checkpoint import EagleCheckpoint
from graphgen.runtime.speculation.eagle_draft import EagleDraft
from graphgen.runtime.speculation.speculator import Speculator
from tests.oracles.eagle import write_eagle
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.runtime.serving.test_serving_model import flips, serve
from tests.runtime.serving.test_speculative_serving import LENGTH, PAGED, SPECULATIVE, requests_of


@pytest.mark.parametrize(
    ("config", "count"),
    [
        pytest.param(SPECULATIVE, 12, id="rows"),
        pytest.param(PAGED, 30, id="paged", marks=pytest.mark.slow),
    ],
)
def test_each_answer_is_that_of_the_request_alone(
    config: CompileConfig, count: int, tmp_path: Path
):
    write_llama(tmp_path)
    write_eagle(tmp_path / "draft", words=57)
    target = open_checkpoint(tmp_path)
    eagle = EagleCheckpoint(open_checkpoint(tmp_path / "draft"), target)
    session = open_session(tmp_path, replace(config, feature_layers=eagle.feature_layers()))
    log = session.feature_log = FeatureLog()
    draft = EagleDraft(eagle_session(eagle, SPECULATIVE, Silent()), log, eagle.token_ids)
    speculator = Speculator(draft, LENGTH)
    rng = np.random.default_rng(count)
    requests = requests_of(rng, count)
    served = serve(ServingEngine(session, speculator=speculator), requests, rng)
    finished = [request for request in requests if served[request.id][1] is not Finish.CANCELLED]
    assert count // 2 < len(finished)
    assert sum(flips(request, served[request.id][0]) for request in finished) <= 1
    # Prompts whose blocks were there already have no features to propose by.
    assert speculator.counts.proposed[0] > 10
