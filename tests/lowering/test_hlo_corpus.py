"""Modules that AWS's own tools wrote: read, verified, printed, written again, and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ops import verify
from graphgen.text import parse, print_module
from lowering.hlo import emit_hlo, read_hlo
from tests.oracles.hlo_corpus import modules


def read(name: str, data: bytes) -> Module | GraphgenError:
    """The module, or why it is not modelled."""
    try:
        return read_hlo(data, name)
    except GraphgenError as error:
        return error


def test_every_module_is_read_printed_and_written_again(
    hlo_corpus: Path, golden: Callable[[str, str], None]
):
    excluded: Counter[str] = Counter()
    for name, data in modules(hlo_corpus).items():
        module = read(name, data)
        if isinstance(module, GraphgenError):
            assert (module.code, name in module.where) == ("GG0103", True), f"{name}: {module}"
            excluded[module.what] += 1
            continue
        verify(module)
        text = print_module(module)
        assert print_module(parse(text)) == text, name
        (function,) = module.programs()
        again = read_hlo(emit_hlo(module, function), name)
        # Only the first reading has something to leave out.
        again.meta = module.meta
        assert print_module(again) == text, name
    lines = [f"{count:4} {reason}" for reason, count in sorted(excluded.items())]
    head = f"{len(modules(hlo_corpus))} modules, {sum(excluded.values())} not modelled"
    golden("lowering/hlo_corpus.txt", "\n".join([head, *lines]))


@pytest.mark.parametrize("code", ["dot", "scatter", "all-reduce", "dynamic-update-slice"])
def test_the_corpus_holds_what_it_is_here_for(hlo_corpus: Path, code: str):
    assert any(code.encode() in data for data in modules(hlo_corpus).values())
