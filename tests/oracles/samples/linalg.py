"""Uses of reductions, products and orders."""

# Tables of uses read best with one use a line.
# ruff: noqa: E501

from __future__ import annotations

from tests.oracles.sample import AWKWARD, FLOATS, INF, NAN, NUMBERS, Sample, sample


def summing() -> list[Sample]:
    out: list[Sample] = []
    for kind in NUMBERS:
        for how in ("add", "maximum", "minimum"):
            for shape, dims, result in (
                ("3,4", "0", "4"),
                ("3,4", "1", "3"),
                ("3,4,2", "0,2", "4"),
                ("3,4", "0,1", ""),
                ("3,4", "", "3,4"),
                ("3,0", "1", "3"),
                ("0,3", "1", "0"),
                ("1", "0", ""),
            ):
                use = f"reduce {kind}[{shape}] dimensions=[{dims}] kind={how}"
                exact = how != "add" or kind in ("s32", "u8")
                name = f"reduce-{how}-{kind}-{shape}-over-{dims}"
                out.append(sample(name, use, f"{kind}[{result}]", exact=exact))
        if kind in FLOATS:
            use = f"reduce {kind}[2,3] dimensions=[1] kind=maximum"
            given = [[1.0, NAN, 2.0], [-INF, -INF, -INF]]
            out.append(sample(f"reduce-maximum-{kind}-nan", use, f"{kind}[2]", x0=given))
    for kind, how in (
        *(("f32", "multiply"), ("s32", "multiply"), ("u8", "multiply")),
        *((kind, how) for kind in ("s32", "u8", "pred") for how in ("and", "or", "xor")),
        *(("pred", "maximum"), ("pred", "minimum")),
    ):
        for shape, dims, result in (("3,4", "1", "3"), ("3,4,2", "0,2", "4"), ("3,0", "1", "3")):
            use = f"reduce {kind}[{shape}] dimensions=[{dims}] kind={how}"
            name = f"reduce-{how}-{kind}-{shape}-over-{dims}"
            out.append(sample(name, use, f"{kind}[{result}]", exact=kind != "f32"))
    for name, left, right, numbers, result in (
        ("matrix", "[3,5]", "[4,5]", "lhs_contracting_dims=[1] rhs_contracting_dims=[1]", "[3,4]"),
        ("plain", "[3,5]", "[5,4]", "lhs_contracting_dims=[1] rhs_contracting_dims=[0]", "[3,4]"),
        ("vectors", "[5]", "[5]", "lhs_contracting_dims=[0] rhs_contracting_dims=[0]", "[]"),
        ("outer", "[3]", "[4]", "lhs_contracting_dims=[] rhs_contracting_dims=[]", "[3,4]"),
        ("empty", "[3,0]", "[4,0]", "lhs_contracting_dims=[1] rhs_contracting_dims=[1]", "[3,4]"),
        ("two", "[2,3,5]", "[5,4,3]", "lhs_contracting_dims=[1,2] rhs_contracting_dims=[2,0]", "[2,4]"),
        (
            "batch",
            "[2,3,5]",
            "[4,5,2]",
            "lhs_contracting_dims=[2] rhs_contracting_dims=[1] lhs_batch_dims=[0] rhs_batch_dims=[2]",
            "[2,3,4]",
        ),
        (
            "batches",
            "[2,3,6,5]",
            "[3,2,5]",
            "lhs_contracting_dims=[3] rhs_contracting_dims=[2] lhs_batch_dims=[1,0] rhs_batch_dims=[0,1]",
            "[3,2,6]",
        ),
    ):  # fmt: skip
        for kind, to in (
            ("f32", "f32"),
            ("bf16", "f32"),
            ("bf16", "bf16"),
            ("s32", "s32"),
            ("s8", "s32"),
            ("s8", "f32"),
        ):
            use = f"dot_general {kind}{left} {kind}{right} {numbers} dtype={to}"
            exact = kind in ("s32", "s8")
            out.append(sample(f"dot_general-{kind}-{to}-{name}", use, f"{to}{result}", exact=exact))
    return out


def ordering() -> list[Sample]:
    """Of one operand; tests/graphgen/ops/test_sorting.py has those that take others along."""
    out: list[Sample] = []
    for kind in NUMBERS:
        for shape, dimension in (
            ("7", 0),
            ("3,5", 0),
            ("3,5", 1),
            ("2,3,4", 1),
            ("3,0", 1),
            ("1", 0),
        ):
            for descending in ("false", "true"):
                use = f"sort {kind}[{shape}] dimension={dimension} descending={descending}"
                name = f"sort-{kind}-{shape}-{dimension}-{descending}"
                out.append(sample(name, use, f"{kind}[{shape}]"))
        if kind in FLOATS:
            for descending in ("false", "true"):
                use = f"sort {kind}[12] dimension=0 descending={descending}"
                out.append(
                    sample(f"sort-{kind}-awkward-{descending}", use, f"{kind}[12]", x0=AWKWARD)
                )
    return out
