"""Context parallelism of prompts, and attention for rows of a group's own in token programs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.exec.session import Runner
from graphgen.ir import Function, Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build, known_shape
from graphgen.models.first_layers import first_layers
from graphgen.models.registry import family_of
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import MEANING_BUDGET, compare
from graphgen.passes.pipelines import default
from graphgen.passes.sharding.logical_axes import model_axes
from graphgen.passes.sharding.prompt_attention import PromptAttention
from graphgen.passes.sharding.rank_axes import RankAxes
from graphgen.passes.spmd.explain_sharding import ExplainSharding
from graphgen.passes.validate.validate import validate
from graphgen.passes.workload.make_workload import workload_for

SIZES = CompileConfig(batch=(2,), context=(8,), tokens=(8,), tp=4)
COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_permute")


def model(name: str = "llama-3.1-8b", layers: int = 1) -> Module:
    """The mini twin, with its first layer or as many as its kinds of layers."""
    settings = known_shape(name)
    family = family_of(settings)
    twin = family.read(settings).mini().to_hf()
    return build(first_layers(family, twin, layers), dtype("f32"))


@dataclass(frozen=True)
class Divided:
    """A model whose prompts two pairs of ranks share.

    Attributes:
        annotated: with the layouts that ``shard`` set.
        explain: why values lie as they do.
        module: the programs of a rank.
    """

    annotated: Module
    explain: ExplainSharding
    module: Module


@cache
def divided(form: str) -> Divided:
    """The programs of one form, which no test changes."""
    module, explain = model(), ExplainSharding()
    sizes = "specialize{batch=[2],context=[8],tokens=[8],in_place=true},heads{tp=4}"
    front = f"canonicalize,unfuse-projections,{sizes}"
    passes = parse_pipeline(f"{front},shard{{tp=4,cp=2,cp_form={form}}}")
    run_pipeline(module, passes, instruments=(explain,))
    annotated = clone_module(module)
    rest = parse_pipeline("pad-to-mesh,partition,merge-collectives")
    run_pipeline(module, rest, instruments=(explain,))
    return Divided(annotated, explain, module)


def attention_moves(function: Function) -> Counter[str]:
    """Collectives of values with heads, or of keys and values that are gathered as one."""
    return Counter(
        op.name
        for op in function.ops
        if op.name in COLLECTIVES
        and op.loc.scope.endswith("self_attn")
        and (op.name != "all_reduce" or op.operands[0].type.rank == 4)
    )


def test_a_prompt_is_gathered_or_exchanged_as_asked():
    gather, decode = divided("gather").module.programs()
    # New keys and values go where they are cached, and all of them come back as one.
    assert attention_moves(gather) == {"all_to_all": 2, "all_gather": 1}
    assert attention_moves(divided("all-to-all").module.programs()[0]) == {"all_to_all": 3}
    assert attention_moves(decode) == {}


def test_a_rank_has_queries_of_its_tokens_and_weights_of_its_heads():
    form = divided("gather")
    name = "model.layers.0.self_attn.q_proj.weight"
    layouts = [function.arg(name) for function in form.annotated.programs()]
    assert [value and value.sharding and value.sharding.text for value in layouts] == [
        "{tp,-}",
        None,
    ]
    row = form.annotated.interface[name]
    assert row.sharding is not None
    assert row.sharding.text == "{tp*cp,-}"
    attention = next(op for op in form.module.programs()[0].block if op.name == "attention")
    # 4 of 8 tokens, 4 of 8 query heads, 2 of 4 copies of key heads and all 8 slots.
    assert [value.shape for value in attention.operands[:2]] == [(2, 4, 4, 8), (2, 8, 2, 8)]


def test_explain_names_the_forms_and_their_bytes():
    form = divided("all-to-all")
    (op,) = [op for op in form.annotated.programs()[0].block if op.name == "attention"]
    ranks = PromptAttention(form.annotated, model_axes(form.annotated), RankAxes(4, 2))
    assert ranks.chosen(op, ranks.forms(op)).name == "all-to-all"
    (why,) = {reason.why for reason in form.explain.reasons if "collectives)" in reason.why}
    # Keys and values: 2 * 2 rows * 8 slots * 1 head * 8 numbers * 4 bytes, from one neighbor.
    # Queries and results: half of 2 * 2 * 4 tokens * 4 heads * 8 * 4 bytes, to one neighbor, for
    # tokens whose masks leave half of the tiles. A ring sends half of its keys and values, so that
    # each rank has those of some slots, and passes them on.
    assert why == (
        "cp: all-to-all (1,024 bytes a rank in 2 collectives), not gather (1,024 bytes a rank in 2 "
        "collectives); ring (1,536 bytes a rank in 3 collectives)"
    )


# Window, sinks, linear biases and one head of keys; every form; one row a prompt; longer prompts.
CASES = {
    "several prompts at once, in chunks": (
        "llama-3.1-8b",
        {"cp_degree": 2, "mlp_cp_degree": 2, "chunk": (4,)},
    ),
    "one prompt at a time, then rows of groups": (
        "llama-3.1-8b",
        {"cp_degree": 2, "attention_dp_degree": 2, "prefill_batch": (1,), "batch": (4,)},
    ),
    "a window, all ranks": ("gemma-3-1b", {"cp_degree": 4, "chunk": (4,)}),
    "sinks": ("gpt-oss-20b", {"cp_degree": 2, "cp_form": "gather"}),
    "sinks, exchanged": ("gpt-oss-20b", {"cp_degree": 2, "cp_form": "all-to-all"}),
    "linear biases": ("bloom-560m", {"cp_degree": 2, "cp_form": "gather", "chunk": (4,)}),
    "rolled": ("mistral-7b", {"cp_degree": 2, "roll_window_cache": True}),
    "groups with prompts of their own": ("gpt2", {"attention_dp_degree": 2}),
    "sinks, rows of groups": ("gpt-oss-20b", {"attention_dp_degree": 2}),
    "narrow caches": ("qwen2-7b", {"cp_degree": 2, "kv_cache_quant": True}),
    "norms of fewer tokens": (
        "llama-3.1-8b",
        {"cp_degree": 2, "rules": ("prefill:sequence:cp*tp",)},
    ),
    "latent vectors": ("deepseek-v3", {"cp_degree": 2}),
}
# Of the other cases, each pass is compared with the programs before it.
QUICK = "one prompt at a time, then rows of groups"


def test_ranks_compute_what_one_does_in_the_end():
    name, options = CASES[QUICK]
    # Their ranks attend the rows of a group.
    config = replace(SIZES, **options)  # pyright: ignore[reportArgumentType]
    module = model(name)
    workload = workload_for(module, default(config), seed=2)
    made = clone_module(module)
    run_pipeline(made, default(config))
    runs = [Runner(each, workload, arithmetic=MEANING).outcomes() for each in (module, made)]
    assert compare(runs[0], runs[1]).relative <= MEANING_BUDGET
    held = made.interface["model.layers.0.self_attn.k_cache"]
    # Two of four rows, and one of two heads, which nothing copies.
    assert (held.logical.shape, held.physical.shape) == ((4, 8, 2, 8), (2, 8, 1, 8))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_ranks_compute_what_one_does(case: str):
    name, options = CASES[case]
    config = replace(SIZES, **{"tokens": (8, 16), **options})  # pyright: ignore[reportArgumentType]
    # Of two layers of gemma-3 one has a window.
    module, passes = model(name, 2 if name == "gemma-3-1b" else 1), default(config)
    verdicts = validate(module, passes, workload_for(module, passes, seed=2))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_decoding_is_as_without_shared_prompts(ranks: int):
    """Also where all ranks share prompts: an axis of one rank is none that layouts differ by."""
    steps: list[list[str]] = []
    for shared in (1, ranks):
        made = model()
        run_pipeline(made, default(replace(SIZES, cp_degree=shared)))
        (step,) = [function for function in made.programs() if function.phase == "decode"]
        steps.append([f"{op.name} {op.result.type.text}" for op in step.ops])
    assert steps[0] == steps[1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cp_degree": 3}, "tp=4 ranks are not cp_degree=3 groups of as many"),
        ({"cp_degree": 4, "mlp_cp_degree": 2}, "mlp_cp=2 is neither 1 nor cp=4"),
        ({"cp_degree": 2, "attention_dp_degree": 4, "batch": (4,)}, "cp=2 ranks with the tokens"),
        ({"attention_dp_degree": 2, "batch": (3,)}, "a multiple of 2, not 3"),
        ({"attention_dp_degree": 2, "batch": (2,), "rows": 4}, "a multiple of 2, not 2, 4"),
        ({"cp_degree": 2, "heads": "SHARD_OVER_BATCH"}, "cp_degree=2 and heads=SHARD_OVER_BATCH"),
        ({"cp_degree": 2, "moe_ep_degree": 2}, "experts of their own, beside"),
    ],
)
def test_numbers_of_ranks_that_cannot_be_are_refused(options: dict[str, object], text: str):
    config = replace(SIZES, **options)  # pyright: ignore[reportArgumentType]
    with pytest.raises(GraphgenError, match=re.escape(text)) as caught:
        run_pipeline(model("mixtral-8x7b"), default(config))
    assert caught.value.code == "GG0302"


def test_an_input_may_have_the_name_of_an_axis():
    module = model()
    sizes = "specialize{batch=[2],context=[8],tokens=[8]}"
    rules = "shard{mesh=[dp:2],rules=[positions:{dp,-}]}"
    run_pipeline(module, parse_pipeline(f"{sizes},{rules}"))
    row = module.interface["positions"]
    assert row.sharding is not None
    assert row.sharding.text == "{dp,-}"
    with pytest.raises(GraphgenError, match="no input, weight, state or output is called 'slots'"):
        run_pipeline(
            model(), parse_pipeline(f"{sizes},shard{{mesh=[dp:2],rules=[slots:{{dp,-}}]}}")
        )


def test_groups_with_rows_of_their_own_need_not_have_an_axis_of_key_value_heads():
    """Gemma 3 1B has one such head: none is to be split, as every rank of a group has rows."""
    module = model("gemma-3-1b")
    passes = "canonicalize,specialize{batch=[4],context=[8],tokens=[8]}"
    run_pipeline(module, parse_pipeline(f"{passes},shard{{tp=2,cp=2,cp_form=ring,dp=2}}"))
    caches = [row.sharding for row in module.interface.values() if "k_cache" in row.name]
    assert [layout is not None and layout.text for layout in caches] == ["{dp,-,-,-}"]
