"""Modules of any form get calls: states of any rank and sizes, programs of other sizes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest

import graphgen as gg
from graphgen.passes.core import parse_pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import is_language_model, make_workload, workload_for

F, S = gg.dtype("f32"), gg.dtype("s32")
B = gg.symbol("B")
PHASES = (("main", "decode"), ("prefill", "decode"), ("main", "main"), ("encode", "decode"))


def encoder_decoder(cross: int, own: int, phases: tuple[str, str], symbolic: bool) -> gg.Module:
    """Cross attention over ``cross`` slots that the encoder fills, and a cache of ``own``."""
    rows = B if symbolic else 2
    module = gg.Module("cross")
    with gg.Builder(module.add(gg.Function("encode", phase=phases[0])), module) as b:
        x = b.input("mel", F, (rows, cross, 8))
        k = b.state("k_cache", F, (rows, cross, 2, 4))
        b.set_state(k, b.reshape(x, (rows, cross, 2, 4)))
        b.output("encoded", x)
    with gg.Builder(module.add(gg.Function("decode", phase=phases[1])), module) as b:
        tokens, positions = (b.input(n, S, (rows, 1)) for n in ("tokens", "positions"))
        seq_ids, lengths = (b.input(n, S, (rows,)) for n in ("seq_ids", "lengths"))
        k, v = b.state("k_cache", F, (rows, cross, 2, 4)), b.state("v", F, (rows, own, 2, 4))
        b.set_state(k, k)
        x = b.embedding(b.weight("embed", F, (20, 8)), tokens)
        b.set_state(v, b.kv_update(v, b.reshape(x, (rows, 1, 2, 4)), seq_ids, positions))
        read = b.sum(k, [1]) + b.sum(v, [1])
        b.output("logits", x + b.reshape(read, (rows, 1, 8)))
        b.output("more", b.add(lengths, lengths))
    gg.verify(module)
    return module


SIZES = [(16, 4), (3, 9), (5, 5)]


@pytest.mark.parametrize(
    ("sizes", "phases", "symbolic"), [*itertools.product(SIZES, PHASES, [True, False])]
)
def test_caches_of_several_lengths_are_written_inside(
    sizes: tuple[int, int], phases: tuple[str, str], symbolic: bool
):
    module = encoder_decoder(*sizes, phases, symbolic)
    workload = workload_for(module, [], script="adversarial")
    called = [call for call in workload.calls if "positions" in call.inputs]
    assert {call.phase for call in workload.calls} == set(phases)
    for call in called:
        assert (call.inputs["positions"] < sizes[1]).all()
    assert any((call.inputs["positions"] == sizes[1] - 1).any() for call in called)


@pytest.mark.parametrize("symbolic", [True, False])
def test_an_encoder_decoder_is_validated(symbolic: bool):
    module = encoder_decoder(16, 4, ("main", "decode"), symbolic)
    passes = parse_pipeline("canonicalize,cse")
    assert all(item.ok for item in validate(module, passes, workload_for(module, passes)))


def named(shapes: Mapping[str, tuple[gg.Dim, ...]], state: tuple[gg.Dim, ...]) -> gg.Module:
    """A module with the input names of a language model, in any form."""
    module = gg.Module("named")
    with gg.Builder(module.add(gg.Function("step", phase="decode")), module) as b:
        for name, shape in shapes.items():
            b.output(f"{name}.twice", b.add(x := b.input(name, S, shape), x))
        kept = b.state("kept", F, state)
        b.set_state(kept, b.negate(kept))
    return module


def forms(seed: int) -> dict[str, tuple[gg.Dim, ...]]:
    rng = np.random.default_rng(seed)
    sizes: list[gg.Dim] = [gg.symbol("B"), gg.symbol("Q"), 3, 1, gg.symbol("S") + 1]
    names = ("tokens", "positions", "lengths", "seq_ids", "ancestors", "adapter_ids")
    return {
        name: tuple(sizes[at] for at in rng.integers(0, len(sizes), rng.integers(0, 4)))
        for name in names
    }


@pytest.mark.parametrize("seed", range(30))
def test_names_alone_promise_nothing(seed: int):
    given = forms(seed)
    state = forms(seed + 100)["tokens"]
    module = named(given, state)
    workload = workload_for(module, [])
    assert workload.calls
    for call in workload.calls:
        for name, shape in given.items():
            assert call.inputs[name].ndim == len(shape)


def test_sizes_that_a_script_does_not_know_are_no_language_model():
    plain = {"tokens": (B, gg.symbol("S")), "positions": (B, gg.symbol("S"))}
    plain |= {"lengths": (B,), "seq_ids": (B,)}
    cache = (gg.symbol("R"), gg.symbol("M"), 2, 4)
    assert is_language_model(named(plain, cache))
    assert not is_language_model(named(plain, (B, 16, 2, 4)))
    assert not is_language_model(named({**plain, "lengths": (B, 1)}, cache))


def test_programs_of_other_sizes_are_called_with_theirs():
    module = gg.Module("sizes")
    for number, rows in enumerate((1, 4)):
        function = gg.Function(f"main{number}", phase="main", dims={"B": rows})
        with gg.Builder(module.add(function), module) as b:
            x, at = b.input("x", F, (B, 3)), b.input("at", S, (B,))
            b.output("y", b.add(x, x), gg.tensor(F, (B, 3)))
            b.output("z", b.add(at, at), gg.tensor(S, (B,)))
    shapes = {call.inputs["x"].shape for call in make_workload(module).calls}
    assert shapes == {(1, 3), (4, 3)}
