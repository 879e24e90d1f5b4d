"""Chosen hidden states as one output of every program, as drafts of EAGLE take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY, dtype
from graphgen.models import FAMILIES, PHASES, build
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import workload_for
from graphgen.runtime.model import build_model
from graphgen.runtime.session.step_call import packed
from tests.matrix.axes import AXES, config_of
from tests.oracles.families import ORACLES, save
from tests.oracles.sessions import open_session

TEXTS = ([5, 9, 2, 40, 7, 33, 8, 60], [11, 3, 58, 4, 4, 21])
LAYERS = (1, 0, -1)
SIZES = CompileConfig(
    batch=(2,), context=(8,), tokens=(8, 16), speculation_length=3, feature_layers=LAYERS
)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tp", [1, 2])
def test_features_are_the_states_of_transformers(family: str, tp: int, tmp_path: Path):
    variant = "norms behind, projected" if family == "opt" else "plain"
    model = ORACLES[family].model(variant, initializer_range=0.1)
    save(model, tmp_path)
    session = open_session(tmp_path, SIZES.updated({"tp": tp}))
    made: list[list[np.ndarray]] = [[], []]
    # A prefill, a step that verifies, a decode step: rows of other lengths, in other cache rows.
    for parts, verify in (([4, 2], False), ([3, 3], True), ([1, 1], False)):
        begin = [sum(map(len, row)) for row in made]
        given = [text[a : a + n] for text, a, n in zip(TEXTS, begin, parts, strict=True)]
        step = session.step(*packed(given, begin), [1, 0], verify=verify)
        for row, count in enumerate(parts):
            made[row].append(step.features[row, :count])
    for text, ours in zip(TEXTS, made, strict=True):
        with torch.no_grad():
            run = model(torch.tensor([text]), use_cache=False, output_hidden_states=True)
        states = [run.hidden_states[n][0].numpy() for n in LAYERS]
        wanted = np.concatenate(states, 1)
        np.testing.assert_allclose(np.concatenate(ours), wanted, rtol=0, atol=1e-4)


@pytest.mark.one_in(44)
@pytest.mark.parametrize("family", AXES["family"])
@pytest.mark.parametrize("changes", [{"tp": 2}, {"kv_cache_quant": True}], ids=str)
def test_every_pass_keeps_them(family: str, changes: dict[str, object]):
    config = config_of(family)
    phases = (*PHASES, VERIFY)
    item = build(config, dtype("f32"), phases=phases, mini=True, feature_layers=LAYERS)
    passes = default(SIZES.updated({"batch": (3,), **changes}))
    verdicts = validate(item, passes, workload_for(item, passes, seed=2))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


def test_programs_have_none_unless_they_are_asked_for():
    plain = build_model(config_of("llama"), CompileConfig())
    assert "features" not in plain.module.interface


def test_a_state_that_does_not_exist_is_refused():
    with pytest.raises(GraphgenError, match="there is no hidden state 4: there are 3"):
        build(config_of("llama"), dtype("f32"), mini=True, feature_layers=(4,))
