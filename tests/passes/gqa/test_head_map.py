"""Head maps: every head counts over every number of ranks, and what the peers would lay out."""

from __future__ import annotations

import os
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.passes.gqa.head_map import HeadMap, check
from graphgen.passes.gqa.head_strategies import AUTO, STRATEGIES, Heads, head_map, serving
from tests.oracles.gqa import SWEEP, nxdi_maps, tnx_maps

PAGE = Path(__file__).resolve().parents[3] / "docs" / "gqa.md"
NAMED = [name for name in STRATEGIES if name != AUTO]
# Where the table says nothing about heads' size and the batch.
HEAD_DIM = 64


def sizes_of(tp: int, q: int, kv: int) -> Heads:
    return Heads(tp, q, kv, HEAD_DIM, tp)


def counts(found: HeadMap) -> tuple[int, int]:
    return len(found.q_map), len(found.kv_map)


def test_ranks_make_keys_and_values_together_where_that_is_asked_for():
    assert head_map(sizes_of(4, 8, 2), "auto").gathered == 1
    assert head_map(sizes_of(4, 8, 2), "ALL_GATHER_HEADS").gathered == 2


@pytest.mark.parametrize("row", SWEEP)
@pytest.mark.parametrize("strategy", ["auto", "CONVERT_TO_MHA"])
def test_two_strategies_serve_every_row(row: tuple[int, int, int], strategy: str):
    tp, q, kv = row
    found = head_map(Heads(tp, q, kv), strategy)
    assert counts(found)[0] % tp == 0
    assert counts(found)[1] % tp == 0
    assert set(found.q_map) - {-1} == set(range(q))
    assert set(found.kv_map) - {-1} == set(range(kv))


# The formula of the choice, by hand: KV' and Q' of the best bin size.
CHOSEN = {
    (10, 9, 3): (10, 10),
    (16, 40, 10): (64, 16),
    (32, 56, 8): (64, 32),
    (8, 9, 3): (16, 8),
    (4, 9, 3): (12, 4),
    (2, 9, 3): (12, 4),
    (64, 128, 8): (128, 64),
    (1, 9, 3): (9, 3),
    (3, 9, 3): (9, 3),
    (8, 71, 71): (72, 72),
    (6, 32, 8): (48, 12),
}


@pytest.mark.parametrize(("row", "wanted"), CHOSEN.items())
def test_fewest_key_value_heads_then_fewest_query_heads(
    row: tuple[int, int, int], wanted: tuple[int, int]
):
    assert counts(head_map(Heads(*row))) == wanted


small = st.integers(1, 24)


@given(tp=st.integers(1, 70), kv=small, group=small)
def test_any_heads_over_any_ranks(tp: int, kv: int, group: int):
    sizes = Heads(tp, kv * group, kv, HEAD_DIM, tp)
    found = {name: head_map(sizes, name) for name in serving(sizes)}
    for each in found.values():
        proved(each)
    # No layout by heads keeps fewer key-value heads, or as many and fewer query heads.
    q, kept = counts(found[AUTO])
    assert all(
        (kept, q) <= (counts(each)[1], counts(each)[0])
        for each in found.values()
        if each.over == "heads" and each.gathered == 1
    )
    assert kept == min(tp * ceil(kv * ceil(group / size) / tp) for size in range(1, group + 1))


