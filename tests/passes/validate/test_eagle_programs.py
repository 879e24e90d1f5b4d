"""Every pass keeps what the programs of EAGLE's drafts compute."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import VERIFY, VERIFY_TREE, dtype
from graphgen.models import PHASES, known_shape
from graphgen.models.eagle import EAGLE
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import workload_for

SIZES = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), speculation_length=4, tree_nodes=5)
DRAFTS: tuple[dict[str, object], ...] = (
    {"eagle_version": 1, "num_hidden_layers": 2, "fc_bias": True, "input_norm": True},
    {"eagle_version": 3, "draft_vocab_size": 32000},
)


@pytest.mark.parametrize("draft", DRAFTS, ids=["EAGLE", "EAGLE-3"])
@pytest.mark.parametrize("changes", [{"tp": 2}, {"kv_cache_quant": True}], ids=str)
@pytest.mark.one_in(4)
def test_every_pass_keeps_what_they_compute(draft: dict[str, object], changes: dict[str, object]):
    shape = {**known_shape("llama-3.1-8b"), "num_hidden_layers": 1, **draft}
    module = EAGLE.module(shape, dtype("f32"), (*PHASES, VERIFY, VERIFY_TREE), twin="mini")
    passes = default(SIZES.updated(changes))
    verdicts = validate(module, passes, workload_for(module, passes, seed=2))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
