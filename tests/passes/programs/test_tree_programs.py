"""Programs that verify a tree of tokens: what a node reads, and that passes keep it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.exec.speculative_step import ancestors, depths
from graphgen.ir import VERIFY_TREE, Module, dtype
from graphgen.models import PHASES, build, known_shape
from graphgen.ops.token_tree import ANCESTORS
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload, workload_for
from graphgen.text import parse, print_module
from tests.matrix.axes import AXES, config_of

SIZES = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), tree_nodes=5)
PARENTS = [-1, 0, 0, 1, 1, 2]


def model(family: str = "") -> Module:
    config = config_of(family) if family else known_shape("llama-3.1-8b")
    return build(config, dtype("f32"), phases=(*PHASES, VERIFY_TREE), mini=True)


def test_depths_and_ancestors_follow_from_parents():
    assert depths(PARENTS) == [0, 1, 1, 2, 2, 2]
    seen = [np.flatnonzero(row).tolist() for row in ancestors(PARENTS)]
    assert seen == [[0], [0, 1], [0, 2], [0, 1, 3], [0, 1, 4], [0, 2, 5]]


@pytest.mark.one_in(123)
@pytest.mark.parametrize("family", AXES["family"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tp": 2},
        {"roll_window_cache": True},
        {"page_cache": 4},
        {"kv_cache_quant": True},
        {"page_cache": 4, "kv_cache_quant": True, "tp": 2},
    ],
    ids=str,
)
def test_every_pass_keeps_what_they_compute(family: str, changes: dict[str, object]):
    item = model(family)
    passes = default(SIZES.updated(changes))
    workload = workload_for(item, passes, seed=2)
    trees = [call for call in workload.calls if call.phase == VERIFY_TREE]
    assert {call.inputs[ANCESTORS].shape for call in trees} == {(3, 5, 5)}
    verdicts = validate(item, passes, workload)
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


def test_some_calls_have_branches():
    calls = workload_for(model(), default(SIZES), seed=2).calls
    trees = [call.inputs for call in calls if call.phase == VERIFY_TREE]
    assert any((np.diff(inputs["positions"]) == 0).any() for inputs in trees)
    assert any((inputs[ANCESTORS] != np.tri(5)).any() for inputs in trees)


def test_a_tree_program_has_the_logits_of_each_node():
    item = model()
    run_pipeline(item, parse_pipeline("specialize{batch=[2],tokens=[3,8],tree_nodes=4}"))
    (name,) = (f.name for f in item.programs() if f.phase == VERIFY_TREE)
    assert name == "verify_tree.b2.s4.c8"
    vocabulary = item.interface["logits"].logical.shape[-1]
    outputs = dict(item.function(name).outputs)
    assert outputs["token_logits"].type.dims == (2, 4, vocabulary)
    taken = item.function(name).arg(ANCESTORS)
    assert taken is not None
    assert taken.type.dims == (2, 4, 4)


def test_the_small_workload_has_them_too():
    assert {call.phase for call in make_workload(model()).calls} == {*PHASES, VERIFY_TREE}


@pytest.mark.parametrize("options", ["tokens=[8]", "tokens=[3],tree_nodes=4"])
def test_sizes_that_leave_no_program_are_refused(options: str):
    with pytest.raises(GraphgenError, match=r"tree_nodes=[04] for programs that verify"):
        run_pipeline(model(), parse_pipeline(f"specialize{{batch=[2],{options}}}"))


MORE = """\
  %turned = transpose(%ancestors) permutation=[0,2,1] : s32[3,5,5]
  %c = constant() value=s32[](1) : s32[]
  %ones = broadcast_in_dim(%c) shape=[3,8] : s32[3,8]
  %moved = subtract(%key_positions, %ones) : s32[3,8]
"""


@pytest.mark.parametrize(
    ("found", "planted"),
    [
        # Siblings overwrite each other.
        ("tree_slots(%positions)", "maximum(%positions, %positions)"),
        # A node reads its siblings, and what is beyond its path.
        (
            "tree_mask(%positions, %key_positions, %ancestors)",
            "attention_mask(%positions, %key_positions)",
        ),
        # The slots of the tree are taken for those of earlier tokens.
        ("tree_mask(%positions, %key_positions, ", "tree_mask(%positions, %moved, "),
        # Descendants in the place of ancestors.
        ("%key_positions, %ancestors)", "%key_positions, %turned)"),
    ],
)
def test_planted_bugs_of_trees_are_found(found: str, planted: str):
    module = model()
    sizes = "specialize{batch=[3],context=[8],tokens=[8],tree_nodes=5}"
    run_pipeline(module, parse_pipeline(sizes))
    before, after = print_module(module, locs=False).split("func @verify_tree")
    keys = re.search(r"  %key_positions = .*\n", after)
    assert keys is not None
    after = after.replace(keys[0], keys[0] + MORE)
    assert found in after
    right = parse(f"{before}func @verify_tree{after}")
    wrong = parse(f"{before}func @verify_tree{after.replace(found, planted)}")
    assert equivalent(module, right).equal
    assert not equivalent(module, wrong).equal
