"""Ladders of buckets: complete, and as transformers-neuronx and NxD Inference name them."""

from __future__ import annotations

import pytest

from graphgen.config.bucket_ladder import powers
from graphgen.errors import GraphgenError
from graphgen.passes.core import parse_pipeline
from graphgen.passes.programs.bucket_sizes import context_sizes, token_sizes
from graphgen.passes.programs.specialize import Specialize

Ladders = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def ladders(options: str) -> Ladders:
    (item,) = parse_pipeline(f"specialize{{{options}}}")
    assert isinstance(item, Specialize)
    # What is printed is read back as the same pass.
    assert parse_pipeline(str(item)) == [item]
    return item.ladders()


def test_no_power_of_two_is_left_out():
    # NxD Inference's generate_buckets goes from 4096 to 10240, and gives 1449 a 1024 but not 1448.
    assert powers(10240) == (128, 256, 512, 1024, 2048, 4096, 8192, 10240)
    assert powers(1448) == (128, 256, 512, 1024, 1448)
    assert powers(181) == (128, 181)


@pytest.mark.parametrize(
    ("n_positions", "expected"),
    [
        (1000, (128, 256, 512, 1000)),
        (128, (128,)),
        (64, (64,)),
        ((512, 128, 512), (128, 512)),
        ((1000,), (1000,)),
    ],
)
def test_n_positions(n_positions: int | tuple[int, ...], expected: tuple[int, ...]):
    assert token_sizes(n_positions) == expected


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (None, (64, 128, 256, 500)),
        (300, (300,)),
        (0, ()),
        ((256, 64), (64, 256)),
    ],
)
def test_context_length_estimate(estimate: int | tuple[int, ...] | None, expected: tuple[int, ...]):
    assert context_sizes(estimate, (128, 256, 512, 1000)) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", ((1,), (128,), (128,))),
        ("batch=[4,1,4],context=[8],tokens=[16,8]", ((1, 4), (8,), (8, 16))),
        ("max_batch_size=6", ((1, 2, 4, 6), (128,), (128,))),
        ("max_context_length=300,seq_len=600", ((1,), (128, 256, 300), (128, 256, 512, 600))),
        ("n_positions=1000", ((1,), (64, 128, 256, 500), (128, 256, 512, 1000))),
        ("n_positions=[1000]", ((1,), (500,), (1000,))),
        ("n_positions=256,context_length_estimate=96", ((1,), (96,), (128, 256))),
        ("n_positions=256,context_length_estimate=[96,32]", ((1,), (32, 96), (128, 256))),
        ("n_positions=256,context_length_estimate=0", ((1,), (), (128, 256))),
        ("n_positions=256,context=[32]", ((1,), (32,), (128, 256))),
    ],
)
def test_options(options: str, expected: Ladders):
    assert ladders(options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("tokens=[8],n_positions=16", "tokens and n_positions say the same sizes"),
        ("seq_len=8,n_positions=16", "seq_len and n_positions say the same sizes"),
        ("batch=[2],max_batch_size=4", "batch and max_batch_size say the same sizes"),
        ("n_positions=[128,0]", "tokens=[0, 128] needs sizes above 0"),
        ("n_positions=[]", "tokens=[] needs sizes above 0"),
        ("context=[]", "context=[] needs sizes above 0"),
        (
            "n_positions=many",
            "n_positions is 'many', expected an integer, or a list",
        ),
    ],
)
def test_contradictions_are_refused(options: str, message: str):
    with pytest.raises(
        GraphgenError, match=message.replace("[", r"\[").replace("]", r"\]")
    ) as caught:
        ladders(options)
    assert caught.value.code == "GG0302"
