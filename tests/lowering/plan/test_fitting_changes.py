"""Changes with which a model would fit: each is what a plan of the changed model says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.lowering.plan.capacity_plan import make_plan
from graphgen.lowering.plan.fitting_changes import FittingChange, fitting_changes
from graphgen.models import known_shape
from graphgen.targets import accelerator
from tests.graphgen.cli.conftest import done, facts

SMOLLM2 = known_shape("smollm2-135m")
SEQ = 2048
DEMAND = CompileConfig(dtype="bf16", batch=(2,), context=(SEQ,), tokens=(SEQ,), slots=SEQ)
# Of 1 and 16 ranks the first needs more.
TRN2 = replace(accelerator("trn2"), tp_degrees=(1, 16))
SMALL = replace(TRN2, hbm_bytes=480_000_000)


def by_flag(made: list[FittingChange]) -> dict[str, FittingChange]:
    return {item.flags.split()[0]: item for item in made}


@pytest.mark.slow
def test_each_change_needs_what_a_plan_of_it_says():
    plan = make_plan(SMOLLM2, SMALL, DEMAND, tp=1)
    assert plan.chosen is not None
    assert not plan.chosen.serves
    found = by_flag(fitting_changes(SMOLLM2, plan))
    assert [*found] == [
        *("--tp", "--context", "--seq", "--batch", "--kv-cache-quant", "--quantized")
    ]
    assert found["--tp"].flags == "--tp 16"
    sequence = int(found["--seq"].flags.split()[1])
    assert found["--seq"].fits
    for tokens, fits in ((sequence, True), (sequence + 128, False)):
        changed = replace(DEMAND, context=(tokens,), tokens=(tokens,), slots=tokens)
        (one, *_) = make_plan(SMOLLM2, SMALL, changed, tp=1).degrees
        assert one.serves == fits
        if fits:
            assert one.needs == found["--seq"].core_bytes
    for item in found.values():
        assert item.fits == (item.core_bytes <= SMALL.hbm_bytes)


def test_a_model_that_serves_needs_no_change():
    plan = make_plan(SMOLLM2, replace(TRN2, tp_degrees=(1,)), replace(DEMAND, context=(128,)))
    assert plan.chosen is not None
    assert not fitting_changes(SMOLLM2, plan)


@pytest.mark.slow
def test_a_large_mixture_that_needs_a_little_less():
    words = ("plan", "deepseek-v3", "--target", "trn2", "--tp", "32")
    shown = done(*words).stdout
    assert "tp 32: needs 25.9 GB of 25.8 GB a core" in shown
    assert "to fit, one of" in shown
    found = {item["flags"].split()[0]: item for item in facts(*words)["to_fit"]}
    # Its weights are stored in 8 bits.
    assert [*found] == ["--tp", "--context", "--seq", "--kv-cache-quant"]
    assert found["--tp"]["flags"] == "--tp 64"
    assert found["--context"]["fits"]
    assert found["--seq"]["fits"]
    assert not found["--kv-cache-quant"]["fits"]
