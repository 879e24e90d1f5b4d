"""Uses of compare, select, convert and bitcast_convert."""

# Tables of uses read best with one use a line.

from __future__ import annotations

from tests.oracles.sample import AWKWARD, HIGHEST, INF, LOWEST, NAN, Sample, sample


def choosing() -> list[Sample]:
    out: list[Sample] = []
    for direction in ("EQ", "NE", "LT", "LE", "GT", "GE"):
        for kind, x0, x1 in (
            ("f32", [1.0, NAN, NAN, 0.0, INF, 1.0], [2.0, NAN, 1.0, -0.0, INF, 1.0]),
            ("bf16", [1.0, NAN, NAN, 0.0, INF, 1.0], [2.0, NAN, 1.0, -0.0, INF, 1.0]),
            ("s32", [-1, 1, 0, LOWEST, HIGHEST, 5], [1, -1, 0, HIGHEST, HIGHEST, 4]),
            ("u8", [255, 1, 0, 128, 127, 5], [1, 255, 0, 127, 128, 4]),
            (
                "pred",
                [True, True, False, False, True, False],
                [True, False, True, False, False, True],
            ),
        ):
            use = f"compare {kind}[6] {kind}[6] direction={direction}"
            out.append(sample(f"compare-{direction}-{kind}", use, "pred[6]", x0=x0, x1=x1))
    for kind in ("f32", "bf16", "s32", "pred"):
        use = f"select pred[3,4] {kind}[3,4] {kind}[3,4]"
        out.append(sample(f"select-{kind}", use, f"{kind}[3,4]"))
    ties = [1.0 + 2**-8, 1.0 + 3 * 2**-8, -1.0 - 2**-8, 3e38, -3.4e38, NAN, INF, 1e-40]
    for use, x0 in (
        ("f32[8] bf16", ties),
        ("f32[8] f16", [1.0 + 2**-11, 1.0 + 3 * 2**-11, 65519.0, 65520.0, -1e9, NAN, 1e-7, 6e-8]),
        ("f32[8] s32", [2.7, -2.7, 0.5, -0.5, 3e9, -3e9, NAN, INF]),
        ("bf16[8] s32", [2.7, -2.7, 0.5, -0.5, 3e9, -3e9, NAN, -INF]),
        ("f32[8] u8", [2.7, -2.7, 255.9, 256.0, 254.5, -0.5, NAN, INF]),
        ("f32[8] s8", [2.7, -2.7, 127.9, 128.0, -128.5, -129.5, NAN, INF]),
        ("f32[8] pred", [0.0, -0.0, 1.0, 0.3, NAN, INF, -1.0, 1e-30]),
        ("bf16[8] f32", AWKWARD[4:]),
        ("f16[8] bf16", AWKWARD[4:]),
        ("s32[8] f32", [LOWEST, HIGHEST, 2**24 + 1, 2**24 + 3, -1, 0, 1, 123456789]),
        ("s32[8] bf16", [LOWEST, HIGHEST, 257, 259, -1, 0, 1, 123456789]),
        ("s32[8] s8", [LOWEST, HIGHEST, 128, -129, -1, 0, 255, 256]),
        ("s32[8] u8", [LOWEST, HIGHEST, 128, -129, -1, 0, 255, 256]),
        ("u8[8] s8", [0, 1, 127, 128, 255, 3, 4, 5]),
        ("u8[8] s32", [0, 1, 127, 128, 255, 3, 4, 5]),
        ("s32[8] pred", [LOWEST, HIGHEST, 128, -129, -1, 0, 256, 0]),
        ("pred[8] f32", [True, False] * 4),
        ("pred[8] s32", [True, False] * 4),
    ):
        source, kind = use.split()
        name = f"convert-{source.split('[')[0]}-{kind}"
        out.append(sample(name, f"convert {source} dtype={kind}", f"{kind}[8]", x0=x0))
    for source, kind in (
        ("bf16", "u16"),
        ("u16", "bf16"),
        ("f32", "s32"),
        ("s8", "u8"),
        ("f16", "s16"),
    ):
        use = f"bitcast_convert {source}[3,4] dtype={kind}"
        out.append(sample(f"bitcast_convert-{source}-{kind}", use, f"{kind}[3,4]"))
    return out
