"""Every ATen op that is read computes what torch computes, element types included."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from graphgen.ir import Function, Value, tensor
from graphgen.lowering.aten.call import ATEN
from graphgen.lowering.aten.complex_value import COMPLEX
from graphgen.lowering.aten.dtypes import TORCH, dtype_of, promote, result_type
from graphgen.lowering.aten.nodes import op_name
from graphgen.lowering.aten.program import array_of, decomposed, family_of, read_exported
from tests.oracles.aten_calls import FAMILIES, Run, Tensors, tensors

CASES = [(family, name) for family, calls in FAMILIES.items() for name in calls]


@pytest.fixture(autouse=True)
def nothing_uninitialised() -> Iterator[None]:
    """Fill what torch leaves uninitialised with NaN or the largest integer."""
    assert getattr(torch.utils.deterministic, "fill_uninitialized_memory")  # noqa: B009
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


class Calls(nn.Module):
    """All calls of a family in one program: exporting one takes as long as exporting many."""

    def __init__(self, calls: Mapping[str, Run]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, t: Tensors) -> list[list[Tensor]]:
        return [flat(call(t)) for call in self.calls.values()]


def flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


@cache
def exported(family: str) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.export.export(Calls(FAMILIES[family]), (tensors(),), strict=False)


@cache
def results(family: str) -> Mapping[str, Any]:
    given = tensors()
    module = read_exported(exported(family), family).module
    inputs = {f"t_{name}": array_of(value) for name, value in given.items()}
    needed = {value.name for value in module.function("main").args}
    return module.evaluate({name: array for name, array in inputs.items() if name in needed})


@pytest.mark.parametrize(("family", "name"), CASES)
def test_it_computes_what_torch_does(family: str, name: str):
    index = list(FAMILIES[family]).index(name)
    wanted = flat(FAMILIES[family][name](tensors()))
    for place, result in enumerate(wanted):
        found = results(family)[f"{index}.{place}"]
        expected = array_of(result)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        if not result.dtype.is_floating_point:
            np.testing.assert_array_equal(found, expected)
            continue
        # One unit in the last place of what the result is rounded to, or a few of f32.
        near = {torch.bfloat16: 1e-2, torch.float16: 1e-3, torch.float32: 2e-6}
        rtol = near.get(result.dtype, 1e-12)
        wide = [x.astype(np.float64) for x in (found, expected)]
        np.testing.assert_allclose(*wide, rtol=rtol, atol=rtol)


def test_every_rule_has_a_case_of_its_family():
    covered = {(family, name.split(" ")[0]) for family, name in CASES}
    real = {(family_of(op), op) for op in ATEN}
    assert covered == real | {("complex numbers", op) for op in COMPLEX}


def test_the_guide_names_them():
    guide = Path(__file__).resolve().parents[3] / "docs" / "importing.md"
    rows = re.findall(r"^\| ([a-z ]+) \| (`_.*|`[a-z].*) \|$", guide.read_text(), re.MULTILINE)
    known = {
        family: sorted({op.rpartition(".")[0] for op in ATEN if family_of(op) == family})
        for family in FAMILIES
    }
    known["complex numbers"] = sorted({op.partition(".")[0] for op in COMPLEX})
    assert {family: re.findall(r"`([\w.]+)`", names) for family, names in rows} == known


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.one_in(2)
def test_the_ops_arrive_whole(family: str):
    """What torch takes apart before it is read would not have tried the rule."""
    wanted = {name.split(" ")[0] for name in FAMILIES[family]}
    called = {op_name(node) for node in decomposed(exported(family)).graph.nodes}
    assert wanted - called == set()


# ---- types ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", TORCH)
def test_types_are_promoted_as_in_torch(a: str):
    for b in TORCH:
        first, second = getattr(torch, a), getattr(torch, b)
        try:
            wanted = dtype_of(torch.promote_types(first, second))
        except RuntimeError:
            continue
        assert promote(dtype_of(first), dtype_of(second)) is wanted, (a, b)


SIDES: tuple[Any, ...] = (
    *(torch.zeros(shape, dtype=getattr(torch, name)) for name in TORCH for shape in [(), (2,)]),
    *(True, 2, 2.5),
)


def like(side: Any) -> Any:
    """The side as a value of ours."""
    if not isinstance(side, Tensor):
        return side
    return Function("f").block.add_arg(tensor(dtype_of(side.dtype), side.shape), "x")


@pytest.mark.parametrize(
    "a", SIDES, ids=lambda s: f"{s.dtype}{s.dim()}" if hasattr(s, "dim") else s
)
def test_what_two_operands_are_computed_in(a: Any):
    for b in SIDES:
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            continue
        try:
            wanted = dtype_of(torch.result_type(a, b))
        except RuntimeError:
            continue
        sides: list[Value] = [like(a), like(b)]
        assert result_type(sides) is wanted, (a, b)
