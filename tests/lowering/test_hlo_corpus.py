"""Modules that AWS's own tools wrote: read, verified, printed, written again, and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from graphgen.eval import Array, evaluate_ranks
from graphgen.ir import Function
from graphgen.ops import verify
from graphgen.text import parse, print_module
from lowering.hlo import emit_hlo, read_hlo
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
