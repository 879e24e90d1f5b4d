"""Uses with elements of 4 and of 8 bits, which NumPy itself does not know."""

# Tables of uses read best with one use a line.
# ruff: noqa: E501

from __future__ import annotations

from math import prod

from tests.oracles.sample import HIGHEST, INF, LOWEST, NAN, Sample, sample

SMALL_FLOATS = ("f8e4m3", "f8e4m3fn", "f8e5m2")
# Ties of each format, its last finite value, and what is beyond it.
TIES = [1.0625, 1.1875, -1.0625, 1.125, 1.375, 240.0, 248.0, 256.0, 448.0, 464.0, 465.0, 1e-3]
ENDS = [2**-9, 2**-10, 3 * 2**-11, 57344.0, 61440.0, 1e9, -1e9, INF, -INF, NAN, 0.0, -0.0]


def narrow() -> list[Sample]:
    return [*four_bits(), *eight_bit_floats(), *readings()]


def four_bits() -> list[Sample]:
    out: list[Sample] = []
    for kind, x0, x1 in (
        ("s4", [-8, -8, 7, -7, 5, -1, 3], [-1, 2, 7, 2, 0, -8, 5]),
        ("u4", [15, 8, 7, 0, 5, 1, 3], [15, 2, 9, 2, 0, 15, 5]),
    ):
        for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder"):
            use = f"{op} {kind}[7] {kind}[7]"
            out.append(sample(f"{op}-{kind}", use, f"{kind}[7]", x0=x0, x1=x1))
        use = f"compare {kind}[7] {kind}[7] direction=LT"
        out.append(sample(f"compare-{kind}", use, "pred[7]", x0=x0, x1=x1))
        out.append(sample(f"negate-{kind}", f"negate {kind}[7]", f"{kind}[7]", x0=x0))
        use = f"clamp {kind}[] {kind}[7] {kind}[]"
        out.append(sample(f"clamp-{kind}", use, f"{kind}[7]", x0=2, x1=x0, x2=5))
        for other in ("s4", "u4", "s8", "u8", "s32", "f32", "bf16", "pred"):
            use = f"convert {kind}[7] dtype={other}"
            out.append(sample(f"convert-{kind}-{other}", use, f"{other}[7]", x0=x0))
        for other, given in (
            ("s32", [LOWEST, HIGHEST, 8, -9, 15, 16, -1, 7]),
            ("u8", [0, 7, 8, 15, 16, 255, 128, 3]),
            ("f32", [2.7, -2.7, 7.9, 8.0, -8.5, -9.5, NAN, INF]),
            ("pred", [True, False] * 4),
        ):
            use = f"convert {other}[8] dtype={kind}"
            out.append(sample(f"convert-{other}-{kind}", use, f"{kind}[8]", x0=given))
        for how in ("add", "maximum", "minimum"):
            for shape, dims, result in (("3,4", "1", "3"), ("3,0", "1", "3")):
                use = f"reduce {kind}[{shape}] dimensions=[{dims}] kind={how}"
                out.append(sample(f"reduce-{how}-{kind}-{shape}", use, f"{kind}[{result}]"))
        ends = "1,-8,7,-1" if kind == "s4" else "1,8,15,0"
        out.append(sample(f"constant-{kind}", f"constant value={kind}[4]({ends})", f"{kind}[4]"))
        out.append(sample(f"constant-{kind}-one", f"constant value={kind}[](7)", f"{kind}[]"))
        out.append(
            sample(f"iota-{kind}", f"iota dtype={kind} shape=[2,9] dimension=1", f"{kind}[2,9]")
        )
        out += moved(kind)
    out.append(sample("abs-s4", "abs s4[3]", "s4[3]", x0=[-8, 7, -1]))
    return out


