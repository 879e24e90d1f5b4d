"""Uses of the ops that read or write at computed places."""

# Tables of uses read best with one use a line.
# ruff: noqa: E501

from __future__ import annotations

from tests.oracles.sample import HIGHEST, LOWEST, Sample, sample


def places() -> list[Sample]:
    out: list[Sample] = []
    starts = {"x1": 2, "x2": 1}
    for kind in ("f32", "bf16", "s32", "pred"):
        for name, given in (
            ("inside", starts),
            ("clamped-low", {"x1": -3, "x2": 9}),
            ("clamped-high", {"x1": HIGHEST, "x2": LOWEST}),
        ):
            use = f"dynamic_slice {kind}[5,4] s32[] s32[] slice_sizes=[2,3]"
            out.append(sample(f"dynamic_slice-{kind}-{name}", use, f"{kind}[2,3]", given=given))
            use = f"dynamic_update_slice {kind}[5,4] {kind}[2,3] s32[] s32[]"
            given = {f"x{int(key[1:]) + 1}": value for key, value in given.items()}
            out.append(
                sample(f"dynamic_update_slice-{kind}-{name}", use, f"{kind}[5,4]", given=given)
            )
    out.append(
        sample(
            "dynamic_slice-u8-start",
            "dynamic_slice f32[300] u8[] slice_sizes=[2]",
            "f32[2]",
            x1=255,
        )
    )
    out.append(sample("dynamic_slice-scalar", "dynamic_slice f32[] slice_sizes=[]", "f32[]"))
    out.append(
        sample("dynamic_slice-empty", "dynamic_slice f32[3] s32[] slice_sizes=[0]", "f32[0]", x1=2)
    )
    for kind in ("f32", "bf16", "s32", "pred"):
        out += gathers(kind) + scatters(kind) + takes(kind)
    return out


def gathers(kind: str) -> list[Sample]:
    rows = "offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] index_vector_dim=1"
    pairs = "offset_dims=[1] collapsed_slice_dims=[0,1] start_index_map=[1,0]"
    front = "offset_dims=[0,2] collapsed_slice_dims=[1] start_index_map=[1] index_vector_dim=1"
    return [
        sample(
            f"gather-{kind}-{name}", f"gather {kind}{use}", f"{kind}{result}", x1=indices
        )
        for name, use, result, indices in (
            ("rows", f"[5,4] s32[3] {rows} slice_sizes=[1,4]", "[3,4]", [4, 0, 2]),
            ("clamped", f"[5,4] s32[4] {rows} slice_sizes=[1,4]", "[4,4]", [-1, 5, LOWEST, HIGHEST]),
            ("part-rows", f"[5,4] s32[2] {rows} slice_sizes=[1,2]", "[2,2]", [1, 3]),
            ("none", f"[5,4] s32[0] {rows} slice_sizes=[1,4]", "[0,4]", []),
            ("unsigned", f"[5,4] u8[2] {rows} slice_sizes=[1,4]", "[2,4]", [255, 1]),
            (
                "pairs",
                f"[5,4,3] s32[2,2] {pairs} index_vector_dim=1 slice_sizes=[1,1,3]",
                "[2,3]",
                [[1, 2], [9, -9]],
            ),
            (
                "pairs-in-front",
                f"[5,4,3] s32[2,2] {pairs} index_vector_dim=0 slice_sizes=[1,1,3]",
                "[2,3]",
                [[1, 9], [2, -9]],
            ),
            ("offset-in-front", f"[5,4,3] s32[2] {front} slice_sizes=[5,1,2]", "[5,2,2]", [3, 1]),
            (
                "windows",
                "[5,4] s32[2,2] offset_dims=[1,2] collapsed_slice_dims=[] start_index_map=[0,1] "
                "index_vector_dim=1 slice_sizes=[2,3]",
                "[2,2,3]",
                [[1, 0], [4, 4]],
            ),
            (
                "one-scalar",
                "[5] s32[] offset_dims=[] collapsed_slice_dims=[0] start_index_map=[0] "
                "index_vector_dim=0 slice_sizes=[1]",
                "[]",
                3,
            ),
        )
    ]  # fmt: skip


