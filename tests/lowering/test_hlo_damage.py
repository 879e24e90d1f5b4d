"""Damaged HLO: an error with a code or a correct reading, soon, and without much memory."""

from __future__ import annotations

import resource
import time

import pytest

from graphgen.errors import GraphgenError
from graphgen.ops import verify
from lowering.hlo import emit_hlo, parse_hlo_text, print_hlo_text, read_hlo
from lowering.stablehlo import emit_stablehlo
from tests.lowering.test_hlo_read import of_jaxlib
from tests.lowering.test_hlo_text import ATTRIBUTES, NEURON
from tests.oracles import xla_hlo
from tests.oracles.mutations import damaged_bytes, damaged_text
from tests.oracles.op_samples import BY_OP, program

GIB = 1 << 20  # in the kilobytes that getrusage counts


def sources() -> list[bytes]:
    """Modules of every op, as we and as jaxlib write them, and one with what the IR has not."""
    out = [xla_hlo.from_text(ATTRIBUTES), parse_hlo_text(NEURON)]
    for name in ("dot_general", "gather", "reduce", "constant", "convert", "pad", "scatter"):
        module = program(BY_OP[name][:6])
        function = module.function("f")
        assert emit_stablehlo(module, function)
        out += [emit_hlo(module, function), of_jaxlib(module, function)]
    return out


def read_damaged(count: int) -> tuple[int, int, float]:
    """How many were refused and how many read, and the seconds of the slowest."""
    refused, good, slowest = 0, 0, 0.0
    protos = sources()
    texts = [print_hlo_text(proto) for proto in protos]
    for seed in range(count):
        proto, text = protos[seed % len(protos)], texts[seed % len(texts)]
        start = time.process_time()
        try:
            if seed % 2:
                module = read_hlo(damaged_bytes(proto, seed))
            else:
                module = read_hlo(parse_hlo_text(damaged_text(text, seed)))
            verify(module)
            good += 1
        except GraphgenError:
            refused += 1
        slowest = max(slowest, time.process_time() - start)
    return refused, good, slowest


def check(count: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused, good, slowest = read_damaged(count)
    assert refused + good == count
    assert refused > count // 4
    assert good > 0
    assert slowest < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GIB


def test_four_hundred_damaged_modules():
    check(400)


@pytest.mark.slow
def test_two_thousand_damaged_modules():
    check(2000)


NO_PROTOBUFS = [b"", b"\x0a", b"\xff" * 40, b"\x0a\x02\x08", b"\x1a" + b"\x80" * 10]


@pytest.mark.parametrize("data", NO_PROTOBUFS)
def test_what_is_no_protobuf(data: bytes):
    with pytest.raises(GraphgenError) as caught:
        read_hlo(data, "x.pb")
    assert caught.value.code == "GG0801"
