"""Every command of the inspector on modules that AWS's own tools wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from graphgen.analysis.overview import overview
from graphgen.cli.inspect_files import program_facts
from graphgen.lowering.explorer import add_module
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo.subcomputations import opcodes_inside
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.ops import verify
from graphgen.passes.inspect.normalize import normalized
from graphgen.passes.inspect.slice import ops_below, sliced
from graphgen.pattern import Known, find, parse_pattern
from graphgen.report import explore_page
from graphgen.report.diff import diff_functions
from graphgen.report.explore_data import ExploreData
from graphgen.report.model_explorer import model_explorer
from graphgen.report.program_text import module_text, program_text
from graphgen.text import print_module
from tests.oracles.hlo_corpus import modules


def look(name: str, data: bytes) -> None:
    """One module, through every command."""
    module = read_hlo(data, name)
    (function,) = module.programs()
    seen = overview(module, function)
    assert module_text(module)
    assert program_text(seen, opcodes_inside(seen))
    facts = program_facts(seen)
    held = ExploreData()
    add_module(held, module, [seen], name)
    assert explore_page(name, held.head(), held.blocks)
    assert json.dumps([facts, model_explorer(module, [seen])])
    # Its HLO text is the same module.
    other = read_hlo(parse_hlo_text(print_hlo_text(data)), name)
    found = diff_functions((module, other), function, other.programs()[0])
    assert found.same, (name, found.interface, found.changes)
    one, two = normalized(module), normalized(other)
    verify(one)
    assert print_module(one) == print_module(two), name
    matches = list(find(seen.function, parse_pattern("_ -> return"), Known({}, seen.layer_of)))
    handed = [value for _, value in function.outputs if value.op is not None]
    assert len(matches) == len(handed)
    for index, (output, value) in enumerate(function.outputs):
        if value.op is not None:
            part = sliced(module, function, ops_below(function, str(index)), output)
            verify(part)
            assert emit_hlo(part, part.programs()[0])


def every(corpus: dict[str, bytes], names: Iterable[str]) -> int:
    """Look at these; how many they are."""
    count = 0
    for name in names:
        look(name, corpus[name])
        count += 1
    return count


def test_a_sample_of_the_modules(hlo_corpus: Path):
    corpus = modules(hlo_corpus)
    assert every(corpus, list(corpus)[::10]) > 0


@pytest.mark.slow
def test_all_modules(hlo_corpus: Path):
    corpus = modules(hlo_corpus)
    assert every(corpus, corpus) == len(corpus)
