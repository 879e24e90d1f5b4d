"""Uses of the ops that make elements, or move them."""

# Tables of uses read best with one use a line.

from __future__ import annotations

from tests.oracles.sample import Sample, sample


def making() -> list[Sample]:
    out: list[Sample] = []
    long = ",".join(f"{i}.0" for i in range(70))
    for literal in (
        "f32[](0.1)", "bf16[](0.1)", "s32[](-2147483648)", "pred[](true)", "u8[](255)",
        "f32[](inf)", "f32[](-inf)", "bf16[](-inf)", "f16[](inf)", "f32[](0x0000c07f)",
        "f32[1](0.5)", "f32[2,2](0.1,-0.0,inf,4.0)", "bf16[3](0.1,0.2,0.3)", "s32[2,1](1,-2)",
        "pred[2,2](true,false,false,false)", "pred[3](true,true,true)", "pred[1,1](false)",
        "f32[0]()", "s32[2,0]()", f"f32[70]({long})", "u16[2](1,65535)", "s8[3](-128,0,127)",
    ):  # fmt: skip
        result = literal.split("(")[0]
        out.append(sample(f"constant-{literal[:24]}", f"constant value={literal}", result))
    for kind in ("f32", "bf16", "s32", "u8"):
        for shape, dimension in (("3,4", 0), ("3,4", 1), ("5", 0), ("0,2", 0), ("1", 0)):
            use = f"iota dtype={kind} shape=[{shape}] dimension={dimension}"
            out.append(sample(f"iota-{kind}-{shape}-{dimension}", use, f"{kind}[{shape}]"))
    return out


def moving() -> list[Sample]:
    out: list[Sample] = []
    uses = {
        "broadcast_in_dim {k}[] shape=[2,3]": "2,3",
        "broadcast_in_dim {k}[3] shape=[2,3] dimensions=[1]": "2,3",
        "broadcast_in_dim {k}[2] shape=[2,3] dimensions=[0]": "2,3",
        "broadcast_in_dim {k}[2,3] shape=[3,4,2] dimensions=[2,0]": "3,4,2",
        "broadcast_in_dim {k}[2,1] shape=[2,4,3] dimensions=[0,2]": "2,4,3",
        "broadcast_in_dim {k}[1] shape=[0,3] dimensions=[1]": "0,3",
        "reshape {k}[2,6] shape=[3,4]": "3,4",
        "reshape {k}[1,1] shape=[]": "",
        "reshape {k}[0,3] shape=[2,0]": "2,0",
        "transpose {k}[2,3,4] permutation=[2,0,1]": "4,2,3",
        "reverse {k}[2,3] dimensions=[1]": "2,3",
        "reverse {k}[2,3,2] dimensions=[2,0]": "2,3,2",
        "reverse {k}[0,2] dimensions=[0,1]": "0,2",
        "transpose {k}[2,0] permutation=[1,0]": "0,2",
        "transpose {k}[] permutation=[]": "",
        "slice {k}[5,4] start_indices=[1,0] limit_indices=[4,4]": "3,4",
        "slice {k}[7,4] start_indices=[1,1] limit_indices=[6,4] strides=[2,3]": "3,1",
        "slice {k}[5] start_indices=[5] limit_indices=[5]": "0",
        "concatenate {k}[2,1] {k}[2,3] {k}[2,0] dimension=1": "2,4",
        "concatenate {k}[2,3] dimension=0": "2,3",
        "pad {k}[2,3] {k}[] low=[1,0] high=[0,2]": "3,5",
        "pad {k}[0] {k}[] low=[1] high=[2]": "3",
        "pad {k}[2] {k}[] low=[0] high=[0]": "2",
        "pad {k}[3,2] {k}[] low=[1,0] high=[0,1] interior=[2,1]": "8,4",
        "pad {k}[5,4] {k}[] low=[-1,-2] high=[-2,1]": "2,3",
        "pad {k}[4] {k}[] low=[-2] high=[-3] interior=[3]": "8",
        "pad {k}[0] {k}[] low=[2] high=[1] interior=[3]": "3",
    }
    for use, shape in uses.items():
        for kind in ("f32", "bf16", "s32", "pred"):
            name = f"{kind}-{use.replace('{k}', '').replace(' ', '-')}"
            out.append(sample(name, use.format(k=kind), f"{kind}[{shape}]"))
    return out
