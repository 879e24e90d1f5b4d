"""Uses of the ops that move a window over their operand."""

# Tables of uses read best with one use a line.
# ruff: noqa: E501

from __future__ import annotations

from tests.oracles.sample import Sample, sample

# name, lhs, kernel, the rest, result
_CONVOLUTIONS = (
    ("plain", "[2,7,3]", "[3,3,4]", "b0f_0io->b0f", "", "[2,5,4]"),
    ("causal", "[1,6,2]", "[3,2,2]", "b0f_0io->b0f", "low=[2]", "[1,6,2]"),
    ("torch", "[2,3,6,5]", "[4,3,3,2]", "bf01_oi01->bf01", "window_strides=[2,1] low=[1,0] high=[1,1]", "[2,4,3,5]"),
    ("order", "[3,4,2,5]", "[3,2,2,2]", "0bf1_o1i0->f10b", "low=[0,1] high=[1,0]", "[3,5,3,4]"),
    ("dilated", "[1,9,2]", "[3,2,2]", "b0f_0io->b0f", "rhs_dilation=[3] low=[1]", "[1,4,2]"),
    ("upward", "[1,4,2]", "[3,2,2]", "b0f_0io->b0f", "lhs_dilation=[2] low=[1] high=[2]", "[1,8,2]"),
    ("cut", "[1,9,2]", "[2,2,2]", "b0f_0io->b0f", "low=[-2] high=[-1] window_strides=[2]", "[1,3,2]"),
    ("backward", "[1,6,2]", "[3,2,2]", "b0f_0io->b0f", "window_reversal=[1]", "[1,4,2]"),
    ("groups", "[2,6,6]", "[3,2,9]", "b0f_0io->b0f", "feature_group_count=3", "[2,4,9]"),
    ("depthwise", "[2,6,4]", "[3,1,4]", "b0f_0io->b0f", "feature_group_count=4 low=[2]", "[2,6,4]"),
    ("batches", "[4,6,3]", "[2,3,6]", "b0f_0io->b0f", "batch_group_count=2", "[2,5,6]"),
    ("points", "[5,3]", "[3,2]", "bf_io->bf", "", "[5,2]"),
    ("space", "[1,3,4,3,2]", "[2,2,2,2,2]", "b012f_012io->b012f", "window_strides=[1,2,1]", "[1,2,2,2,2]"),
    ("short", "[1,2,2]", "[3,2,2]", "b0f_0io->b0f", "", "[1,0,2]"),
)  # fmt: skip


def convolving() -> list[Sample]:
    out: list[Sample] = []
    for name, lhs, kernel, labels, attrs, result in _CONVOLUTIONS:
        for kind, to in (
            ("f32", "f32"),
            ("bf16", "f32"),
            ("bf16", "bf16"),
            ("s32", "s32"),
            ("c64", "c64"),
        ):
            use = f'convolution {kind}{lhs} {kind}{kernel} dim_labels="{labels}" {attrs} dtype={to}'
            exact = kind == "s32"
            out.append(sample(f"convolution-{kind}-{to}-{name}", use, f"{to}{result}", exact=exact))
    return out


# shape, the window, result
_REDUCTIONS = (
    ("[6]", "window_dimensions=[3]", "[4]"),
    ("[6]", "window_dimensions=[6] low=[5]", "[6]"),
    ("[2,6,5]", "window_dimensions=[1,2,3] window_strides=[1,2,1] high=[0,0,2]", "[2,3,5]"),
    (
        "[4,5]",
        "window_dimensions=[2,2] base_dilations=[2,1] window_dilations=[1,2] low=[-1,1]",
        "[5,4]",
    ),
    ("[2]", "window_dimensions=[3]", "[0]"),
)
_SOURCES = (
    ("[6]", "[3]", "window_dimensions=[2] window_strides=[2]"),
    ("[5,5]", "[3,3]", "window_dimensions=[3,3] window_strides=[2,2] low=[1,1] high=[1,1]"),
    ("[2,6]", "[2,4]", "window_dimensions=[1,3]"),
)


def reducing() -> list[Sample]:
    out: list[Sample] = []
    for kind, how in (
        *(("f32", "add"), ("f32", "maximum"), ("f32", "minimum"), ("f32", "multiply")),
        *(("bf16", "maximum"), ("s32", "add"), ("s32", "minimum"), ("s32", "xor"), ("pred", "or")),
    ):
        for shape, window, result in _REDUCTIONS:
            use = f"reduce_window {kind}{shape} {kind}[] {window} kind={how}"
            name = f"reduce_window-{how}-{kind}-{shape}-{window}".replace(" ", "-")
            exact = kind != "f32" or how in ("maximum", "minimum")
            out.append(sample(name, use, f"{kind}{result}", exact=exact))
    for kind in ("f32", "s32"):
        for direction, how in (("GE", "add"), ("LT", "add"), ("GT", "maximum"), ("LE", "minimum")):
            for shape, source, window in _SOURCES:
                use = (
                    f"select_and_scatter {kind}{shape} {kind}{source} {kind}[] {window} "
                    f"direction={direction} kind={how}"
                )
                name = f"select_and_scatter-{direction}-{how}-{kind}-{shape}"
                exact = kind == "s32" or how != "add"
                out.append(sample(name, use, f"{kind}{shape}", exact=exact))
    return out
