"""Damaged files of every form: an error with a code or a correct reading, soon and small."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import CODES, GraphgenError
from graphgen.ir import Module, dtype
from graphgen.lowering.hlo import emit_hlo, read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.open import Source, open_source
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module
from tests.lowering.hlo.test_read import of_jaxlib
from tests.lowering.hlo.test_text import ATTRIBUTES, NEURON
from tests.oracles import xla_hlo
from tests.oracles.hlo_corpus import modules
from tests.oracles.mutations import damaged_bytes, damaged_text
from tests.oracles.op_samples import BY_OP, program

GIB = 1 << 20  # in the kilobytes that getrusage counts
SECONDS = 5.0
# By form: what protobufs, texts and their damaged copies are given as.
FORMS = ("proto", "HLO text", "StableHLO", "IR text")


def _ours() -> list[Module]:
    """Modules of single ops, and models: logical, lowered for the CPU, for Neuron on two ranks."""
    names = ("dot_general", "gather", "reduce", "constant", "convert", "pad", "scatter", "compare")
    found = [program(BY_OP[name][:6]) for name in names]
    for name, target, tp in (("llama-3.1-8b", "cpu", 1), ("gpt2", "trn2", 2)):
        module = build(known_shape(name), dtype("bf16"), mini=True)
        buckets = CompileConfig(batch=(1,), context=(8,), tokens=(8,))
        run_pipeline(module, default(replace(buckets, tp=tp, target=target)))
        found.append(module)
    return found


@cache
def sources() -> dict[str, list[bytes]]:
    """Whole files of each form; those of the corpus too, where there is one."""
    found: dict[str, list[bytes]] = {form: [] for form in FORMS}
    for module in _ours():
        function = next(iter(module.programs()), None) or module.function("f")
        proto = emit_hlo(module, function)
        found["proto"] += [proto]
        found["StableHLO"].append(emit_stablehlo(module, function).encode())
        found["IR text"].append(print_module(module).encode())
        if "f" in module.functions:
            found["proto"].append(of_jaxlib(module, function))
    logical = build(known_shape("qwen3-8b"), dtype("bf16"), mini=True)
    found["IR text"].append(print_module(logical).encode())
    found["proto"] += [xla_hlo.from_text(ATTRIBUTES), parse_hlo_text(NEURON)]
    folder = os.environ.get("GRAPHGEN_HLO_CORPUS")
    if folder:
        found["proto"] += list(modules(Path(folder)).values())[::40]
    found["HLO text"] = [print_hlo_text(proto).encode() for proto in found["proto"]]
    return found


def damaged(form: str, seed: int) -> bytes:
    """A damaged copy of one of the files."""
    files = sources()[form]
    data = files[seed // len(FORMS) % len(files)]
    if form == "proto":
        return damaged_bytes(data, seed)
    return damaged_text(data.decode(), seed).encode()


def read(data: bytes, seed: int) -> str:
    """``read``, or the code of the error; what is read is well formed and prints as it parses."""
    try:
        module = open_source(Source(f"damaged {seed}", data))
    except GraphgenError as error:
        return error.code if error.what else "no message"
    verify(module)
    text = print_module(module)
    assert print_module(parse(text)) == text
    return "read"


def check(count: int) -> None:
    sources()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes: Counter[tuple[str, str]] = Counter()
    for seed in range(count):
        form = FORMS[seed % len(FORMS)]
        data, start = damaged(form, seed), time.process_time()
        outcomes[form, read(data, seed)] += 1
        assert time.process_time() - start < SECONDS, f"{form}, seed {seed}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GIB
    assert outcomes.total() == count
    # Some damage is seen in each form, and some makes no difference.
    assert {form for form, code in outcomes if code in CODES} == set(FORMS)
    assert {code for _, code in outcomes} <= {"read", *CODES}
    assert any(code == "read" for _, code in outcomes)


def test_some_damaged_files():
    check(200)


@pytest.mark.slow
def test_two_thousand_damaged_files():
    check(2000)


NO_PROTOBUFS = [b"", b"\x0a", b"\xff" * 40, b"\x0a\x02\x08", b"\x1a" + b"\x80" * 10]


@pytest.mark.parametrize("data", NO_PROTOBUFS)
def test_what_is_no_protobuf(data: bytes):
    with pytest.raises(GraphgenError) as caught:
        read_hlo(data, "x.pb")
    assert caught.value.code == "GG0801"
