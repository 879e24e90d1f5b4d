"""Arrays of trained models' ranges: the traits are there, right passes keep within them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import Array
from graphgen.ir import Role, dtype, entry, tensor
from graphgen.models import build, known_shape
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.passes.workload.value_ranges import (
    RealisticNumbers,
    Statistics,
    boundary_ids,
    normal_numbers,
    own_generator,
    place_of,
    statistics_of,
)
from tests.oracles.minis import MINIS

BUCKETS = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
DRAW = RealisticNumbers()


def weight(name: str, *dims: int, seed: int = 0, draw: RealisticNumbers = DRAW) -> Array:
    row = entry(Role.WEIGHT, name, tensor(dtype("f32"), dims))
    return draw(own_generator(seed, name), row, row.logical)


def test_ids_at_the_ends_of_integers_and_of_the_vocabulary():
    assert boundary_ids(200) == (0, 1, 127, 128, 199)
    assert boundary_ids(70000)[-5:] == (32767, 32768, 65535, 65536, 69999)


def test_an_array_depends_on_its_name_and_the_seed_alone():
    config = dict(known_shape("smollm2-135m"))
    tied = build(config, dtype("f32"), mini=True)
    untied = build({**config, "tie_word_embeddings": False}, dtype("f32"), mini=True)
    for source in (normal_numbers, DRAW):
        few, more = (make_workload(m, 3, source=source).weights for m in (tied, untied))
        assert more.keys() - few.keys() == {"lm_head.weight"}
        assert all(np.array_equal(more[name], few[name]) for name in few)
        other = make_workload(tied, 4, source=source).weights
        assert not any(np.array_equal(other[name], few[name]) for name in few)


def test_a_table_has_massive_tokens_and_tokens_without_a_direction():
    x = weight("model.embed_tokens.weight", 257, 24)
    assert np.square(x[[0, 16, 256]]).max(axis=1).min() > 65504
    assert np.count_nonzero(~x.any(axis=1)) == 16
    assert np.count_nonzero(np.ptp(x, axis=1) == 0) == 32
    tiny = np.abs(x[7])
    assert 0 < tiny.max() < np.finfo(np.float32).tiny


def test_logits_of_a_head_tie_for_the_largest():
    x = weight("lm_head.weight", 257, 24)
    hidden = np.random.default_rng(0).standard_normal((100, 24)).astype(np.float32)
    # A matrix product may add equal rows in different orders; sums along rows do not.
    scores = (x.astype(np.float64)[:, None] * hidden.astype(np.float64)).sum(2)
    best = np.sort(scores, axis=0)[-2:]
    assert 0.3 < np.mean(best[0] == best[1]) < 0.9


def test_a_matrix_has_large_and_dead_channels():
    for seed in range(20):
        x = weight("model.layers.0.mlp.down_proj.weight", 24, 40, seed=seed)
        sizes = np.sqrt(np.square(x).mean(axis=1))
        assert sizes.max() > 5 * np.median(sizes)
        assert np.count_nonzero(sizes == 0) == 1
        assert np.count_nonzero(~x.any(axis=0)) == 1
        assert np.signbit(x[x == 0]).any()
        assert ((x != 0) & (np.abs(x) < np.finfo(np.float32).tiny)).any()


def test_weights_of_a_norm_are_about_one():
    x = weight("model.norm.weight", 24)
    assert abs(np.median(x) - 1) < 0.2
    assert (x.max(), x.min() < 0, (x == 0).any()) == (8, True, True)


@pytest.mark.parametrize("dims", [(), (1,), (1, 1), (2, 3), (5, 1), (3, 2, 2)])
def test_small_arrays_are_drawn_too(dims: tuple[int, ...]):
    for name in ("a.weight", "embed.weight", "lm_head.weight", "a.bias"):
        assert weight(name, *dims).shape == dims
        assert np.isfinite(weight(name, *dims)).all()


def test_statistics_are_drawn_again():
    rng = np.random.default_rng(1)
    measured = rng.standard_normal((64, 48)) * 0.02
    measured[5] *= 40
    found = statistics_of(measured)
    draw = RealisticNumbers({"mlp.up_proj.weight": [found]})
    drawn = weight("model.layers.1.mlp.up_proj.weight", 24, 16, draw=draw)
    again = statistics_of(drawn)
    assert found.least <= again.least < again.greatest <= found.greatest
    assert again.rows[-1] == pytest.approx(found.rows[-1], rel=0.5)
    assert again.rows[3] == pytest.approx(found.rows[3], rel=0.5)


def test_layers_take_turns_with_the_layers_that_were_measured():
    flat = [Statistics(v, 0.0, v, v, (v,) * 7) for v in (1.0, 2.0)]
    draw = RealisticNumbers({"norm.weight": flat})
    means = [weight(f"layers.{layer}.norm.weight", 4, draw=draw).mean() for layer in range(3)]
    assert means == [1, 2, 1]
    assert place_of("transformer.h.11.ln_1.bias") == ("ln_1.bias", 11)
    assert place_of("lm_head.weight") == ("lm_head.weight", 0)


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("name", MINIS)
@pytest.mark.one_in(65)
def test_right_passes_keep_within_their_budgets(name: str, element: str):
    module, tp = build(known_shape(name), dtype(element), mini=True), 1 + MINIS.index(name) % 2
    workload = make_workload(module, MINIS.index(name), source=DRAW)
    verdicts = validate(module, default(replace(BUCKETS, tp=tp)), workload)
    assert [(v.pass_text, v.meaning, v.rounding) for v in verdicts if not v.ok] == []
