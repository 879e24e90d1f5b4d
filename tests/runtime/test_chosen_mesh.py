"""A model whose mesh is left to graphgen is compiled for the one that the search chooses."""

from __future__ import annotations

from dataclasses import replace

from graphgen.config.compile_config import CompileConfig
from graphgen.config.rank_config import AUTO, MANUAL
from graphgen.runtime.model import build_model, config_of, settings_of
from tests.lowering.plan.test_mesh_search import LONG, SMALL


def test_the_programs_are_those_of_the_chosen_mesh():
    sizes = CompileConfig(tp=2, dtype="bf16").serving(
        batch=31, max_len=LONG, max_context=64, bucketing=False
    )
    built = build_model(SMALL, replace(sizes, parallelism=AUTO))
    (choice,) = [
        remark for step in built.reports for remark in step.remarks if step.name == "choose-mesh"
    ]
    assert "flash_decoding=true" in choice
    # Recorded with the request for it, so that an artifact is found by that request.
    assert built.settings == replace(sizes, parallelism=AUTO, flash_decoding=True)
    assert config_of(settings_of(built.settings)) == built.settings
    given = build_model(SMALL, replace(built.settings, parallelism=MANUAL))
    assert [*given.module.functions] == [*built.module.functions]
    assert given.module.interface == built.module.interface
