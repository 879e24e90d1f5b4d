"""A ring of ranks: what is passed on and when, tokens in a balanced order, and refusals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.exec.session import Runner
from graphgen.ir import Function, Module, Op
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import s32
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import MEANING_BUDGET, compare
from graphgen.passes.pipelines import default
from graphgen.passes.sharding.logical_axes import model_axes
from graphgen.passes.sharding.prompt_attention import PromptAttention
from graphgen.passes.sharding.rank_axes import RankAxes
from graphgen.passes.sharding.ring_layout import balanced_order, ring_pairs
from graphgen.passes.spmd.balance_tokens import BalanceTokens
from graphgen.passes.workload.make_workload import workload_for
from tests.passes.sharding.test_context_parallel import SIZES, model

FRONT = "canonicalize,unfuse-projections,specialize{batch=[2],context=[8],tokens=[8],in_place=true}"
RING = replace(SIZES, cp_degree=4, cp_form="ring", tokens=(8, 16), chunk=(8,))


@cache
def ring_of_four() -> Module:
    """The programs of four ranks that share prompts."""
    module = model()
    passes = "heads{tp=4},shard{tp=4,cp=4,cp_form=ring},pad-to-mesh,partition"
    run_pipeline(module, parse_pipeline(f"{FRONT},{passes}"))
    return module


def prefill(module: Module) -> Function:
    return next(function for function in module.programs() if function.phase == "prefill")


def above(op: Op) -> Iterator[Op]:
    """Everything that an op needs."""
    work, seen = [op], {op}
    while work:
        for made in [value.op for value in work.pop().operands]:
            if made is not None and made not in seen:
                seen.add(made)
                work.append(made)
                yield made


def test_blocks_travel_while_products_are_computed():
    ops = prefill(ring_of_four()).block
    sent = [op for op in ops if op.name == "collective_permute"]
    parts = [op for op in ops if op.name == "attention_part"]
    assert (len(sent), len(parts)) == (3, 4)
    for step, permute in enumerate(sent):
        # No product is waited for, and no product waits for what leaves during it.
        assert not any(op.name == "attention_part" for op in above(permute))
        assert [op for op in above(parts[step]) if op in sent] == sent[:step][::-1]
        pairs = permute.attrs.groups("source_target_pairs")
        assert pairs == ((0, 1), (1, 2), (2, 3), (3, 0))
    # Keys and values of two of eight slots, all heads, as one.
    assert {op.result.shape for op in sent} == {(2, 2, 4, 16)}
    # Masks are made for a rank's own tokens and one block of slots.
    assert {op.operands[3].shape for op in parts} == {(2, 2, 2)}


def test_groups_pass_on_among_themselves():
    assert ring_pairs(((0, 2), (1, 3))) == ((0, 2), (1, 3), (2, 0), (3, 1))
    assert balanced_order(3) == [0, 5, 1, 4, 2, 3]


def products(order: Sequence[int], ranks: int) -> list[list[int]]:
    """Pairs of tokens and slots that a causal mask allows, by step and rank, in blocks of two."""
    places = np.array([2 * block + at for block in order for at in range(2)]).reshape(ranks, -1)
    return [
        [int((places[rank][:, None] >= places[rank - step]).sum()) for rank in range(ranks)]
        for step in range(ranks)
    ]


def test_balanced_tokens_leave_ranks_as_much_to_do_at_each_step():
    whole = 4 * 4
    first, *others = products(balanced_order(3), 3)
    assert len(set(first)) == 1
    assert others == [[whole // 2] * 3] * 2
    # In order, some rank has every product of a step to do, beside one that has none.
    assert [(min(step), max(step)) for step in products(range(6), 3)[1:]] == [(0, whole)] * 2


def test_bytes_of_a_ring_and_its_cost():
    """An exchange of keys and values, and three blocks; products hide what is sent meanwhile."""
    module = model()
    run_pipeline(module, parse_pipeline(f"{FRONT},heads{{tp=4}}"))
    (op,) = [op for op in prefill(module).block if op.name == "attention"]
    forms = PromptAttention(module, model_axes(module), RankAxes(4, 4), latency=100)
    ring = next(form for form in forms.forms(op) if form.name == "ring")
    # 2 rows, 2 of 8 slots, 4 heads, 8 + 8 numbers of 4 bytes; of the cached ones 3/4 go elsewhere.
    block = 2 * 2 * 4 * 16 * 4
    assert (ring.block, ring.sent, ring.collectives) == (block, 3 * block // 4 + 3 * block, 5)
    alone = forms.with_order(op, replace(ring, exchange=0, block=-100), balanced=False).cost
    each = (alone - 9 * 2 * 2 * 8 * 8 * 4 // 4) // 4
    assert 0 < each < block
    # To combine a block with those before, two results of 2 rows, 2 of 8 tokens and 8 heads are
    # read and one is written; four bytes of memory count as one sent.
    part = 2 * 2 * 8 * 8 * 4 // 4
    assert ring.cost == 3 * block // 4 + 2 * 100 + each + 3 * max(block + 100, each + 3 * part)


def test_long_prompts_are_shared_by_a_balanced_ring():
    """Where rows are not in place, so that tokens cannot be exchanged for heads of the cache."""
    chosen: list[bool] = []
    for size in (8, 1 << 17):
        module = model()
        sizes = f"specialize{{batch=[2],rows=4,context=[{size}],tokens=[{size}]}}"
        passes = (
            f"canonicalize,unfuse-projections,{sizes},heads{{tp=2}},"
            "balance-tokens{tp=4,cp=4,dp=2}"
        )
        run_pipeline(module, parse_pipeline(passes))
        chosen.append(
            any(op.name == "take" and op.result.dtype is s32 for op in prefill(module).ops)
        )
    assert chosen == [False, True]


def test_rings_compute_what_one_rank_does():
    """A window, several chunks, ragged rows and prefixes; then balanced."""
    module = model("gemma-3-1b")
    workload = workload_for(module, default(RING), seed=2)
    wanted = Runner(module, workload, arithmetic=MEANING).outcomes()
    for balance in ("off", "on"):
        made = clone_module(module)
        run_pipeline(made, default(replace(RING, cp_balance=balance)))
        dealt = any(op.name == "take" and op.result.dtype is s32 for op in prefill(made).ops)
        assert dealt == (balance == "on")
        found = Runner(made, workload, arithmetic=MEANING).outcomes()
        assert compare(wanted, found).relative <= MEANING_BUDGET


# Sinks, linear biases, one head of keys, latent vectors, narrow and paged caches, rows of groups.
CASES = {
    "sinks": ("gpt-oss-20b", {"cp_degree": 2}),
    "linear biases": ("bloom-560m", {"cp_degree": 2}),
    "soft caps": ("gemma-2-2b", {"cp_degree": 2, "attention_block": "2x3"}),
    "latent vectors": ("deepseek-v3", {"cp_degree": 2}),
    "narrow caches": ("qwen2-7b", {"cp_degree": 2, "kv_cache_quant": True}),
    "paged": ("llama-3.1-8b", {"page_cache": 4}),
    "rows of groups": (
        "llama-3.1-8b",
        {"attention_dp_degree": 2, "prefill_batch": (1,), "batch": (4,)},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_balanced_rings_compute_what_one_rank_does(case: str):
    name, options = CASES[case]
    config = replace(RING, cp_balance="on", chunk=(), **options)  # pyright: ignore[reportArgumentType]
    module = model(name)
    workload = workload_for(module, default(config), seed=2)
    made = clone_module(module)
    run_pipeline(made, default(config))
    runs = [Runner(each, workload, arithmetic=MEANING).outcomes() for each in (module, made)]
    assert compare(runs[0], runs[1]).relative <= MEANING_BUDGET


def windows(config: CompileConfig) -> tuple[Module, Function]:
    """Layers of which the first has a window of four, and the program of its longest prompts."""
    made = model("gemma-3-1b", 2)
    run_pipeline(made, default(config))
    return made, [function for function in made.programs() if function.phase == "prefill"][-1]


def test_a_window_travels_alone():
    """Of 32 slots each rank of two gets those of its eight tokens and seven before them."""
    config = replace(SIZES, context=(8, 16), tokens=(16, 32), cp_degree=2, cp_form="ring")
    _, program = windows(replace(config, cp_balance="off"))
    sent = [op for op in program.ops if op.name in ("collective_permute", "all_to_all")]
    layers = {
        layer: [op for op in sent if f"layers.{layer}.self_attn" in op.loc.scope]
        for layer in (0, 1)
    }
    assert [op.name for op in layers[1]].count("collective_permute") == 1
    assert [op.name for op in layers[0]].count("collective_permute") == 0
    # Two rows, two ranks, and a head of keys and values in one.
    shapes = {op.operands[0].type.dims for op in layers[0] if op.name == "all_to_all"}
    assert (2 * 2, 8 + 7, 1, 2 * 24) in shapes
    assert not any(32 in shape[:2] for shape in shapes)


WINDOWS = {
    "in a ring": {"cp_degree": 4, "cp_form": "ring", "cp_balance": "off"},
    "balanced": {"cp_degree": 2, "cp_form": "ring", "cp_balance": "on"},
    "as costs least": {"cp_degree": 4},
    # Keys are widened after their slots are put in the balanced order: all blocks travel.
    "balanced, narrow caches": {
        "cp_degree": 2,
        "cp_form": "ring",
        "cp_balance": "on",
        "kv_cache_quant": True,
    },
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("case", WINDOWS)
def test_ranks_with_the_slots_of_their_windows_compute_what_one_does(case: str):
    config = replace(SIZES, context=(8, 16), tokens=(16, 32), chunk=(8,), **WINDOWS[case])  # pyright: ignore[reportArgumentType]
    module = model("gemma-3-1b", 2)
    workload = workload_for(module, default(config), seed=2)
    made, _ = windows(config)
    runs = [Runner(each, workload, arithmetic=MEANING).outcomes() for each in (module, made)]
    assert compare(runs[0], runs[1]).relative <= MEANING_BUDGET


def balanced(config: CompileConfig, name: str, more: str = "") -> Module:
    module = model(name)
    front = f"{FRONT},roll-window-cache" if config.roll_window_cache else FRONT
    run_pipeline(module, parse_pipeline(f"{front}{more}"))
    form, balance = config.cp_form, config.cp_balance
    run_pipeline(module, [BalanceTokens(4, config.cp_degree, 1, form, balance, config.target)])
    return module


@pytest.mark.parametrize(
    ("name", "options", "more", "text"),
    [
        (
            "mistral-7b",
            {"roll_window_cache": True},
            "",
            "@prefill.b2.s8 need their order: slots of a rolled cache are in no order of positions",
        ),
        (
            "mixtral-8x7b",
            {},
            ",limit-expert-capacity{factor=1.0}",
            "experts with a capacity take the tokens that come first",
        ),
        ("llama-3.1-8b", {"cp_degree": 8}, "", "tp=4 ranks are not 8 groups of as many"),
    ],
)
def test_what_needs_the_order_of_tokens_is_refused(
    name: str, options: dict[str, object], more: str, text: str
):
    config = replace(RING, cp_degree=2, cp_balance="on")
    with pytest.raises(GraphgenError, match=re.escape(text)):
        balanced(replace(config, **options), name, more)  # pyright: ignore[reportArgumentType]


def test_tokens_stay_in_order_where_that_costs_less():
    """Devices compute what masks forbid; short prompts wait for links, not for products."""
    for config in (replace(RING, target="trn2"), RING, replace(RING, cp_form="auto")):
        program = prefill(balanced(config, "llama-3.1-8b"))
        assert not any(op.name == "take" and op.result.dtype is s32 for op in program.ops)
