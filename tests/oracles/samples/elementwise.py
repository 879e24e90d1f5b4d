"""Uses of the ops that compute each element for itself."""

# Tables of uses read best with one use a line.

from __future__ import annotations

from tests.oracles.sample import AWKWARD, FLOATS, HIGHEST, INF, LOWEST, NAN, Sample, sample


def elementwise() -> list[Sample]:
    return [*functions(), *roundings(), *pairs(), *whole_numbers(), *sizes()]


# What each function is tried at, where it is not these.
ANY = [0.0, 1.5, -3.0, 700.0, -700.0, INF, -INF, NAN, 0.1, 1e-3, -0.0, 9.0]
ANGLES = [0.0, 1.5, -3.0, 70.0, -70.0, INF, -INF, NAN, 0.1, 1e-3, -0.0, 9.0]
WHERE = {
    **dict.fromkeys(("cosine", "sine", "tan"), ANGLES),
    "log_plus_one": [0.0, 1.5, -1.0, 700.0, -2.0, INF, -INF, NAN, 0.1, 1e-3, -0.0, -0.5],
    "cbrt": [0.0, 8.0, -27.0, 700.0, -0.3, INF, -INF, NAN, 0.1, 1e-3, -0.0, 9.0],
    "erf": [0.0, 1.5, -3.0, 0.7, -0.5, INF, -INF, NAN, 0.1, 1e-3, -0.0, 4.0],
}
FUNCTIONS = (
    "exponential", "exponential_minus_one", "log", "log_plus_one", "sqrt", "rsqrt", "cbrt",
    "logistic", "tanh", "cosine", "sine", "tan", "erf",
)  # fmt: skip


def functions() -> list[Sample]:
    out: list[Sample] = []
    for kind in FLOATS:
        type_ = f"{kind}[12]"
        for op in FUNCTIONS:
            given = WHERE.get(op, ANY)
            out.append(sample(f"{op}-{kind}", f"{op} {type_}", type_, exact=False, x0=given))
        for name, x0, x1 in (
            ("power", [2.0, -2.0, 0.0, 0.0, 0.25, -8.0], [3.0, 3.0, -1.0, 0.0, -0.5, 0.5]),
            ("power-ends", [INF, -INF, NAN, 1.0, -0.0, 5.0], [-1.0, 3.0, 0.0, NAN, 3.0, -INF]),
            ("atan2", [1.0, -1.0, 0.0, -0.0, 3.0, 0.5], [1.0, -1.0, -1.0, -1.0, 0.0, -2.0]),
            ("atan2-ends", [INF, -INF, NAN, 1.0, 0.0, 0.0], [INF, 1.0, 1.0, -INF, 0.0, -0.0]),
        ):
            use = f"{name.partition('-')[0]} {kind}[6] {kind}[6]"
            out.append(sample(f"{name}-{kind}", use, f"{kind}[6]", exact=False, x0=x0, x1=x1))
    return out


def roundings() -> list[Sample]:
    """What gives the same bits wherever it is run."""
    out: list[Sample] = []
    halves = [0.5, 1.5, 2.5, -0.5, -1.5, 0.3, -0.3, 6e4, INF, -INF, NAN, -0.0]
    for kind in FLOATS:
        type_ = f"{kind}[12]"
        out += [
            sample(f"{op}-{kind}", f"{op} {type_}", type_, x0=AWKWARD)
            for op in ("negate", "abs", "sign")
        ]
        out += [
            sample(f"{op}-{kind}", f"{op} {type_}", type_, x0=halves)
            for op in ("ceil", "floor", "round_nearest_even", "round_nearest_afz")
        ]
        out.append(sample(f"is_finite-{kind}", f"is_finite {type_}", "pred[12]", x0=AWKWARD))
    just_below = [0.49999997, -0.49999997, 8388609.0, 2147483648.0]
    out += [
        sample(f"{op}-below", f"{op} f32[4]", "f32[4]", x0=just_below)
        for op in ("round_nearest_even", "round_nearest_afz")
    ]
    return out


