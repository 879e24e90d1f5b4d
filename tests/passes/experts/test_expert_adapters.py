"""Adapters of experts: each token is computed as by experts with its adapter merged."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.config.compile_config import EXPERT_DISPATCH
from graphgen.eval import Array
from graphgen.ops.experts import expert_operands
from tests.passes.experts.mixtures import arrays, choices, mixture
from tests.passes.experts.test_dispatch_experts import LIMIT, MIXTURES, TARGETS, dispatched, result

SLOTS, TOKENS = 3, 13
PROJECTIONS = ("gate", "up", "down")


def given_and_wanted(name: str, kind: str) -> tuple[dict[str, Array], Array]:
    """The arguments of a mixture with adapters, and each token by its own merged weights."""
    attrs, biases = MIXTURES[name], name != "glu"
    indices = choices(kind, TOKENS, 2, 5)
    given = arrays(mixture(TOKENS, attrs=attrs, biases=biases, adapters=SLOTS), indices)
    # Adapters 0 to 2 in turn, then one that does not exist, and none.
    given["slots"] = (np.arange(TOKENS) % (SLOTS + 2)).astype(np.int32)
    given["slots"][given["slots"] > SLOTS] = -1
    plain = mixture(TOKENS, attrs=attrs, biases=biases)
    (function,) = plain.programs()
    wanted = np.zeros((TOKENS, 6))
    for slot in (-1, *range(SLOTS + 1)):
        merged = {arg.name: given[arg.name] for arg in function.args if arg.name}
        for part in PROJECTIONS if 0 <= slot < SLOTS else ():
            merged[part] = (
                given[part] + given[f"{part}.lora_B"][slot] @ given[f"{part}.lora_A"][slot]
            )
        own = given["slots"] == slot
        wanted[own] = result(plain, merged)[own]
    return given, wanted


@pytest.mark.parametrize("form", EXPERT_DISPATCH[1:])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MIXTURES)
def test_each_form_computes_tokens_with_their_own_adapters(form: str, target: str, name: str):
    """Of a capacity too, which counts the tokens of all adapters."""
    given, wanted = given_and_wanted(name, "random")
    module = mixture(TOKENS, attrs=MIXTURES[name], biases=name != "glu", adapters=SLOTS)
    assert np.abs(result(module, given) - wanted).max() <= LIMIT * np.abs(wanted).max()
    made = dispatched(module, form, target)
    assert np.abs(result(made, given) - wanted).max() <= LIMIT * np.abs(wanted).max()


def test_adapters_come_after_biases_or_without_them():
    for biases, count in ((False, 13), (True, 16)):
        (function,) = mixture(TOKENS, biases=biases, adapters=SLOTS).programs()
        operands = next(op for op in function.block if op.name == "experts").operands
        assert len(operands) == count
        plain, low_rank = expert_operands(operands)
        assert [value.name for value in low_rank[:2]] == ["slots", "gate.lora_A"]
        assert plain[-1].name == ("down_bias" if biases else "down")
