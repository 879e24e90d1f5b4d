"""Uses of logic, shifts, counts of bits, and of rounding to fewer bits."""

from __future__ import annotations

from tests.oracles.sample import HIGHEST, INF, LOWEST, NAN, Sample, sample

CODES: dict[str, list[int]] = {
    "s32": [LOWEST, HIGHEST, -1, 0, 1, 0x1234567, -77],
    "s8": [-128, 127, -1, 0, 1, 0x35, -77],
    "u8": [128, 255, 127, 0, 1, 0x35, 77],
    "u32": [2**31, 2**32 - 1, 7, 0, 1, 0x89ABCDEF, 77],
    "s4": [-8, 7, -1, 0, 1, 5, -3],
    "u4": [8, 15, 7, 0, 1, 5, 12],
}
STEPS = {"s32": 32, "s8": 8, "u8": 8, "u32": 32, "s4": 4, "u4": 4}
UNARY = ("not", "popcnt", "count_leading_zeros")
TRUTH = {"x0": [True, True, False, False], "x1": [True, False, True, False]}


def bits() -> list[Sample]:
    out: list[Sample] = []
    for kind, codes in CODES.items():
        turned = codes[2:] + codes[:2]
        for op in ("and", "or", "xor"):
            use = f"{op} {kind}[7] {kind}[7]"
            out.append(sample(f"{op}-{kind}", use, f"{kind}[7]", x0=codes, x1=turned))
        size = STEPS[kind]
        # Also by as many bits as there are, by more, and by less than none.
        by = [1, 2, 3, 1, size - 1, size % 8 if size == 4 else size, 0]
        for op in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
            use = f"{op} {kind}[7] {kind}[7]"
            for name, steps in (("some", by), ("far", codes)):
                given = [step % 8 for step in steps] if size == 4 and kind == "s4" else steps
                given = [step % 16 for step in given] if kind == "u4" else given
                out.append(sample(f"{op}-{kind}-{name}", use, f"{kind}[7]", x0=codes, x1=given))
        # XLA on the CPU counts the sign of a negative s4 five times.
        out += [
            sample(f"{op}-{kind}", f"{op} {kind}[7]", f"{kind}[7]", x0=codes)
            for op in UNARY
            if kind != "s4" or op != "popcnt"
        ]
    out += [
        sample(f"{op}-pred", f"{op} pred[4] pred[4]", "pred[4]", given=TRUTH)
        for op in ("and", "or", "xor")
    ]
    out.append(sample("not-pred", "not pred[4]", "pred[4]", x0=TRUTH["x0"]))
    return out + fewer_bits()


def fewer_bits() -> list[Sample]:
    out: list[Sample] = []
    numbers = [1 + 2**-7, 1 + 3 * 2**-7, 65520.0, -1e-5, 3.3e-6, 0.0, -0.0, INF, -INF, NAN, 300.5]
    for kind in ("f32", "bf16", "f16"):
        for exponent, mantissa in ((5, 10), (8, 7), (8, 23), (4, 3), (2, 0), (5, 2), (11, 52)):
            use = f"reduce_precision {kind}[11] exponent_bits={exponent} mantissa_bits={mantissa}"
            given = [n if kind != "f16" or n != 65520.0 else 65504.0 for n in numbers]
            name = f"reduce_precision-{kind}-e{exponent}m{mantissa}"
            out.append(sample(name, use, f"{kind}[11]", x0=given))
    return out