def proved(found: HeadMap) -> None:
    """The check, written again: by rank and head, what attention would read."""
    if found.over == "rows":
        assert found.identity
        return
    seen: list[int] = []
    group = found.heads // found.kv_heads
    for rank in range(found.tp):
        q_heads, kv_heads = found.on_rank(rank)
        assert len(q_heads) * found.tp == len(found.q_map)
        assert len(q_heads) % len(kv_heads) == 0
        for place, head in enumerate(q_heads):
            if head != -1:
                seen.append(head)
                assert kv_heads[place * len(kv_heads) // len(q_heads)] == head // group
    assert sorted(seen) == list(range(found.heads))


@given(tp=st.integers(1, 70), kv=small, group=small)
def test_the_layouts_of_nxd_inference(tp: int, kv: int, group: int):
    found = head_map(Heads(tp, kv * group, kv), compat="nxdi")
    assert (found.q_map, found.kv_map) == nxdi_maps(tp, kv * group, kv)
    assert found.strategy == ("CONVERT_TO_MHA" if tp % kv else "REPLICATE_TO_TP_DEGREE")


@given(tp=st.integers(1, 70), kv=small, group=small)
def test_the_layouts_of_transformers_neuronx(tp: int, kv: int, group: int):
    sizes = Heads(tp, kv * group, kv, tp, tp)
    for name in serving(sizes, "tnx"):
        found = head_map(sizes, name, "tnx")
        if found.over == "heads":
            assert (found.q_map, found.kv_map) == tnx_maps(tp, kv * group, kv, found.strategy)
    chosen = head_map(sizes, compat="tnx").strategy
    shared = kv % tp == 0 or group == 1
    assert chosen == ("SHARD_OVER_HEADS" if shared else "REPLICATED_HEADS")


# Query and key-value heads that transformers-neuronx was seen to make of (Q, KV, tp).
SEEN = {
    (6, 2, 4): (8, 4), (71, 1, 8): (72, 8), (72, 24, 32): (96, 32), (48, 8, 32): (64, 32),
    (64, 8, 24): (72, 24), (32, 8, 24): (48, 24), (40, 8, 32): (64, 32), (28, 4, 8): (32, 8),
    (14, 2, 4): (16, 4), (9, 3, 2): (10, 10), (6, 3, 2): (6, 6), (12, 3, 8): (16, 16),
}  # fmt: skip


@pytest.mark.parametrize(("given", "wanted"), SEEN.items())
def test_head_counts_seen_of_transformers_neuronx(
    given: tuple[int, int, int], wanted: tuple[int, int]
):
    q, kv, tp = given
    assert counts(head_map(Heads(tp, q, kv), "REPLICATED_HEADS", "tnx")) == wanted


# Query and key-value heads that NxD Inference was seen to make of (tp, Q, KV).
NXDI_SEEN = {
    (8, 32, 8): (32, 8), (16, 32, 8): (32, 16), (32, 32, 8): (32, 32), (64, 32, 8): (64, 64),
    (32, 56, 8): (64, 32), (64, 40, 8): (64, 64), (24, 32, 8): (48, 24), (24, 64, 8): (72, 24),
    (48, 64, 8): (96, 48), (8, 28, 4): (32, 8), (16, 12, 2): (16, 16), (10, 14, 2): (20, 10),
    (4, 71, 1): (72, 4), (8, 71, 71): (72, 72), (16, 40, 10): (48, 48), (6, 32, 8): (36, 36),
    (4, 32, 8): (32, 8),
}  # fmt: skip


@pytest.mark.parametrize(("row", "wanted"), NXDI_SEEN.items())
def test_head_counts_seen_of_nxd_inference(row: tuple[int, int, int], wanted: tuple[int, int]):
    assert counts(head_map(Heads(*row), compat="nxdi")) == wanted


@pytest.mark.parametrize("compat", ["none", "nxdi"])
@pytest.mark.parametrize("row", [(6, 32, 8), (8, 24, 3), (16, 40, 10)])
def test_converting_pads_by_heads_and_not_by_copies(row: tuple[int, int, int], compat: str):
    # NxD Inference pads K and V as often as it copied them: 144, 192 and 192 heads.
    tp, q, _ = row
    q_padded = ceil(q / tp) * tp
    assert counts(head_map(Heads(*row), "CONVERT_TO_MHA", compat)) == (q_padded, q_padded)


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_fewer_ranks_than_key_value_heads_need_no_copies(tp: int):
    # NxD Inference fails to compile these, or copies in vain.
    for compat in ("none", "nxdi", "tnx"):
        assert head_map(Heads(tp, 32, 8), compat=compat).identity


def test_no_byte_of_cache_beyond_the_formula():
    # Llama-3.1-405B on 64 ranks: one key-value head a rank, which is the least there can be.
    found = head_map(Heads(64, 128, 8))
    assert counts(found) == (128, 64)
    assert -1 not in found.q_map
    assert -1 not in found.kv_map


def test_query_heads_in_groups_with_the_zero_heads_between():
    found = head_map(Heads(8, 28, 4))
    assert found.q_map == tuple(head for i in range(4) for head in (*range(7 * i, 7 * i + 7), -1))
    assert found.kv_map == (0, 0, 1, 1, 2, 2, 3, 3)
    assert found.on_rank(3) == ((11, 12, 13, -1), (1,))
    assert [found.q_map[place] for place in found.q_places] == list(range(28))


def test_the_choice_is_told():
    assert head_map(Heads(16, 40, 10)).why == (
        "auto: 16 key-value heads (1 of each, 6 zero) and 64 query heads (24 zero) over 16 ranks; "
        "the fewest key-value heads, then query heads"
    )
    assert head_map(Heads(8, 28, 4), compat="nxdi").why == (
        "REPLICATE_TO_TP_DEGREE: 8 key-value heads (2 of each, 0 zero) and 32 query heads (4 zero) "
        "over 8 ranks; as nxdi chooses"
    )
    assert head_map(Heads(4, 9, 3, 64, 8), "SHARD_OVER_BATCH").why == (
        "SHARD_OVER_BATCH: all heads on each of 4 ranks, the rows divided; as asked"
    )


REFUSED = [
    (
        (16, 40, 10),
        "REPLICATE_TO_TP_DEGREE",
        "none",
        "heads: REPLICATE_TO_TP_DEGREE cannot serve 40 query and 10 key-value heads over 16 ranks: "
        "16 ranks are not a multiple of 10 key-value heads",
        "these can: auto, CONVERT_TO_MHA, SHARD_OVER_BATCH, REPLICATED_HEADS",
    ),
    (
        (16, 32, 8),
        "SHARD_OVER_HEADS",
        "none",
        "heads: SHARD_OVER_HEADS cannot serve 32 query and 8 key-value heads over 16 ranks: 8 of "
        "16 ranks would have no key-value head",
        "these can: auto, CONVERT_TO_MHA, REPLICATE_TO_TP_DEGREE, SHARD_OVER_BATCH, "
        "REPLICATED_HEADS, ALL_GATHER_HEADS",
    ),
    (
        (6, 32, 8),
        "SHARD_OVER_HEADS",
        "tnx",
        "heads: SHARD_OVER_HEADS cannot serve 32 query and 8 key-value heads over 6 ranks: 8 "
        "key-value heads do not divide by 6 ranks",
        "these can: auto, REPLICATED_HEADS",
    ),
    (
        (24, 32, 8),
        "ALL_GATHER_HEADS",
        "none",
        "heads: ALL_GATHER_HEADS cannot serve 32 query and 8 key-value heads over 24 ranks: 3 "
        "ranks would share a head of 64 features",
        "these can: auto, CONVERT_TO_MHA, REPLICATE_TO_TP_DEGREE, REPLICATED_HEADS",
    ),
    (
        (10, 14, 2),
        "SHARD_OVER_BATCH",
        "none",
        "heads: SHARD_OVER_BATCH cannot serve 14 query and 2 key-value heads over 10 ranks: 128 "
        "features of keys do not divide by 10 ranks",
        "these can: auto, CONVERT_TO_MHA, REPLICATE_TO_TP_DEGREE, REPLICATED_HEADS",
    ),
]


@pytest.mark.parametrize(("row", "strategy", "compat", "what", "help"), REFUSED)
def test_a_strategy_that_cannot_serve_is_refused(
    row: tuple[int, int, int], strategy: str, compat: str, what: str, help: str
):
    with pytest.raises(GraphgenError) as caught:
        head_map(sizes_of(*row), strategy, compat)
    assert (caught.value.code, caught.value.what, caught.value.help) == ("GG0304", what, help)
    # Those that are offered do serve.
    for name in help.removeprefix("these can: ").split(", "):
        head_map(sizes_of(*row), name, compat)


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(GraphgenError, match="a batch of 6 rows does not divide by 4 ranks"):
        head_map(Heads(4, 32, 8, 64, 6), "SHARD_OVER_BATCH")


@pytest.mark.parametrize(
    ("sizes", "strategy", "compat", "what"),
    [
        (Heads(8, 32, 8), "AUTO", "none", "heads: strategy=AUTO is unknown"),
        (
            Heads(8, 32, 8),
            "SHARD_OVER_HEADS",
            "nxdi",
            "heads: strategy=SHARD_OVER_HEADS is unknown to compat=nxdi",
        ),
        (Heads(8, 32, 8), "auto", "vllm", "heads: compat=vllm is unknown"),
        (
            Heads(8, 32, 5),
            "auto",
            "none",
            "heads: 32 query and 5 key-value heads over 8 ranks make no grouped attention",
        ),
        (
            Heads(0, 32, 8),
            "auto",
            "none",
            "heads: 32 query and 8 key-value heads over 0 ranks make no grouped attention",
        ),
    ],
)
def test_questions_that_make_no_sense(sizes: Heads, strategy: str, compat: str, what: str):
    with pytest.raises(GraphgenError) as caught:
        head_map(sizes, strategy, compat)
    assert (caught.value.code, caught.value.what) == ("GG0302", what)


def changed(found: HeadMap, which: str, place: int, head: int) -> HeadMap:
    heads = list(found.q_map if which == "q_map" else found.kv_map)
    heads[place] = head
    return replace(found, **{which: tuple(heads)})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("q_map", 9, 9), "query head 8 is there 0 times"),
        (("q_map", 7, 8), "query head 8 is there 2 times"),
        (("kv_map", 2, 2), "on rank 2 query head 7 reads key-value head 2"),
        (("kv_map", 5, -1), "on rank 5 query head 18 reads key-value head -1"),
    ],
)
def test_the_check_finds_a_wrong_map(change: tuple[str, int, int], what: str):
    found = head_map(Heads(8, 28, 4))
    with pytest.raises(GraphgenError) as caught:
        check(changed(found, *change))
    assert caught.value.what == (
        "the head map of auto for 28 query and 4 key-value heads over 8 ranks is wrong: " + what
    )


