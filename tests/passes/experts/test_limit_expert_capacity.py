"""Capacities: which tokens are dropped, in every form, and what validation says of it."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import EXPERT_DISPATCH
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.experts.limit_expert_capacity import capacity
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.passes.experts.mixtures import KINDS, arrays, choices, mixture


@pytest.mark.parametrize(
    ("tokens", "chosen", "experts", "factor", "found"),
    [
        (16, 2, 8, 1.0, 4),
        (16, 2, 8, 1.25, 5),
        (16, 2, 8, 1.1, 5),
        # E / K and more: each expert has places for all.
        (16, 2, 8, 4.0, 0),
        (16, 2, 8, 9.0, 0),
        (1, 2, 8, 1.0, 0),
        (2, 1, 8, 1.0, 1),
    ],
)
def test_a_capacity_is_the_share_of_an_expert(
    tokens: int, chosen: int, experts: int, factor: float, found: int
):
    assert capacity(tokens, chosen, experts, factor) == found


def by_token(given: dict[str, Array], limit: int) -> Array:
    """Tokens one after the other, each with the experts that are not yet full."""
    counts, out = dict.fromkeys(range(5), 0), np.zeros_like(given["x"])
    for token, x in enumerate(given["x"]):
        for choice, expert in enumerate(given["indices"][token]):
            if expert not in counts or counts[expert] == limit:
                continue
            counts[expert] += 1
            gate, up = given["gate"][expert] @ x, given["up"][expert] @ x
            hidden = gate / (1 + np.exp(-gate)) * up
            out[token] += given["weights"][token, choice] * (given["down"][expert] @ hidden)
    return out


@pytest.mark.parametrize("form", EXPERT_DISPATCH[1:])
@pytest.mark.parametrize("target", ["cpu", "trn2"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [0.5, 1.0])
@pytest.mark.one_in(7)
def test_every_form_drops_the_tokens_that_come_last(
    form: str, target: str, kind: str, factor: float
):
    module = mixture(12)
    given = arrays(module, choices(kind, 12, 2, 5, seed=3))
    text = f"dispatch-experts{{form={form},block=2,target={target}}}"
    run_pipeline(module, parse_pipeline(f"limit-expert-capacity{{factor={factor}}},{text}"))
    (function,) = module.programs()
    wanted = by_token(given, {0.5: 3, 1.0: 5}[factor])
    found = evaluate(function, given, MEANING, module=module)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_a_limit_is_reported_and_is_no_error():
    module = mixture(12, routed=True)
    passes = parse_pipeline("limit-expert-capacity{factor=0.5},dispatch-experts{form=blockwise}")
    limited, dispatched = validate(module, passes, make_workload(module))
    assert (limited.ok, limited.state) == (True, "approximate")
    assert limited.meaning.relative > 1e-3
    assert dispatched.state == "ok"
    reports = run_pipeline(module, passes)
    assert list(reports[0].remarks) == [
        "@decode: 12 tokens, 2 of 5 experts: each expert computes 3, at most 18 of 24 choices are "
        "dropped"
    ]


def test_room_for_all_changes_nothing():
    module, journal = mixture(12, routed=True), Journal()
    passes = parse_pipeline("limit-expert-capacity{factor=2.5}")
    (verdict,) = validate(module, passes, make_workload(module))
    assert verdict.state == "ok"
    run_pipeline(module, passes, journal=journal)
    assert not journal.applications
    assert [m.why.reason for m in journal.misses] == ["12 tokens have places in every expert"]


def test_a_smaller_capacity_stays():
    module, journal = mixture(12, attrs={"capacity": 2}), Journal()
    run_pipeline(module, parse_pipeline("limit-expert-capacity{factor=1}"), journal=journal)
    assert [m.why.reason for m in journal.misses] == ["its capacity is 2 already"]


def test_a_negative_factor_is_refused():
    with pytest.raises(GraphgenError, match="a factor of -1"):
        run_pipeline(mixture(4), parse_pipeline("limit-expert-capacity{factor=-1.0}"))


def test_the_default_pipeline_limits_before_experts_are_divided():
    names = [item.name for item in default(CompileConfig(capacity_factor=1.25, tp=2))]
    assert names.index("limit-expert-capacity") < names.index("shard")
    assert "limit-expert-capacity" not in [item.name for item in default(CompileConfig(tp=2))]