def takes(kind: str) -> list[Sample]:
    return [
        sample(f"take-{kind}-{name}", f"take {kind}{use}", f"{kind}{result}", x1=indices)
        for name, use, result, indices in (
            ("rows", "[5,4] s32[3] dimension=0", "[3,4]", [4, 0, 2]),
            ("columns", "[5,4] s32[3] dimension=1", "[5,3]", [3, 3, 0]),
            ("zeros", "[5,4] s32[5] dimension=0", "[5,4]", [-1, 5, 2, LOWEST, HIGHEST]),
            ("blocks", "[6,4] s32[4] dimension=0 block=2", "[8,4]", [2, -1, 0, 3]),
            ("inner", "[2,6,3] s32[3] dimension=1 block=3", "[2,9,3]", [1, 2, 0]),
            ("none", "[5,4] s32[0] dimension=1", "[5,0]", []),
            ("of-nothing", "[4,0] s32[2] dimension=0 block=2", "[4,0]", [0, -1]),
        )
    ]


_COMBINED = ("multiply", "maximum", "minimum")
_BITS = ("and", "or", "xor")


def scatters(kind: str) -> list[Sample]:
    rows = "update_window_dims=[1] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0]"
    pairs = "update_window_dims=[1] inserted_window_dims=[0,1] scatter_dims_to_operand_dims=[1,0]"
    windows = "update_window_dims=[1,2] inserted_window_dims=[] scatter_dims_to_operand_dims=[0,1]"
    out: list[Sample] = []
    for name, operand, indices, updates, numbers, at in (
        ("rows", "[5,4]", "s32[3]", "[3,4]", f"{rows} index_vector_dim=1", [4, 0, 2]),
        ("dropped", "[5,4]", "s32[4]", "[4,4]", f"{rows} index_vector_dim=1", [-1, 5, 2, HIGHEST]),
        ("none", "[5,4]", "s32[0]", "[0,4]", f"{rows} index_vector_dim=1", []),
        ("part-rows", "[5,4]", "s32[2]", "[2,3]", f"{rows} index_vector_dim=1", [1, 3]),
        ("unsigned", "[5,4]", "u8[2]", "[2,4]", f"{rows} index_vector_dim=1", [255, 1]),
        ("pairs", "[5,4,3]", "s32[3,2]", "[3,3]", f"{pairs} index_vector_dim=1", [[1, 2], [3, 4], [4, 0]]),
        ("pairs-in-front", "[5,4,3]", "s32[2,3]", "[3,3]", f"{pairs} index_vector_dim=0", [[1, 3, 4], [2, 4, 0]]),
        ("windows-dropped", "[5,4]", "s32[3,2]", "[3,2,3]", f"{windows} index_vector_dim=1", [[0, 0], [4, 0], [2, 2]]),
    ):  # fmt: skip
        for how in ("assign", "add"):
            if how == "add" and kind == "pred":
                continue
            use = f"scatter {kind}{operand} {indices} {kind}{updates} {numbers} kind={how}"
            out.append(sample(f"scatter-{how}-{kind}-{name}", use, f"{kind}{operand}", x1=at))
    for how in {"f32": _COMBINED, "s32": (*_COMBINED, *_BITS), "pred": _BITS}.get(kind, ()):
        use = f"scatter {kind}[5,4] s32[3] {kind}[3,4] {rows} index_vector_dim=1 kind={how}"
        out.append(sample(f"scatter-{how}-{kind}-overlapping", use, f"{kind}[5,4]", x1=[2, 2, 1]))
    if kind in ("f32", "s32"):
        use = f"scatter {kind}[5,4] s32[3] {kind}[3,4] {rows} index_vector_dim=1 kind=add"
        overlap = [2, 2, 2] if kind == "s32" else [2, 2, 1]
        out.append(sample(f"scatter-add-{kind}-overlapping", use, f"{kind}[5,4]", x1=overlap))
    return out
