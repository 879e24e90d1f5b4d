"""Projections whose weights have a scale a group are fused as they are stored."""

from __future__ import annotations

import pytest

from graphgen.ir import Module
from graphgen.passes.core import parse_pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.passes.canonical.test_fuse_projections import RETURN, dot, fused, program, reasons

TYPES = {"q": "s4[6,4]", "k": "s4[3,4]", "qs": "f32[6,2]", "ks": "f32[3,2]"}


def widened(name: str, rows: int, block: str = "1,2", facts: str = "") -> str:
    """The weight ``name`` as w_name, with its scales and, with ``facts``, zero points."""
    operands = f"%{name}, %{name}s{facts}"
    return f"%w_{name} = dequantize({operands}) block=[{block}] dtype=f32 : f32[{rows},4]"


def pair(types: dict[str, str], q: str, k: str) -> Module:
    lines = [q, dot("a", "w_q", 6), k, dot("b", "w_k", 3), *RETURN[:2]]
    return program({**TYPES, **types}, *lines)


def test_numbers_scales_and_zero_points_are_joined_each():
    points = {"qz": "u8[6,2]", "kz": "u8[3,2]"}
    module = pair(points, widened("q", 6, facts=", %qz"), widened("k", 3, facts=", %kz"))
    lines, _ = fused(module)
    made = [line.split(" = ")[1].partition("(")[0] for line in lines if " = " in line]
    assert made == [
        *("concatenate", "concatenate", "concatenate", "dequantize", "dot_general"),
        *("slice", "slice"),
    ]
    (wide,) = [line for line in lines if "dequantize" in line]
    assert "block=[1,2] dtype=f32 : f32[9,4]" in wide


def test_a_scale_of_several_outputs_is_repeated_for_each():
    types = {"qs": "f32[2,2]", "ks": "f32[1,2]"}
    module = pair(types, widened("q", 6, "3,2"), widened("k", 3, "3,2"))
    verdicts = validate(module, parse_pipeline("fuse-projections"), make_workload(module, seed=1))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    lines, _ = fused(module)
    assert sum("dequantize" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("types", "block"),
    [
        ({"k": "s8[3,4]"}, "1,2"),
        ({"ks": "f32[3,1]"}, "1,4"),
        ({"ks": "f16[3,2]"}, "1,2"),
    ],
)
def test_weights_of_another_form_are_not_joined(types: dict[str, str], block: str):
    lines, journal = fused(pair(types, widened("q", 6), widened("k", 3, block)))
    assert sum("dequantize" in line for line in lines) == 2
    assert set(reasons(journal).values()) == {
        "1 product of this value with a weight, and 2 are worth fusing"
    }


def test_scales_that_two_weights_share_are_not_joined():
    module = program(
        {"q": "s4[3,4]", "k": "s4[3,4]", "qs": "f32[3,2]"},
        widened("q", 3),
        dot("a", "w_q", 3),
        "%w_k = dequantize(%k, %qs) block=[1,2] dtype=f32 : f32[3,4]",
        dot("b", "w_k", 3),
        *RETURN[:2],
    )
    lines, journal = fused(module)
    assert sum("dot_general" in line for line in lines) == 2
    assert "would be kept twice" in next(iter(reasons(journal).values()))
