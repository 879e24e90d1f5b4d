"""Collectives on virtual devices: the ranks get from XLA what the NumPy rules give them."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import COLLECTIVES, evaluate_ranks, numpy_dtype
from graphgen.ir import AttrValue, Function, Module, dtype, tensor
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from tests.lowering.stablehlo.test_ops import accepted
from tests.oracles import xla_hlo
from tests.oracles.structure import structure

GROUPS: dict[str, tuple[tuple[int, ...], ...]] = {
    "all": ((0, 1, 2, 3),),
    "rows": ((0, 1), (2, 3)),
    "columns": ((0, 2), (1, 3)),
    "turned": ((3, 1), (0, 2)),
    "backward": ((3, 2, 1, 0),),
    "alone": ((0,), (1,), (2,), (3,)),
}
PAIRS: dict[str, tuple[tuple[int, ...], ...]] = {
    "ring": ((0, 1), (1, 2), (2, 3), (3, 0)),
    "swap": ((0, 3), (3, 0)),
    "stay": ((0, 0), (2, 2)),
    "none": (),
}
# How each op is used on [4,8], beside its groups.
USES: list[tuple[str, dict[str, AttrValue]]] = [
    *[("all_reduce", {"kind": kind}) for kind in ("add", "maximum", "minimum")],
    *[("all_gather", {"dimension": dim}) for dim in (0, 1)],
    *[("reduce_scatter", {"kind": kind, "dimension": 1}) for kind in ("add", "maximum", "minimum")],
    ("reduce_scatter", {"kind": "add", "dimension": 0}),
    *[
        ("all_to_all", {"split_dimension": split, "concat_dimension": concat})
        for split in (0, 1)
        for concat in (0, 1)
    ],
]  # fmt: skip


def agree(name: str, attrs: dict[str, AttrValue], of: str, ranks: int = 4) -> None:
    module = Module("m", "target", {"tp": ranks})
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(dtype(of), (4, 8)), "x")
    function.outputs = [("y", Builder(function).emit(name, (x,), attrs).result)]
    text = emit_stablehlo(module, function)
    assert accepted(text)
    assert structure(read_stablehlo(text).function("main")) == structure(function)
    random = np.random.default_rng(0)
    # Small integers: their sums are exact in every type, and no rank holds what another does.
    given = [{"x": random.integers(-9, 9, (4, 8)).astype(numpy_dtype(dtype(of)))}] * ranks
    given = [{"x": x["x"] + np.asarray(rank, x["x"].dtype)} for rank, x in enumerate(given)]
    ours = evaluate_ranks(function, given)
    theirs = [out["y"] for out in compile_program(module, function).run_numpy(given)]
    as_hlo = xla_hlo.run(emit_hlo(module, function), [[rank["x"]] for rank in given], ranks)
    for one, other, (third,) in zip(ours, theirs, as_hlo, strict=True):
        assert (one["y"].dtype, one["y"].shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one["y"], other)
        np.testing.assert_array_equal(one["y"], third)


def test_every_collective_is_tried():
    assert {name for name, _ in USES} | {"collective_permute"} == set(COLLECTIVES)


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize(("name", "attrs"), USES)
@pytest.mark.one_in(11)
def test_xla_agrees_with_numpy(name: str, attrs: dict[str, AttrValue], groups: str):
    agree(name, {**attrs, "replica_groups": GROUPS[groups]}, "f32")


@pytest.mark.parametrize("of", ["bf16", "s32"])
@pytest.mark.parametrize(("name", "attrs"), USES)
@pytest.mark.one_in(6)
def test_other_element_types(name: str, attrs: dict[str, AttrValue], of: str):
    agree(name, {**attrs, "replica_groups": GROUPS["columns"]}, of)


@pytest.mark.parametrize("pairs", PAIRS)
def test_values_change_hands_in_pairs(pairs: str):
    agree("collective_permute", {"source_target_pairs": PAIRS[pairs]}, "f32")


def test_the_reducer_is_of_the_type_that_is_reduced():
    # A reducer of another type than the operand's is what one predecessor emits.
    module = Module("m", "target", {"tp": 2})
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(dtype("bf16"), (4, 8)), "x")
    function.outputs = [("y", Builder(function).reduce_scatter(x, [[0, 1]], 0))]
    text = emit_stablehlo(module, function)
    assert "stablehlo.add %$a.0, %$b.0 : tensor<bf16>" in text
    assert "f32" not in text


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ("dense<0> : tensor<1x1xi64>", ((0,),)),
        ("dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>", ((0, 2), (1, 3))),
        ("dense<[[0, 1, 2]]> : tensor<1x3xi64>", ((0, 1, 2),)),
    ],
)
def test_groups_are_read(groups: str, wanted: tuple[tuple[int, ...], ...]):
    text = f"""func.func @main(%x: tensor<4xf32>) -> tensor<8xf32> {{
      %y = "stablehlo.all_gather"(%x) {{all_gather_dim = 0 : i64, replica_groups = {groups}}}
        : (tensor<4xf32>) -> tensor<{4 * len(wanted[0])}xf32>
      return %y : tensor<{4 * len(wanted[0])}xf32>
    }}""".replace("tensor<8xf32>", f"tensor<{4 * len(wanted[0])}xf32>")
    (op,) = read_stablehlo(text).function("main").block
    assert op.attrs.groups("replica_groups") == wanted
