"""Models of others: right by loops in NumPy, and still so split, compiled, written and read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import graphgen as gg
from graphgen.eval import Array
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.hlo import emit_hlo
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.equiv.paired_run import CompareOptions
from graphgen.passes.sharding.layout_rules import annotate
from tests.oracles.outside_models import CHOSEN, EXPERTS, HEADS, LAYOUTS, MODELS, WIDTH, WORDS

SIZE = 8


def weights(module: gg.Module) -> dict[str, Array]:
    random = np.random.default_rng(1)
    (program,) = module.programs()
    made: dict[str, Array] = {}
    for value in program.args:
        if value.name not in ("tokens", "x"):
            made[value.name or ""] = (random.standard_normal(value.type.dims) / 2).astype(
                np.float32
            )
    return made


def given(name: str) -> dict[str, Array]:
    random = np.random.default_rng(2)
    if name == "experts":
        return {"x": random.standard_normal((1, SIZE, WIDTH)).astype(np.float32)}
    return {"tokens": random.integers(0, WORDS, (1, SIZE)).astype(np.int32)}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def by_hand_encoder(w: Mapping[str, Array], tokens: Array) -> Array:
    import torch

    x = torch.tensor(w["words"][tokens] + w["places"][: tokens.shape[1]])
    for layer in range(2):
        at = {k.removeprefix(f"layers.{layer}."): torch.tensor(v) for k, v in w.items()}
        q, k, v = (
            (x @ at[f"{n}.weight"].T).unflatten(-1, (HEADS, -1)).transpose(1, 2) for n in "qkv"
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + mixed.transpose(1, 2).flatten(2) @ at["o.weight"].T
        x = torch.nn.functional.layer_norm(x, (WIDTH,), at["first.weight"])
        up = torch.nn.functional.gelu(x @ at["up.weight"].T)
        x = torch.nn.functional.layer_norm(
            x + up @ at["down.weight"].T, (WIDTH,), at["second.weight"]
        )
    return x.numpy()


def by_hand_state_space(w: Mapping[str, Array], tokens: Array) -> Array:
    x = w["words"][tokens[0]]
    step = sigmoid(x @ w["step.weight"].T)
    state = np.zeros((w["write.weight"].shape[0], WIDTH))
    rows: list[Array] = []
    for t in range(x.shape[0]):
        kept = np.exp(step[t] * -np.exp(w["log_rate"]))
        state = state * kept + np.outer(w["write.weight"] @ x[t], step[t] * x[t])
        gate = w["gate.weight"] @ x[t]
        rows.append(w["head"] @ ((w["read.weight"] @ x[t]) @ state * gate * sigmoid(gate)))
    return np.stack(rows)[None]


def by_hand_experts(w: Mapping[str, Array], x: Array) -> Array:
    out = np.zeros_like(x)
    for t, row in enumerate(x[0]):
        scores = w["router"] @ row
        best = np.argsort(-scores)[:CHOSEN]
        shares = np.exp(scores[best]) / np.exp(scores[best]).sum()
        for share, expert in zip(shares, best, strict=True):
            gate = w["experts.gate"][expert] @ row
            inner = gate * sigmoid(gate) * (w["experts.up"][expert] @ row)
            out[0, t] += share * (w["experts.down"][expert] @ inner)
    return out


BY_HAND = {
    "encoder": lambda w, i: by_hand_encoder(w, i["tokens"]),
    "state_space": lambda w, i: by_hand_state_space(w, i["tokens"]),
    "experts": lambda w, i: by_hand_experts(w, i["x"]),
}
NAMES = sorted(MODELS)


def compiled(name: str) -> gg.Module:
    module = MODELS[name]()
    steps = f"canonicalize,specialize{{context=[{SIZE}]}},cse,legalize,dce"
    run_pipeline(module, parse_pipeline(steps))
    return module


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_what_is_meant(name: str):
    module = MODELS[name]()
    gg.verify(module)
    assert EXPERTS > CHOSEN
    w, inputs = weights(module), given(name)
    (found,) = module.evaluate({**w, **inputs}).values()
    np.testing.assert_allclose(np.asarray(found), BY_HAND[name](w, inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_for_this_machine(name: str):
    module = compiled(name)
    (program,) = module.programs()
    inputs = {**weights(MODELS[name]()), **given(name)}
    (ours,) = compile_program(module, program).run_numpy([inputs])
    theirs = MODELS[name]().evaluate(inputs)
    for output, array in ours.items():
        np.testing.assert_allclose(array, np.asarray(theirs[output]), rtol=1e-4, atol=1e-5)
    assert emit_hlo(module, program)


@pytest.mark.parametrize("name", NAMES)
def test_written_and_read_back(name: str):
    module = MODELS[name]()
    text = gg.print_module(module)
    assert gg.print_module(gg.parse(text)) == text
    inputs = {**weights(module), **given(name)}
    for output, array in gg.parse(text).evaluate(inputs).items():
        np.testing.assert_array_equal(
            np.asarray(array), np.asarray(module.evaluate(inputs)[output])
        )


@pytest.mark.parametrize("name", NAMES)
def test_split_over_two_ranks(name: str):
    module = MODELS[name]()
    module.mesh["tp"] = 2
    annotate(module, LAYOUTS[name])
    steps = f"canonicalize,specialize{{context=[{SIZE}]}},partition,cse,dce,lift-weights"
    run_pipeline(module, parse_pipeline(steps))
    (program,) = module.programs()
    cut = [row for row in module.interface.values() if row.logical.size != row.physical.size]
    assert cut or any(value.name and "prepared" in value.name for value in program.args)
    assert any(op.name.startswith("all_") for op in program.ops)
    found = equivalent(MODELS[name](), module, CompareOptions())
    assert found.equal
    assert not found.empty