def eight_bit_floats() -> list[Sample]:
    out: list[Sample] = []
    for kind in SMALL_FLOATS:
        for name, given in (("ties", TIES), ("ends", ENDS)):
            for source in ("f32", "bf16"):
                use = f"convert {source}[12] dtype={kind}"
                out.append(sample(f"convert-{source}-{kind}-{name}", use, f"{kind}[12]", x0=given))
        for other in ("f32", "bf16", "f16", "s32", "s8", "pred"):
            use = f"convert {kind}[6] dtype={other}"
            x0 = [0.0, 1.5, -2.5, 96.0, -0.0, 2**-6]
            out.append(sample(f"convert-{kind}-{other}", use, f"{other}[6]", x0=x0))
        use = f"convert s32[6] dtype={kind}"
        out.append(sample(f"convert-s32-{kind}", use, f"{kind}[6]", x0=[0, 17, 19, -200, 33, 35]))
        x0, x1 = [1.0, 1.25, -3.5, 0.0, 96.0, 2**-6], [3.0, 7.0, 0.5, -0.0, 0.75, 0.5]
        for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
            use, same = f"{op} {kind}[6] {kind}[6]", op in ("maximum", "minimum")
            ones = [*x0[:3], 1.0, *x0[4:]] if same else x0
            out.append(sample(f"{op}-{kind}", use, f"{kind}[6]", x0=ones, x1=x1))
        for op in ("negate", "abs", "round_nearest_even"):
            use = f"{op} {kind}[6]"
            out.append(sample(f"{op}-{kind}", use, f"{kind}[6]", x0=x0))
        out.append(
            sample(
                f"exponential-{kind}", f"exponential {kind}[6]", f"{kind}[6]", exact=False, x0=x1
            )
        )
        for how in ("add", "maximum", "minimum"):
            for shape, dims, result in (("3,4", "1", "3"), ("2,0", "1", "2")):
                use = f"reduce {kind}[{shape}] dimensions=[{dims}] kind={how}"
                out.append(
                    sample(
                        f"reduce-{how}-{kind}-{shape}", use, f"{kind}[{result}]", exact=how != "add"
                    )
                )
        for to in ("f32", "bf16"):
            use = f"dot_general {kind}[3,5] {kind}[4,5] lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype={to}"
            out.append(sample(f"dot_general-{kind}-{to}", use, f"{to}[3,4]", exact=False))
        values = f"{kind}[4](0.5,-1.75,96.0,0.0)"
        out.append(sample(f"constant-{kind}", f"constant value={values}", f"{kind}[4]"))
        out.append(sample(f"constant-{kind}-one", f"constant value={kind}[](1.25)", f"{kind}[]"))
        out += moved(kind)
    out.append(sample("constant-f8e5m2-inf", "constant value=f8e5m2[](inf)", "f8e5m2[]"))
    out.append(sample("constant-f8e4m3-inf", "constant value=f8e4m3[](-inf)", "f8e4m3[]"))
    return out


def moved(kind: str) -> list[Sample]:
    uses = {
        f"broadcast_in_dim {kind}[3] shape=[2,3] dimensions=[1]": "2,3",
        f"reshape {kind}[2,3] shape=[6]": "6",
        f"transpose {kind}[2,3] permutation=[1,0]": "3,2",
        f"slice {kind}[5] start_indices=[1] limit_indices=[4]": "3",
        f"concatenate {kind}[2] {kind}[3] dimension=0": "5",
        f"pad {kind}[3] {kind}[] low=[1] high=[2]": "6",
        f"select pred[3] {kind}[3] {kind}[3]": "3",
        f"dynamic_slice {kind}[5] s32[] slice_sizes=[2]": "2",
        f"dynamic_update_slice {kind}[5] {kind}[2] s32[]": "5",
    }
    return [sample(f"{use.split()[0]}-{kind}", use, f"{kind}[{to}]") for use, to in uses.items()]


def readings() -> list[Sample]:
    """Bits read as elements of another width."""
    out: list[Sample] = []
    for source, kind, shape in (
        ("u8[2,4]", "f32", "2"),
        ("f32[2]", "u8", "2,4"),
        ("s32[3]", "bf16", "3,2"),
        ("bf16[3,2]", "u32", "3"),
        ("u8[3]", "f8e4m3fn", "3"),
        ("f8e5m2[3]", "s8", "3"),
        ("u32[2]", "s16", "2,2"),
        ("u8[3]", "s4", "3,2"),
        ("u4[2,2]", "u8", "2"),
        ("s4[3]", "u4", "3"),
    ):
        use = f"bitcast_convert {source} dtype={kind}"
        given = None if source[0] != "u" else {"x0": any_bits(source)}
        out.append(sample(f"bitcast-{source}-{kind}", use, f"{kind}[{shape}]", given=given))
    return out


def any_bits(type_: str) -> list[int]:
    """Codes with something set in each of their bytes."""
    kind, _, sizes = type_.partition("[")
    count = prod(int(size) for size in sizes[:-1].split(","))
    step = {"u4": 7, "u8": 37, "u32": 0x1234567}[kind]
    return [(i + 1) * step % 2 ** int(kind[1:]) for i in range(count)]
