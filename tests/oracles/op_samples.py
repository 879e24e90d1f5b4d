"""Small uses of every simple op, shared by the tests that run them in different ways."""

# Tables of uses read best with one use a line.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Module, TensorType
from graphgen.text import parse
from graphgen.text.grammar import parse_type

INF, NAN = float("inf"), float("nan")
LOWEST, HIGHEST = -(2**31), 2**31 - 1
FLOATS = ("f32", "bf16", "f16")
NUMBERS = (*FLOATS, "s32", "u8")
# Zeros of both signs, ties, ends and what is no number.
AWKWARD = [0.0, -0.0, 1.0, -1.5, 0.3, -7.25, 60.0, -60.0, INF, -INF, NAN, 2.5]


@dataclass(frozen=True)
class Sample:
    """One use.

    Attributes:
        name: says which use it is; its op comes first.
        types: of the operands.
        attrs: as text, each preceded by a space.
        result: type of the result.
        given: arrays (as nested lists) for operands that should not be random: ``x0``, ``x1``, ...
        exact: no rounding is involved, so every execution gives the same bits.
    """

    name: str
    op: str
    types: tuple[str, ...]
    attrs: str
    result: str
    given: Mapping[str, object] = field(default_factory=dict[str, object])
    exact: bool = True

    def arrays(self) -> list[Array]:
        """An array for each operand: the given one, or a random one that is always the same."""
        random = np.random.default_rng(sum(map(ord, self.name)))
        out: list[Array] = []
        for index, text in enumerate(self.types):
            type_ = parse_type(text)
            if (given := self.given.get(f"x{index}")) is None:
                out.append(any_array(random, type_))
            else:
                out.append(np.array(given).astype(numpy_dtype(type_.dtype)).reshape(type_.dims))
        return out


def program(samples: Sequence[Sample]) -> Module:
    """A module whose function ``@f`` takes ``i.x0, i.x1, ...`` and returns ``i`` for sample i."""
    args: list[str] = []
    ops: list[str] = []
    for i, item in enumerate(samples):
        names = [f"%{i}.x{j}" for j in range(len(item.types))]
        args += [f"  arg {name} : {type_}" for name, type_ in zip(names, item.types, strict=True)]
        ops.append(f"  %y.{i} = {item.op}({', '.join(names)}){item.attrs} : {item.result}")
    returns = [f"  return {i} = %y.{i}" for i in range(len(samples))]
    lines = ["module @m level=target {", "}", "", "func @f {", *args, *ops, *returns, "}", ""]
    return parse("\n".join(lines))


def inputs(samples: Sequence[Sample]) -> dict[str, Array]:
    """What :func:`program` takes."""
    return {
        f"{i}.x{j}": array
        for i, item in enumerate(samples)
        for j, array in enumerate(item.arrays())
    }


def any_array(random: np.random.Generator, type_: TensorType) -> Array:
    """Normal floats, small integers, both truth values."""
    kind = numpy_dtype(type_.dtype)
    if type_.dtype.name == "pred":
        return random.integers(0, 2, type_.dims).astype(kind)
    if type_.dtype.is_float:
        return (2 * random.standard_normal(type_.dims)).astype(kind)
    low = 0 if type_.dtype.name.startswith("u") else -9
    return random.integers(low, 10, type_.dims).astype(kind)


def sample(
    name: str,
    use: str,
    result: str,
    exact: bool = True,
    given: Mapping[str, object] | None = None,
    **operands: object,
) -> Sample:
    """``use`` is ``op type... attr=value...``; operands are called x0, x1, ..."""
    op, *words = use.split()
    types = tuple(word for word in words if "=" not in word)
    attrs = "".join(f" {word}" for word in words if "=" in word)
    return Sample(name, op, types, attrs, result, {**(given or {}), **operands}, exact)


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
    }
    for use, shape in uses.items():
        for kind in ("f32", "bf16", "s32", "pred"):
            name = f"{kind}-{use.replace('{k}', '').replace(' ', '-')}"
            out.append(sample(name, use.format(k=kind), f"{kind}[{shape}]"))
    return out


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
    if kind in ("f32", "s32"):
        use = f"scatter {kind}[5,4] s32[3] {kind}[3,4] {rows} index_vector_dim=1 kind=add"
        overlap = [2, 2, 2] if kind == "s32" else [2, 2, 1]
        out.append(sample(f"scatter-add-{kind}-overlapping", use, f"{kind}[5,4]", x1=overlap))
    return out


