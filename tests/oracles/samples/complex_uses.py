"""Uses with complex numbers, and with truth values where numbers are usual."""

from __future__ import annotations

from tests.oracles.sample import INF, Sample, sample

X = [1.5 - 0.5j, -2.0 + 3.0j, 0.25 + 0.0j, 0.5j, -1.0 - 1.0j, 3.0 + 0.125j]
Y = [0.5 + 2.0j, 1.0 - 1.0j, -0.75 + 0.25j, 2.0 + 0.0j, 1.0 + 1.0j, -0.5j]
PARTS = {"c64": "f32"}


def complex_numbers() -> list[Sample]:
    return [*functions(), *conversions(), *moved(), *truths()]


def functions() -> list[Sample]:
    out: list[Sample] = []
    for kind, part in PARTS.items():
        type_ = f"{kind}[6]"
        for op in (
            "exponential", "exponential_minus_one", "log", "log_plus_one", "sqrt", "rsqrt", "tanh",
            "sine", "cosine", "tan", "logistic", "sign", "negate",
        ):  # fmt: skip
            use = f"{op} {type_}"
            out.append(sample(f"{op}-{kind}", use, type_, exact=op == "negate", x0=X))
        for op in ("add", "subtract", "multiply", "divide", "power"):
            use, exact = f"{op} {type_} {type_}", op in ("add", "subtract")
            out.append(sample(f"{op}-{kind}", use, type_, exact=exact, x0=X, x1=Y))
        parts = {"x0": [1.0, -0.0, INF, 2.5], "x1": [0.5, 3.0, 1.0, -INF]}
        use = f"complex {part}[4] {part}[4]"
        out.append(sample(f"complex-{kind}", use, f"{kind}[4]", given=parts))
        out += [
            sample(f"{op}-{kind}", f"{op} {type_}", f"{part}[6]", x0=X) for op in ("real", "imag")
        ]
        out.append(sample(f"abs-{kind}", f"abs {type_}", f"{part}[6]", exact=False, x0=X))
        for direction in ("EQ", "NE"):
            use = f"compare {type_} {type_} direction={direction}"
            twin = [*X[:3], *Y[3:]]
            out.append(sample(f"compare-{kind}-{direction}", use, "pred[6]", x0=X, x1=twin))
        use = f"reduce {kind}[2,3] dimensions=[1] kind=add"
        out.append(sample(f"reduce-{kind}", use, f"{kind}[2]", exact=False, x0=X))
        use = (
            f"dot_general {kind}[2,3] {kind}[3,2] lhs_contracting_dims=[1] "
            f"rhs_contracting_dims=[0] dtype={kind}"
        )
        out.append(sample(f"dot_general-{kind}", use, f"{kind}[2,2]", exact=False, x0=X, x1=Y))
    out.append(sample("real-f32", "real f32[2]", "f32[2]", x0=[1.5, -0.0]))
    out.append(sample("imag-f32", "imag f32[2]", "f32[2]", x0=[1.5, -0.0]))
    return out


def conversions() -> list[Sample]:
    out: list[Sample] = []
    for kind in PARTS:
        for other, given in (
            ("f32", [1.5, -0.0]), ("s32", [3, -4]), ("pred", [True, False]), ("bf16", [0.5, 2.0]),
        ):  # fmt: skip
            use = f"convert {other}[2] dtype={kind}"
            out.append(sample(f"convert-{other}-{kind}", use, f"{kind}[2]", x0=given))
        for other in ("f32", "s32", "bf16"):
            use = f"convert {kind}[6] dtype={other}"
            out.append(sample(f"convert-{kind}-{other}", use, f"{other}[6]", x0=X))
        out.append(sample(f"iota-{kind}", f"iota dtype={kind} shape=[3] dimension=0", f"{kind}[3]"))
        value = f"{kind}[2]((1.0,0.1),(-0.0,2.5))"
        out.append(sample(f"constant-{kind}", f"constant value={value}", f"{kind}[2]"))
        one = f"constant value={kind}[]((0.1,-3.0))"
        out.append(sample(f"constant-{kind}-one", one, f"{kind}[]"))
    return out


def moved() -> list[Sample]:
    out: list[Sample] = []
    for kind in PARTS:
        uses = {
            f"broadcast_in_dim {kind}[3] shape=[2,3] dimensions=[1]": ("2,3", X[:3], None),
            f"transpose {kind}[2,3] permutation=[1,0]": ("3,2", X, None),
            f"slice {kind}[6] start_indices=[1] limit_indices=[4]": ("3", X, None),
            f"concatenate {kind}[6] {kind}[6] dimension=0": ("12", X, Y),
            f"pad {kind}[6] {kind}[] low=[1] high=[2]": ("9", X, Y[0]),
            f"reverse {kind}[6] dimensions=[0]": ("6", X, None),
        }
        for use, (shape, x0, x1) in uses.items():
            given = {"x0": x0} | ({} if x1 is None else {"x1": x1})
            out.append(sample(f"{use.split()[0]}-{kind}", use, f"{kind}[{shape}]", given=given))
    return out


def truths() -> list[Sample]:
    """Of pred the sum and the maximum are the logical or, the product and the minimum the and."""
    both = {"x0": [True, True, False, False], "x1": [True, False, True, False]}
    out = [
        sample(f"{op}-pred", f"{op} pred[4] pred[4]", "pred[4]", given=both)
        for op in ("add", "multiply", "maximum", "minimum")
    ]
    for kind in ("add", "maximum", "minimum"):
        for shape, given in (("2,2", [True, False, True, True]), ("2,0", [])):
            use = f"reduce pred[{shape}] dimensions=[1] kind={kind}"
            out.append(sample(f"reduce-{kind}-pred-{shape}", use, "pred[2]", x0=given))
    clamped = {"x0": False, "x1": [True, False, True, False], "x2": True}
    out.append(sample("clamp-pred", "clamp pred[] pred[4] pred[]", "pred[4]", given=clamped))
    return out
