"""Every rule alone: where it fires, the result means what it did before, on random numbers."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

import passes
from graphgen.eval import MEANING, Array, evaluate
from graphgen.ir import Function
from graphgen.ops import verify
from graphgen.text import parse
from passes.core import Rewriter
from passes.core.journal import Journal
from passes.core.rule import Rule
from tests.oracles.sample import any_array


def rules() -> dict[str, Rule]:
    """Every rule that stands in a module; those with options are made by their pass."""
    found: dict[str, Rule] = {}
    for module in pkgutil.walk_packages(passes.__path__, "passes."):
        names = vars(importlib.import_module(module.name)).values()
        found |= {item.name: item for item in names if isinstance(item, Rule)}
    return found


# For each rule programs in which it fires.
SAMPLES: dict[str, list[str]] = {
    "identity": [
        "arg %x : f32[2,3]\n%a = reshape(%x) shape=[2,3] : f32[2,3]",
        "arg %x : f32[2,3]\n%a = transpose(%x) permutation=[0,1] : f32[2,3]",
        "arg %x : bf16[2]\n%a = convert(%x) dtype=bf16 : bf16[2]",
        "arg %x : f32[2,3]\n%a = broadcast_in_dim(%x) shape=[2,3] dimensions=[0,1] : f32[2,3]",
        "arg %x : f32[3]\n%a = slice(%x) start_indices=[0] limit_indices=[3] strides=[1] : f32[3]",
        "arg %x : f32[3]\narg %v : f32[]\n%a = pad(%x, %v) low=[0] high=[0] : f32[3]",
    ],
    "reshape-of-reshape": [
        "arg %x : f32[2,6]\n%r = reshape(%x) shape=[12] : f32[12]\n"
        "%a = reshape(%r) shape=[3,4] : f32[3,4]"
    ],
    "transpose-of-transpose": [
        "arg %x : f32[2,3,4]\n%t = transpose(%x) permutation=[1,2,0] : f32[3,4,2]\n"
        "%a = transpose(%t) permutation=[2,1,0] : f32[2,4,3]"
    ],
    "transpose-of-units": [
        "arg %x : f32[1,3]\n%a = transpose(%x) permutation=[1,0] : f32[3,1]",
    ],
    "concatenate-of-one": ["arg %x : f32[3]\n%a = concatenate(%x) dimension=0 : f32[3]"],
    "constant-on-the-right": [
        "arg %x : f32[]\n%c = constant() value=f32[](3.0) : f32[]\n%a = add(%c, %x) : f32[]",
        "arg %x : s32[]\n%c = constant() value=s32[](3) : s32[]\n%a = multiply(%c, %x) : s32[]",
    ],
    "broadcast-of-broadcast": [
        "arg %x : f32[2]\n%b = broadcast_in_dim(%x) shape=[3,2] dimensions=[1] : f32[3,2]\n"
        "%a = broadcast_in_dim(%b) shape=[2,4,3] dimensions=[2,0] : f32[2,4,3]"
    ],
    "broadcast-of-reshape": [
        "arg %x : f32[2]\n%r = reshape(%x) shape=[1,2] : f32[1,2]\n"
        "%a = broadcast_in_dim(%r) shape=[3,2] dimensions=[0,1] : f32[3,2]"
    ],
    "moved-splat": [
        "arg %x : f32[]\n%b = broadcast_in_dim(%x) shape=[2,3] dimensions=[] : f32[2,3]\n"
        "%a = reshape(%b) shape=[6] : f32[6]",
        "arg %x : f32[]\n%b = broadcast_in_dim(%x) shape=[2,3] dimensions=[] : f32[2,3]\n"
        "%a = transpose(%b) permutation=[1,0] : f32[3,2]",
    ],
    "slice-of-slice": [
        "arg %x : f32[9]\n"
        "%s = slice(%x) start_indices=[1] limit_indices=[9] strides=[2] : f32[4]\n"
        "%a = slice(%s) start_indices=[1] limit_indices=[4] strides=[2] : f32[2]"
    ],
    "slice-of-broadcast": [
        "arg %x : f32[4]\n%b = broadcast_in_dim(%x) shape=[3,4] dimensions=[1] : f32[3,4]\n"
        "%a = slice(%b) start_indices=[1,0] limit_indices=[3,4] strides=[1,1] : f32[2,4]"
    ],
    "concatenate-of-slices": [
        "arg %x : f32[6]\n"
        "%s = slice(%x) start_indices=[0] limit_indices=[2] strides=[1] : f32[2]\n"
        "%t = slice(%x) start_indices=[2] limit_indices=[5] strides=[1] : f32[3]\n"
        "%a = concatenate(%s, %t) dimension=0 : f32[5]"
    ],
    "convert-of-convert": [
        "arg %x : bf16[5]\n%w = convert(%x) dtype=f32 : f32[5]\n"
        "%a = convert(%w) dtype=bf16 : bf16[5]"
    ],
    "wide-dot": [
        "arg %x : bf16[2,3]\narg %w : bf16[4,3]\n%a = dot_general(%x, %w) "
        "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 : bf16[2,4]"
    ],
}


def program(sample: str) -> Function:
    lines = "".join(f"  {line}\n" for line in sample.splitlines())
    text = f"module @m level=sharded {{\n}}\n\nfunc @f {{\n{lines}  return y = %a\n}}\n"
    return parse(text).function("f")


def inputs(function: Function, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {value.name or "": any_array(random, value.type) for value in function.args}


def test_every_rule_has_a_sample():
    assert set(rules()) == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_rule_keeps_the_meaning(name: str):
    rule = rules()[name]
    roots: set[str] = set()
    for sample in SAMPLES[name]:
        before, after = program(sample), program(sample)
        journal = Journal()
        Rewriter("test", journal).apply_rules(after, [rule])
        assert [item.rule for item in journal.applications], sample
        roots |= {item.root.split(" = ")[1].split("(")[0] for item in journal.applications}
        for seed in range(3):
            given = inputs(before, seed)
            wanted, found = (evaluate(f, given, MEANING)["y"] for f in (before, after))
            assert found.shape == wanted.shape
            np.testing.assert_allclose(
                found.astype(np.float64), wanted.astype(np.float64), rtol=1e-9, atol=1e-9
            )
        module = parse("module @m level=sharded {\n}\n\nfunc @g {\n  arg %x : f32[]\n}\n")
        module.add(after)
        verify(module)
    # Of a rule with several roots each is tried, where they are rewritten differently.
    assert name not in ("identity", "moved-splat") or roots == set(rule.roots)
