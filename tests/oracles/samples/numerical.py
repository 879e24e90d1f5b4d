"""Uses of the ops of numerical libraries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.oracles.sample import Sample, sample

FORMS = (
    ("true", "true", "NO_TRANSPOSE"),
    ("true", "false", "TRANSPOSE"),
    ("false", "true", "ADJOINT"),
    ("false", "false", "NO_TRANSPOSE"),
)
TRANSFORMS = (
    ("FFT", "c64[2,6]", "[6]", "c64[2,6]"),
    ("FFT", "c64[2,3,4]", "[3,4]", "c64[2,3,4]"),
    ("IFFT", "c64[2,3,5]", "[2,3,5]", "c64[2,3,5]"),
    ("RFFT", "f32[3,7]", "[7]", "c64[3,4]"),
    ("RFFT", "f32[4,6]", "[4,6]", "c64[4,4]"),
    ("IRFFT", "c64[3,4]", "[7]", "f32[3,7]"),
    ("IRFFT", "c64[4,4]", "[4,6]", "f32[4,6]"),
    ("RFFT", "f32[0,5]", "[5]", "c64[0,3]"),
    ("FFT", "c64[1]", "[1]", "c64[1]"),
)


def systems() -> list[Sample]:
    out: list[Sample] = []
    random, right_sides = np.random.default_rng(5), np.random.default_rng(6)
    for kind in ("f32", "c64"):
        for left, lower, form in FORMS:
            for unit in ("true", "false"):
                # Far from singular, whichever triangle is read.
                a = random.uniform(-0.5, 0.5, (2, 4, 4)) + 2 * np.eye(4)
                sizes = "[2,4,3]" if left == "true" else "[2,3,4]"
                use = (
                    f"triangular_solve {kind}[2,4,4] {kind}{sizes} left_side={left} lower={lower} "
                    f"unit_diagonal={unit} transpose_a={form}"
                )
                name = f"triangular_solve-{kind}-{left}-{lower}-{form}-{unit}"
                # Finite: blocks of XLA's algorithm multiply infinities by zeros.
                b = right_sides.standard_normal((2, 4, 3) if left == "true" else (2, 3, 4))
                given = {"x0": a.tolist(), "x1": b.tolist()}
                out.append(sample(name, use, f"{kind}{sizes}", exact=False, **given))
        for lower in ("true", "false"):
            m = random.standard_normal((3, 4, 4))
            if kind == "c64":
                m = m + 1j * random.standard_normal((3, 4, 4))
            a = m @ np.conj(np.swapaxes(m, 1, 2)) + np.eye(4)
            # One is not positive definite.
            a[1, 2, 2] = -3
            use = f"cholesky {kind}[3,4,4] lower={lower}"
            name = f"cholesky-{kind}-{lower}"
            out.append(sample(name, use, f"{kind}[3,4,4]", exact=False, x0=a.tolist()))
    empty = "left_side=true lower=true unit_diagonal=false transpose_a=NO_TRANSPOSE"
    use = f"triangular_solve f32[0,0] f32[0,3] {empty}"
    out.append(sample("triangular_solve-empty", use, "f32[0,3]"))
    out.append(sample("cholesky-one", "cholesky f32[1,1] lower=true", "f32[1,1]", x0=[[4.0]]))
    return out


def transforms() -> list[Sample]:
    return [
        sample(
            f"fft-{kind}-{given}-{lengths}",
            f"fft {given} fft_type={kind} fft_length={lengths}",
            result,
            exact=False,
        )
        for kind, given, lengths, result in TRANSFORMS
    ]


def random_bits() -> list[Sample]:
    out: list[Sample] = []
    # The counter overflows on the way.
    states = {"u64[2]": [3, 2**64 - 2], "u64[3]": [5, 2**64 - 1, 2**64 - 1]}
    # XLA on a CPU calls bits of signed types unsigned.
    for kind in ("u32", "u8", "u16", "u64"):
        for shape in ("[5]", "[]", "[3,3]", "[2,0]", "[3,4,5]"):
            for algorithm, state in (
                ("rng_three_fry", "u64[2]"),
                ("rng_philox", "u64[2]"),
                ("rng_philox", "u64[3]"),
                ("rng_default", "u64[3]"),
            ):
                use = f"rng_bit_generator {state} algorithm={algorithm} dtype={kind} shape={shape}"
                name = f"rng_bit_generator-{algorithm}-{kind}-{shape}-{state}"
                whole = np.array(states[state], np.uint64)
                made = sample(name, use, f"{kind}{shape}", x0=whole)
                out.append(replace(made, before=(state,)))
    return out
