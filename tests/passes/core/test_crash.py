"""A snapshot gives the module back as it was, whatever passes have done to it since."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir.dtype import bf16
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.crash import Snapshot
from graphgen.passes.pipelines import parse
from graphgen.text import print_module


@pytest.mark.parametrize("first", ["", "heads{tp=4},shard{tp=4}", "default{tp=2}"])
def test_the_module_is_as_it_was(first: str):
    module = build(known_shape("llama-3.1-8b"), bf16, mini=True)
    run_pipeline(module, parse(first))
    text = print_module(module)
    kept = Snapshot(module)
    for function in module.functions.values():
        for op in reversed(function.block):
            if not any(v.users or function.returns(v) for v in op.results):
                function.block.erase(op)
    if not first:
        run_pipeline(module, parse("default{tp=2}"))
    module.interface.clear()
    module.mesh.clear()
    again = kept.module()
    verify(again)
    assert print_module(again) == text
    assert print_module(kept.module()) == text


def test_a_bad_option_leaves_no_reproducer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHGEN_CRASH", str(tmp_path))
    module = build(known_shape("llama-3.1-8b"), bf16, mini=True)
    with pytest.raises(GraphgenError, match="skip=lmm_head names no weight") as caught:
        run_pipeline(module, parse("canonicalize,quantize-weights{skip=[lmm_head]}"))
    assert caught.value.help == "did you mean lm_head?"
    assert not [*tmp_path.iterdir()]
