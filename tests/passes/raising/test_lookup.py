"""Lookups of whole rows: which gathers are embeddings, and that they read the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.ir import Module
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse as pipeline
from graphgen.text import parse

TABLE = np.arange(24, dtype=np.float32).reshape(6, 4)


def gather(
    indices: str, vector: int, result: str, kind: str = "s32", offset: int = -1, rows: str = "6"
) -> Module:
    """A lookup in a table of six rows of four.

    Args:
        indices: their sizes.
        vector: the dimension of the indices that is one number long, or their rank.
        result: its sizes.
        kind: element type of the indices.
        offset: the dimension of the result that the rows become; the last.
        rows: of the table, in its type.
    """
    offset = offset if offset >= 0 else len(result.split(",")) - 1
    return parse(
        f"module @m level=logical {{\n  input %table : f32[{rows},4]\n"
        f"  input %ids : {kind}[{indices}]\n  output %y : f32[{result}]\n}}\n\n"
        f"func @f phase=main {{\n  arg %table : f32[{rows},4]\n  arg %ids : {kind}[{indices}]\n"
        f"  %y = gather(%table, %ids) offset_dims=[{offset}] collapsed_slice_dims=[0] "
        f"start_index_map=[0] index_vector_dim={vector} slice_sizes=[1,4] : f32[{result}]\n"
        "  return y = %y\n}\n"
    )


def raised(module: Module) -> tuple[bool, set[str]]:
    """Whether the lookup became an embedding, and the reasons why rules did not apply."""
    journal = Journal()
    run_pipeline(module, pipeline("imported"), journal=journal)
    names = {op.name for op in module.function("f").ops}
    return "embedding" in names, {miss.why.reason for miss in journal.misses}


@pytest.mark.parametrize(
    ("indices", "vector", "result"),
    [
        ("2,3", 2, "2,3,4"),
        ("2,3,1", 2, "2,3,4"),
        ("3,1", 1, "3,4"),
        ("3", 1, "3,4"),
        ("", 0, "4"),
    ],
)
@pytest.mark.parametrize("kind", ["s32", "u8", "s64", "u32"])
def test_lookups_of_whole_rows_are_embeddings(indices: str, vector: int, result: str, kind: str):
    module = gather(indices, vector, result, kind)
    shape = [int(size) for size in indices.split(",") if size]
    low, high = (0, 6) if kind == "u8" else (0 if kind == "u32" else -3, 9)
    ids = np.random.default_rng(0).integers(low, high, shape)
    given = {
        "table": TABLE,
        "ids": np.asarray(ids).astype(kind.replace("s", "int").replace("u", "uint")),
    }
    assert raised(module)[0]
    found = np.asarray(module.evaluate(given)["y"])
    np.testing.assert_array_equal(found, TABLE[np.clip(ids, 0, 5)].reshape(found.shape))


@pytest.mark.parametrize(
    ("kind", "ids"),
    [("s64", [2**31, -(2**31) - 1, 2**32 + 2, 3]), ("u32", [2**31, 0, 2**32 - 1, 3])],
)
def test_ids_that_s32_cannot_hold_read_the_first_or_the_last_row(kind: str, ids: list[int]):
    module = gather("4", 1, "4,4", kind)
    assert raised(module)[0]
    given = np.array(ids, np.int64 if kind == "s64" else np.uint32)
    found = np.asarray(module.evaluate({"table": TABLE, "ids": given})["y"])
    np.testing.assert_array_equal(found, TABLE[[5, 0, 5, 3]])


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        # The dimension of one number is not the last of the indices.
        (("1,3", 0, "3,4"), "the indices are not one number each"),
        (("1,3,1", 0, "3,1,4"), "the indices are not one number each"),
        (("3,1,2", 1, "3,2,4"), "the indices are not one number each"),
        (("3,1", 1, "4,3", "s32", 0), "the rows do not become the last dimension"),
        (("3", 1, "3,4", "s64", -1, "V"), "the indices are not s32, and the rows not known"),
    ],
    ids=["first of two", "first of three", "in the middle", "rows first", "unknown rows"],
)
def test_other_lookups_stay(module: tuple[str, int, str], reason: str):
    found, reasons = raised(gather(*module))
    assert not found
    assert reason in reasons


def test_s32_ids_need_no_number_of_rows():
    assert raised(gather("3", 1, "3,4", rows="V"))[0]
