"""Files and pipelines written before the redesign are still read.

``data/earlier_graphs`` holds modules that revision 9454fac printed, from logical to lowered for a
target, and every pass and named pipeline of it with all of its options.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.registry import parse_pipeline
from graphgen.passes.pipelines import parse as parse_named
from graphgen.text import parse, print_module

FOLDER = Path(__file__).parents[2] / "data" / "earlier_graphs"
FILES = sorted(FOLDER.glob("*.gg"))
PIPELINES = (FOLDER / "pipelines.txt").read_text().splitlines()


# Lengths said which slots a mask reads; an op of their own makes positions of them now.
_MASK = re.compile(
    r"  (%\w+) = attention_mask\((%\w+), (%\w+)\) attended=(\w+) : pred\[(\w+),\w+,\w+\](.*)"
)


def _in_two(mask: re.Match[str]) -> str:
    name, positions, lengths, attended, rows, where = mask.groups()
    keys = f"  %key_positions = key_positions({lengths}) attended={attended}"
    result = f"pred{mask[0].partition(' : pred')[2].removesuffix(where)}"
    return (
        f"{keys} : s32[{rows},{attended}]{where}\n"
        f"  {name} = attention_mask({positions}, %key_positions) : {result}{where}"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_module_is_read_and_printed_as_it_was(path: Path):
    text = path.read_text()
    module = parse(text)
    verify(module)
    assert print_module(module) == _MASK.sub(_in_two, text)


@pytest.mark.parametrize("text", PIPELINES, ids=lambda text: text.partition("{")[0])
def test_every_pass_takes_the_options_it_took(text: str):
    assert parse_pipeline(text)


def test_a_logical_module_is_compiled_by_the_default_pipeline():
    module = parse((FOLDER / "llama.gg").read_text())
    run_pipeline(module, parse_named("default{context=[8],tokens=[8]}"))
    assert [f.name for f in module.programs()] == ["prefill.b1.s8", "decode.b1.c8"]