def summing() -> list[Sample]:
    out: list[Sample] = []
    for kind in NUMBERS:
        for how in ("add", "maximum", "minimum"):
            for shape, dims, result in (
                ("3,4", "0", "4"),
                ("3,4", "1", "3"),
                ("3,4,2", "0,2", "4"),
                ("3,4", "0,1", ""),
                ("3,4", "", "3,4"),
                ("3,0", "1", "3"),
                ("0,3", "1", "0"),
                ("1", "0", ""),
            ):
                use = f"reduce {kind}[{shape}] dimensions=[{dims}] kind={how}"
                exact = how != "add" or kind in ("s32", "u8")
                name = f"reduce-{how}-{kind}-{shape}-over-{dims}"
                out.append(sample(name, use, f"{kind}[{result}]", exact=exact))
        if kind in FLOATS:
            use = f"reduce {kind}[2,3] dimensions=[1] kind=maximum"
            given = [[1.0, NAN, 2.0], [-INF, -INF, -INF]]
            out.append(sample(f"reduce-maximum-{kind}-nan", use, f"{kind}[2]", x0=given))
    for name, left, right, numbers, result in (
        ("matrix", "[3,5]", "[4,5]", "lhs_contracting_dims=[1] rhs_contracting_dims=[1]", "[3,4]"),
        ("plain", "[3,5]", "[5,4]", "lhs_contracting_dims=[1] rhs_contracting_dims=[0]", "[3,4]"),
        ("vectors", "[5]", "[5]", "lhs_contracting_dims=[0] rhs_contracting_dims=[0]", "[]"),
        ("outer", "[3]", "[4]", "lhs_contracting_dims=[] rhs_contracting_dims=[]", "[3,4]"),
        ("empty", "[3,0]", "[4,0]", "lhs_contracting_dims=[1] rhs_contracting_dims=[1]", "[3,4]"),
        ("two", "[2,3,5]", "[5,4,3]", "lhs_contracting_dims=[1,2] rhs_contracting_dims=[2,0]", "[2,4]"),
        (
            "batch",
            "[2,3,5]",
            "[4,5,2]",
            "lhs_contracting_dims=[2] rhs_contracting_dims=[1] lhs_batch_dims=[0] rhs_batch_dims=[2]",
            "[2,3,4]",
        ),
        (
            "batches",
            "[2,3,6,5]",
            "[3,2,5]",
            "lhs_contracting_dims=[3] rhs_contracting_dims=[2] lhs_batch_dims=[1,0] rhs_batch_dims=[0,1]",
            "[3,2,6]",
        ),
    ):  # fmt: skip
        for kind, to in (
            ("f32", "f32"),
            ("bf16", "f32"),
            ("bf16", "bf16"),
            ("s32", "s32"),
            ("s8", "s32"),
        ):
            use = f"dot_general {kind}{left} {kind}{right} {numbers} dtype={to}"
            exact = kind in ("s32", "s8")
            out.append(sample(f"dot_general-{kind}-{to}-{name}", use, f"{to}{result}", exact=exact))
    return out


SAMPLES = [*elementwise(), *choosing(), *making(), *moving(), *places(), *summing()]
BY_OP: dict[str, list[Sample]] = {}
for _sample in SAMPLES:
    BY_OP.setdefault(_sample.op, []).append(_sample)