def pairs() -> list[Sample]:
    out: list[Sample] = []
    by = [1.0, 0.0, 3.0, -0.0, 0.7, 2.0, INF, NAN, INF, 1.0, 1.0, 0.5]
    for kind in FLOATS:
        type_ = f"{kind}[12]"
        for op in ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum"):
            # Which zero is greater is nobody's promise.
            x1 = [by[0], 0.5, *by[2:]] if op in ("maximum", "minimum") else by
            use = f"{op} {type_} {type_}"
            out.append(sample(f"{op}-{kind}", use, type_, x0=AWKWARD, x1=x1))
        use = f"clamp {kind}[] {type_} {kind}[]"
        for name, x0, x2 in (
            ("inside", -1.0, 2.0), ("crossed", 2.0, -1.0), ("nan", NAN, 1.0), ("open", -INF, INF),
        ):  # fmt: skip
            out.append(sample(f"clamp-{kind}-{name}", use, type_, x0=x0, x1=AWKWARD, x2=x2))
    return out


def whole_numbers() -> list[Sample]:
    out: list[Sample] = []
    ends = [LOWEST, LOWEST, LOWEST, HIGHEST, HIGHEST, -7, 7, -7, 5, 0, LOWEST, 1]
    by = [2, -1, 3, 2, HIGHEST, 2, -2, -2, 0, 0, LOWEST, LOWEST]
    for op in ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum"):
        out.append(sample(f"{op}-s32", f"{op} s32[12] s32[12]", "s32[12]", x0=ends, x1=by))
        small = {"x0": [255, 200, 7, 0, 1], "x1": [255, 100, 2, 0, 0]}
        out.append(sample(f"{op}-u8", f"{op} u8[5] u8[5]", "u8[5]", given=small))
        signed = {"x0": [-128, -128, 127, -7, 5], "x1": [-1, 2, 127, 2, 0]}
        out.append(sample(f"{op}-s8", f"{op} s8[5] s8[5]", "s8[5]", given=signed))
    for kind, x0, x1 in (
        ("s32", [0, 0, 1, -1, -1, 2, 3, -3, 7, 2, -2], [0, -1, -5, -3, -4, 31, 21, 3, 0, 40, 63]),
        ("u8", [0, 0, 1, 2, 3, 255, 16], [0, 5, 255, 7, 5, 2, 2]),
    ):
        size = len(x0)
        use = f"power {kind}[{size}] {kind}[{size}]"
        out.append(sample(f"power-{kind}", use, f"{kind}[{size}]", x0=x0, x1=x1))
    for kind in ("s32", "s8", "u8"):
        numbers = {"x0": [0, 5, 3, 7], "x1": [1, 9, 127, 4], "x2": [9, 3, 100, 7]}
        use = f"clamp {kind}[4] {kind}[4] {kind}[4]"
        out.append(sample(f"clamp-{kind}", use, f"{kind}[4]", given=numbers))
    for op in ("abs", "sign", "negate"):
        out.append(sample(f"{op}-s32", f"{op} s32[4]", "s32[4]", x0=[LOWEST, HIGHEST, 0, -3]))
        out.append(sample(f"{op}-s8", f"{op} s8[4]", "s8[4]", x0=[-128, 127, 0, -3]))
    out.append(sample("negate-u8", "negate u8[3]", "u8[3]", x0=[0, 1, 255]))
    return out


def sizes() -> list[Sample]:
    out: list[Sample] = []
    for size in ("0", "1", "2,0,3", "", "1,1"):
        type_ = f"f32[{size}]"
        out.append(sample(f"add-sized-{size}", f"add {type_} {type_}", type_))
        out += [
            sample(f"{op}-sized-{size}", f"{op} {type_}", type_, exact=False)
            for op in ("exponential", "erf")
        ]
        out.append(sample(f"not-sized-{size}", f"not pred[{size}]", f"pred[{size}]"))
    return out
