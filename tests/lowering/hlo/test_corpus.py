"""Modules that AWS's own tools wrote: read, verified, printed, written again, and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from graphgen.eval import Array, evaluate_ranks
from graphgen.eval.evaluate import rank_index
from graphgen.ir import RANK, Function, Module
from graphgen.lowering.check.check import check
from graphgen.lowering.check.predicates import Request
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.legalize.legalize import Legalize
from graphgen.text import parse, print_module
from tests.oracles import xla_hlo
from tests.oracles.hlo_corpus import modules
from tests.oracles.sample import any_array

# What is not modelled and kept as it is, and of how many modules of the corpus that is true. AWS's
# own tests expect the compiler to refuse collectives that multiply.
OPAQUE = {
    "all-reduce: kind multiply is not modelled (1)": 1,
    "reduce: kind multiply is not modelled (1)": 3,
    "reduce-scatter: kind multiply is not modelled (1)": 1,
}
# Modules whose results XLA and NumPy may well differ in, by the name of the file.
EDGE = "floor of a quotient that is an integer: XLA multiplies by the reciprocal, and is below it"
UNRUN = {"56297c95fb3c.pb": EDGE, "fa7cec33e5a3.pb": EDGE}


def test_every_module_is_read_printed_and_written_again(hlo_corpus: Path):
    opaque: Counter[str] = Counter()
    for name, data in modules(hlo_corpus).items():
        module = read_hlo(data, name)
        if "opaque" in module.meta:
            opaque[module.meta["opaque"]] += 1
        verify(module)
        text = print_module(module)
        assert print_module(parse(text)) == text, name
        (function,) = module.programs()
        again = read_hlo(emit_hlo(module, function), name)
        # Only the first reading has something to leave out.
        again.meta = module.meta
        assert print_module(again) == text, name
    assert opaque <= Counter(OPAQUE)


def inputs(function: Function, ranks: int) -> list[dict[str, Array]]:
    """Random arrays, others on each rank; integers small enough to be indices."""
    random = np.random.default_rng(7)
    return [
        {value.name or "": any_array(random, value.type) for value in function.args}
        for _ in range(ranks)
    ]


def close(ours: Array, theirs: Array) -> bool:
    """Equal but for the order of sums, and what a function rounds in the last place."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    if ours.dtype.kind in "iub":
        return bool(np.array_equal(ours, theirs))
    one, other = ours.astype(np.float64), theirs.astype(np.float64)
    # float32 by the size of the array's elements, since terms of a sum may cancel.
    finite = np.abs(one[np.isfinite(one)])
    scale = float(finite.max(initial=1.0))
    tolerance = {4: 2e-5, 2: 2e-2, 1: 0.3}.get(ours.dtype.itemsize, 1e-9)
    return bool(np.allclose(one, other, tolerance, tolerance * scale, equal_nan=True))


def disagreements(names: Sequence[str], corpus: dict[str, bytes]) -> tuple[int, list[str]]:
    """How many modules were run, and those on which NumPy and XLA do not agree."""
    ran = 0
    wrong: list[str] = []
    for name in names:
        module = read_hlo(corpus[name], name)
        if "opaque" in module.meta or name in UNRUN:
            continue
        (function,) = module.programs()
        given = inputs(function, module.ranks)
        ours = evaluate_ranks(function, given)
        theirs = xla_hlo.run(corpus[name], [list(one.values()) for one in given], module.ranks)
        ran += 1
        pairs = [
            (mine, other)
            for one, others in zip(ours, theirs, strict=True)
            for mine, other in zip(one.values(), others, strict=True)
        ]
        if not all(close(mine, other) for mine, other in pairs):
            wrong.append(name)
    return ran, wrong


def test_a_sample_of_the_modules_gives_what_xla_gives(hlo_corpus: Path):
    corpus = modules(hlo_corpus)
    ran, wrong = disagreements(list(corpus)[::15], corpus)
    assert wrong == []
    assert ran > 0


@pytest.mark.slow
def test_the_modules_give_what_xla_gives(hlo_corpus: Path):
    corpus = modules(hlo_corpus)
    ran, wrong = disagreements(list(corpus), corpus)
    assert wrong == []
    assert ran >= len(corpus) - sum(OPAQUE.values()) - len(UNRUN)


# What AWS's own tests expect the compiler to refuse, or skip: products over ranks, f8e4m3fn.
REFUSED = {
    ("ar-mul", "all-reduce"): 1,
    ("rs-mul", "reduce-scatter"): 1,
    ("a2a-dim0", "all-to-all"): 1,
    ("a2a-2rank-lnc2", "all-to-all"): 1,
    ("dtype", "f8e4m3fn"): 11,
}
# Of those, what no rewrite does away with.
LEFT = {key for key in REFUSED if not key[0].startswith("a2a")}


def errors(module: Module) -> Counter[tuple[str, str]]:
    """What is predicted to be refused, by rule and opcode, or element type."""
    found = check(module, Request("trn2", 2, sdk_next=True))
    wrong = [item for item in found if item.severity == "error"]
    return Counter((i.rule, "f8e4m3fn" if "f8e4m3fn" in i.what else i.op) for i in wrong)


def test_every_module_is_checked(hlo_corpus: Path):
    refused: Counter[tuple[str, str]] = Counter()
    for name, data in modules(hlo_corpus).items():
        refused += errors(read_hlo(data, name))
    assert refused <= Counter(REFUSED)


def legalized(names: Sequence[str], corpus: dict[str, bytes]) -> list[str]:
    """Modules that are refused after ``legalize``, or give other numbers than before."""
    wrong: list[str] = []
    for name in names:
        module = read_hlo(corpus[name], name)
        legal = read_hlo(corpus[name], name)
        run_pipeline(legal, [Legalize(target="trn2")])
        wrong += [name] * (not errors(legal).keys() <= LEFT)
        if "opaque" in module.meta:
            continue
        (before,), (after,) = module.programs(), legal.programs()
        given = inputs(before, module.ranks)
        given = [{**one, RANK: rank_index(rank)} for rank, one in enumerate(given)]
        pairs = zip(evaluate_ranks(before, given), evaluate_ranks(after, given), strict=True)
        same = [close(new[key], old[key]) for old, new in pairs for key in old]
        wrong += [name] * (not all(same))
    return wrong


def test_a_sample_of_the_modules_keeps_its_numbers_when_it_is_legalized(hlo_corpus: Path):
    corpus = modules(hlo_corpus)
    assert legalized(list(corpus)[::20], corpus) == []


@pytest.mark.slow
def test_the_modules_keep_their_numbers_when_they_are_legalized(hlo_corpus: Path):
    corpus = modules(hlo_corpus)
    assert legalized(list(corpus), corpus) == []