def test_the_check_finds_heads_that_do_not_divide():
    found = head_map(Heads(8, 28, 4))
    with pytest.raises(GraphgenError, match="is wrong: 31 and 8 heads do not divide"):
        check(replace(found, q_map=found.q_map[:-1]))
    # Swapped between two ranks, all heads are there, but not beside their own.
    q = found.q_map
    with pytest.raises(GraphgenError, match="on rank 1 query head 11 reads key-value head 0"):
        check(replace(found, q_map=(*q[:4], *q[12:16], *q[8:12], *q[4:8], *q[16:])))


def table() -> str:
    """The table of the page: Q' and KV' for each row and strategy."""
    lines = [
        "| tp | Q | KV | " + " | ".join(f"`{name}`" for name in STRATEGIES) + " |",
        "|---" * (3 + len(STRATEGIES)) + "|",
    ]
    for row in SWEEP:
        sizes = sizes_of(*row)
        served = {name: counts(head_map(sizes, name)) for name in serving(sizes)}
        cells = [str(size) for size in row]
        cells += [
            ", ".join(map(str, served[name])) if name in served else "–" for name in STRATEGIES
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def test_the_page_has_the_table():
    text = PAGE.read_text(encoding="utf-8")
    first, _, rest = text.partition("<!-- table -->\n")
    _, _, last = rest.partition("<!-- end of table -->\n")
    wanted = f"{first}<!-- table -->\n{table()}<!-- end of table -->\n{last}"
    if os.environ.get("GRAPHGEN_UPDATE_GOLDEN"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted
    assert last


@pytest.mark.parametrize("name", NAMED)
def test_every_strategy_applies_somewhere(name: str):
    assert sum(name in serving(sizes_of(*row)) for row in SWEEP) >= 5
