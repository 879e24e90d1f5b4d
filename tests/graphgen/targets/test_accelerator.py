"""Figures of the accelerators: a source for each, and chips that are the sum of their cores."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.targets import (
    Accelerator,
    accelerator,
    accelerator_names,
    find_target,
    throughput,
)

GIB = 1 << 30


@pytest.mark.parametrize("name", accelerator_names())
def test_every_figure_has_a_source(name: str):
    found = accelerator(name)
    for key, source in found.sources.items():
        assert source or not getattr(found, key), key
        assert key in Accelerator.__dataclass_fields__


@pytest.mark.parametrize(
    ("name", "lnc", "cores", "memory"),
    [
        ("inf2", 1, 2, 16),
        ("trn1", 1, 2, 16),
        ("trn2", 2, 4, 24),
        ("trn2", 1, 8, 12),
        ("trn3", 2, 4, 36),
    ],
)
def test_a_chip_is_its_cores(name: str, lnc: int, cores: int, memory: int):
    found = accelerator(name, lnc)
    assert (found.lnc, found.cores_per_chip, found.hbm_bytes) == (lnc, cores, memory * GIB)
    one = accelerator(name, 1)
    assert found.flops["bf16"] == lnc * one.flops["bf16"]
    assert found.hbm_bandwidth == lnc * one.hbm_bandwidth


def test_logical_cores_of_two_are_the_default_where_there_are_any():
    assert [accelerator(name).lnc for name in ("inf2", "trn1", "trn2", "trn3")] == [1, 1, 2, 2]


def test_instances_as_the_guides_count_their_cores():
    # "trn2.48xlarge: 64 cores with LNC 2", "trn1.32xlarge: 32", "inf2.48xlarge: 24".
    assert accelerator("trn2").cores("trn2.48xlarge") == 64
    assert accelerator("trn1").cores("trn1.32xlarge") == 32
    assert accelerator("inf2").cores("inf2.48xlarge") == 24


@pytest.mark.parametrize(
    ("name", "lnc", "message"),
    [("trn9", 0, "unknown target 'trn9'"), ("trn1", 2, "trn1 has no logical cores of 2")],
)
def test_what_there_is_not(name: str, lnc: int, message: str):
    with pytest.raises(GraphgenError, match=message) as caught:
        accelerator(name, lnc)
    assert caught.value.code == "GG0302"


@pytest.mark.parametrize(
    ("element", "figure"),
    [("bf16", "bf16"), ("f8e4m3fn", "fp8"), ("f8e5m2", "fp8"), ("s4", "bf16"), ("f32", "f32")],
)
def test_products_have_the_rate_of_their_element_type(element: str, figure: str):
    found = accelerator("trn2")
    assert found.matrix_flops(element) == found.flops[figure]


def test_throughput_is_published_for_accelerators_and_measured_for_the_cpu():
    device = accelerator("trn2")
    rate = throughput(find_target("trn2"), "bf16", 16, 2)
    assert rate.seconds(1000, 0) == pytest.approx(2000 / device.hbm_bandwidth)
    assert rate.seconds(0, 1e9) == pytest.approx(1e9 / device.flops["bf16"])
    wide, narrow = (throughput(find_target("cpu"), f"f{bits}", bits, 4) for bits in (32, 16))
    assert wide.element_s > narrow.element_s
