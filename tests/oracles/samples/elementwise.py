"""Uses of the ops that compute each element for itself."""

# Tables of uses read best with one use a line.

from __future__ import annotations

from tests.oracles.sample import AWKWARD, FLOATS, HIGHEST, INF, LOWEST, NAN, Sample, sample


def elementwise() -> list[Sample]:
    out: list[Sample] = []
    for kind in FLOATS:
        type_ = f"{kind}[12]"
        for op in ("exponential", "rsqrt", "logistic", "cosine", "sine"):
            given = [0.0, 1.5, -3.0, 700.0, -700.0, INF, -INF, NAN, 0.1, 1e-3, -0.0, 9.0]
            if op in ("cosine", "sine"):
                given = [0.0, 1.5, -3.0, 70.0, -70.0, INF, -INF, NAN, 0.1, 1e-3, -0.0, 9.0]
            out.append(sample(f"{op}-{kind}", f"{op} {type_}", type_, exact=False, x0=given))
        for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
            pairs = {
                "x0": AWKWARD,
                "x1": [1.0, 0.0, 3.0, -0.0, 0.7, 2.0, INF, NAN, INF, 1.0, 1.0, 0.5],
            }
            if op in ("maximum", "minimum"):
                pairs["x1"][1] = 0.5  # which zero is greater is nobody's promise
            out.append(sample(f"{op}-{kind}", f"{op} {type_} {type_}", type_, given=pairs))
        out.append(sample(f"negate-{kind}", f"negate {type_}", type_, x0=AWKWARD))
        out.append(sample(f"abs-{kind}", f"abs {type_}", type_, x0=AWKWARD))
        halves = [0.5, 1.5, 2.5, -0.5, -1.5, 0.3, -0.3, 6e4, INF, -INF, NAN, -0.0]
        out.append(sample(f"round-{kind}", f"round_nearest_even {type_}", type_, x0=halves))
        use = f"clamp {kind}[] {type_} {kind}[]"
        for name, x0, x2 in (
            ("inside", -1.0, 2.0), ("crossed", 2.0, -1.0), ("nan", NAN, 1.0), ("open", -INF, INF),
        ):  # fmt: skip
            out.append(sample(f"clamp-{kind}-{name}", use, type_, x0=x0, x1=AWKWARD, x2=x2))
    ends = [LOWEST, LOWEST, LOWEST, HIGHEST, HIGHEST, -7, 7, -7, 5, 0, LOWEST, 1]
    by = [2, -1, 3, 2, HIGHEST, 2, -2, -2, 0, 0, LOWEST, LOWEST]
    for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "and"):
        out.append(sample(f"{op}-s32", f"{op} s32[12] s32[12]", "s32[12]", x0=ends, x1=by))
        small = {"x0": [255, 200, 7, 0, 1], "x1": [255, 100, 2, 0, 0]}
        out.append(sample(f"{op}-u8", f"{op} u8[5] u8[5]", "u8[5]", given=small))
        signed = {"x0": [-128, -128, 127, -7, 5], "x1": [-1, 2, 127, 2, 0]}
        out.append(sample(f"{op}-s8", f"{op} s8[5] s8[5]", "s8[5]", given=signed))
    truth = {"x0": [True, True, False, False], "x1": [True, False, True, False]}
    out.append(sample("and-pred", "and pred[4] pred[4]", "pred[4]", given=truth))
    for kind in ("s32", "s8", "u8"):
        numbers = {"x0": [0, 5, 3, 7], "x1": [1, 9, 127, 4], "x2": [9, 3, 100, 7]}
        use = f"clamp {kind}[4] {kind}[4] {kind}[4]"
        out.append(sample(f"clamp-{kind}", use, f"{kind}[4]", given=numbers))
    out.append(sample("abs-s32", "abs s32[4]", "s32[4]", x0=[LOWEST, HIGHEST, 0, -3]))
    out.append(sample("abs-s8", "abs s8[4]", "s8[4]", x0=[-128, 127, 0, -3]))
    out.append(sample("negate-s32", "negate s32[4]", "s32[4]", x0=[LOWEST, HIGHEST, 0, 3]))
    out.append(sample("negate-u8", "negate u8[3]", "u8[3]", x0=[0, 1, 255]))
    for size in ("0", "1", "2,0,3", "", "1,1"):
        type_ = f"f32[{size}]"
        out.append(sample(f"add-sized-{size}", f"add {type_} {type_}", type_))
        out.append(sample(f"exponential-sized-{size}", f"exponential {type_}", type_, exact=False))
    return out
