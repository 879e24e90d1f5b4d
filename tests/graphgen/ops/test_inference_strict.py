"""Whatever inference accepts, StableHLO's own verifier accepts, with the same result type."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib.mlir import ir as mlir  # pyright: ignore[reportPrivateImportUsage]

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Function, Literal, Module, TensorType, tensor
from graphgen.ir.dtype import DTYPES, f32, s32
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.ops import OPS, Trait, ops_with
from graphgen.ops.control import CONTROL

# What a use of an op is made of: operand types and attributes.
Use = tuple[list[TensorType], dict[str, AttrValue]]

CONTEXT = jax_mlir.make_ir_context()
NEW = ("s4", "u2", "f8e4m3", "f8e4m3fn", "f8e5m2fnuz", "f4e2m1fn", "c64", "c128")
KINDS = st.sampled_from(
    [DTYPES[name] for name in ("f32", "bf16", "s32", "u8", "pred", "s64", *NEW)]
)
SIZES = st.integers(0, 3)
SHAPES = st.lists(SIZES, max_size=3)
TYPES = st.builds(tensor, KINDS, SHAPES)
PARTS = st.builds(tensor, st.sampled_from([f32, DTYPES["f64"], DTYPES["bf16"]]), SHAPES)
NUMBER_TYPES = st.builds(tensor, st.sampled_from([f32, s32, DTYPES["u8"]]), SHAPES)
INDICES = st.builds(tensor, st.sampled_from([s32, DTYPES["u8"]]), SHAPES)
# Dimension numbers, of which many are nonsense.
NUMBERS = st.lists(st.sampled_from([0, 0, 1, 1, 2, -1, 3]), max_size=3).map(tuple)
SOME = st.lists(SIZES, max_size=3).map(tuple)
NUMBER = st.integers(-1, 3)
REDUCERS = st.sampled_from(["add", "maximum", "minimum"])


def use(operands: list[st.SearchStrategy[TensorType]], **attrs: object) -> st.SearchStrategy[Use]:
    return st.tuples(st.tuples(*operands).map(list), st.fixed_dictionaries(attrs))  # pyright: ignore


def near(type_: TensorType) -> st.SearchStrategy[TensorType]:
    """The same type, mostly."""
    other = st.builds(tensor, KINDS, st.just(type_.shape)) | TYPES
    return st.just(type_) | st.just(type_) | other


def pair(**attrs: object) -> st.SearchStrategy[Use]:
    return TYPES.flatmap(lambda t: use([st.just(t), near(t)], **attrs))


SQUARES = st.tuples(
    st.sampled_from([DTYPES[name] for name in ("f32", "f64", "bf16", "c64", "s32")]),
    st.lists(SIZES, max_size=1),
    SIZES,
).map(lambda made: tensor(made[0], [*made[1], made[2], made[2]]))
SMALL = st.lists(st.sampled_from([1, 2, 2, 3, 0]), min_size=3, max_size=3)
ONE = st.sampled_from([(1,), (2,), (0,), (-1,), (1, 1)])
COUNTS = ("feature_group_count", "batch_group_count")
WINDOW = ("window_dimensions", "window_strides", "low", "high")


def few(rank: int) -> st.SearchStrategy[tuple[int, ...]]:
    """A number a dimension, or one too many."""
    right = st.lists(st.sampled_from([1, 1, 2, 2, 0, -1]), min_size=rank, max_size=rank).map(tuple)
    return st.just((2,) * rank) | st.just((1,) * rank) | right | st.just((1,) * (rank + 1))


GROUPS = st.lists(st.permutations([0, 1, 2]).map(tuple), max_size=2).map(tuple) | st.sampled_from(
    [((0, 1), (2,)), ((0,), (1, 2)), ((),), ((0,), ()), ((1,), (0,)), ((0,), (1,), (2,))]
)
PLAIN = [n for n in ops_with(Trait.ELEMENTWISE) if not (OPS[n].attrs or OPS[n].composite)]
USES: dict[str, st.SearchStrategy[Use]] = {
    "sort": pair(dimension=NUMBER, descending=st.booleans()),
    **{name: use([TYPES]) for name in PLAIN if len(OPS[name].operands) == 1},
    **{name: pair() for name in PLAIN if len(OPS[name].operands) == 2},
    "complex": PARTS.flatmap(lambda t: use([st.just(t), near(t)])),
    "reduce_precision": use([TYPES], exponent_bits=NUMBER, mantissa_bits=NUMBER),
    "clamp": TYPES.flatmap(
        lambda t: use([near(tensor(t.dtype)), st.just(t), near(t) | near(tensor(t.dtype))])
    ),
    "compare": pair(direction=st.sampled_from(["EQ", "LT"])),
    "select": TYPES.flatmap(
        lambda t: use([near(tensor(DTYPES["pred"], t.shape)), st.just(t), near(t)])
    ),
    "convert": use([TYPES], dtype=KINDS),
    "bitcast_convert": use([TYPES], dtype=st.sampled_from(list(DTYPES.values()))),
    "constant": TYPES.map(lambda t: ([], {"value": filled(t)})),
    "iota": use([], dtype=KINDS, shape=SOME, dimension=NUMBER),
    "broadcast_in_dim": use([TYPES], shape=SOME, dimensions=NUMBERS),
    "reverse": use([TYPES], dimensions=NUMBERS),
    "reshape": use([TYPES], shape=SOME),
    "transpose": use([TYPES], permutation=st.permutations(range(2)).map(tuple) | NUMBERS),
    "slice": TYPES.flatmap(
        lambda t: use(
            [st.just(t)],
            **{
                key: st.lists(numbers, min_size=t.rank, max_size=t.rank).map(tuple)
                for key, numbers in (
                    ("start_indices", SIZES),
                    ("limit_indices", SIZES),
                    ("strides", st.integers(0, 2)),
                )
            },
        )
    ),
    "concatenate": pair(dimension=NUMBER),
    "pad": TYPES.flatmap(
        lambda t: use(
            [st.just(t), near(tensor(t.dtype))],
            low=st.lists(NUMBER, min_size=t.rank, max_size=t.rank).map(tuple),
            high=st.lists(NUMBER, min_size=t.rank, max_size=t.rank).map(tuple),
        )
    ),
    "reduce": use([TYPES], dimensions=NUMBERS, kind=REDUCERS),
    "dot_general": pair(
        lhs_contracting_dims=NUMBERS,
        rhs_contracting_dims=NUMBERS,
        lhs_batch_dims=NUMBERS,
        rhs_batch_dims=NUMBERS,
        dtype=KINDS,
    ),
    "convolution": st.tuples(SMALL, SMALL, st.sampled_from([f32, s32])).flatmap(
        lambda t: use(
            [st.just(tensor(t[2], t[0])), near(tensor(t[2], t[1]))],
            dim_labels=st.sampled_from(
                ["b0f_0io->b0f", "bf0_oi0->0bf", "b0f_0oi->b0f", "bf_io->bf"]
            ),
            **{key: st.just(()) | ONE for key in ("low", "high", "window_reversal")},
            **{key: st.just(()) | ONE for key in ("window_strides", "lhs_dilation")},
            rhs_dilation=st.just(()) | ONE,
            **{key: st.sampled_from([1, 1, 1, 2, 0]) for key in COUNTS},
            dtype=st.just(t[2]),
        )
    ),
    "reduce_window": TYPES.flatmap(
        lambda t: use(
            [st.just(t), near(tensor(t.dtype))],
            **{key: few(t.rank) for key in (*WINDOW, "base_dilations", "window_dilations")},
            kind=REDUCERS | st.just("or"),
        )
    ),
    "select_and_scatter": st.tuples(TYPES, SIZES, SIZES).flatmap(
        lambda made: use(
            [
                st.just(made[0]),
                near(tensor(made[0].dtype, [max(n - 1, 0) for n in made[0].dims])),
                st.just(tensor(made[0].dtype)),
            ],
            **{key: few(made[0].rank) for key in WINDOW},
            direction=st.sampled_from(["GE", "LT"]),
            kind=REDUCERS,
        )
    ),
    "triangular_solve": st.tuples(SQUARES, st.booleans(), SIZES).flatmap(
        lambda made: use(
            [
                st.just(made[0]),
                near(
                    tensor(
                        made[0].dtype,
                        (*made[0].dims[:-1], made[2])
                        if made[1]
                        else (*made[0].dims[:-2], made[2], made[0].dims[-1]),
                    )
                ),
            ],
            left_side=st.just(made[1]),
            lower=st.booleans(),
            unit_diagonal=st.booleans(),
            transpose_a=st.sampled_from(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]),
        )
    ),
    "cholesky": use([SQUARES | TYPES], lower=st.booleans()),
    "fft": st.tuples(SHAPES, st.sampled_from(["f32", "f64", "c64", "c128", "bf16"])).flatmap(
        lambda made: use(
            [st.just(tensor(DTYPES[made[1]], made[0]))],
            fft_type=st.sampled_from(["FFT", "IFFT", "RFFT", "IRFFT"]),
            fft_length=SOME
            | st.integers(0, 2).map(lambda first: tuple(made[0][first:]))
            | st.just((*made[0][:-1], *[2 * n - 2 for n in made[0][-1:]])),
        )
    ),
    "rng": KINDS.flatmap(
        lambda kind: use(
            [near(tensor(kind)), st.just(tensor(kind))],
            distribution=st.sampled_from(["rng_uniform", "rng_normal"]),
            dtype=st.just(kind),
            shape=SOME,
        )
    ),
    "rng_bit_generator": use(
        [st.sampled_from([tensor(DTYPES["u64"], (n,)) for n in (2, 3)]) | TYPES],
        algorithm=st.sampled_from(["rng_default", "rng_three_fry", "rng_philox"]),
        dtype=KINDS,
        shape=SOME,
    ),
    "dynamic_slice": TYPES.flatmap(
        lambda t: use(
            [st.just(t), *[INDICES.map(lambda i: tensor(i.dtype))] * t.rank], slice_sizes=SOME
        )
    ),
    "take": use(
        [TYPES, SIZES.flatmap(lambda size: near(tensor(s32, (size,))))],
        dimension=NUMBER,
        block=st.sampled_from([1, 1, 1, 0, 2]),
    ),
    "dynamic_update_slice": TYPES.flatmap(
        lambda t: use([st.just(t), TYPES, *[INDICES.map(lambda i: tensor(i.dtype))] * t.rank])
    ),
    "all_reduce": use([TYPES], kind=REDUCERS, replica_groups=GROUPS),
    "all_gather": use([TYPES], dimension=NUMBER, replica_groups=GROUPS),
    "reduce_scatter": use([NUMBER_TYPES], kind=REDUCERS, dimension=NUMBER, replica_groups=GROUPS),
    "all_to_all": use(
        [TYPES],
        split_dimension=st.integers(0, 2),
        concat_dimension=st.integers(0, 2),
        replica_groups=st.sampled_from([((0, 1),), ((1, 0, 2),), ((0,), (1,)), ((0,), (1, 2))]),
    ),
    "collective_permute": use(
        [TYPES],
        source_target_pairs=st.lists(
            st.tuples(st.integers(-1, 2), st.integers(0, 3)), max_size=3
        ).map(tuple),
    ),
}


def filled(type_: TensorType) -> Literal:
    value: object = True if type_.dtype.name == "pred" else 1.5 if type_.dtype.is_float else 1
    for size in reversed(type_.dims):
        value = [value] * size
    return Literal(type_.dtype, type_.dims, Literal.of(type_.dtype, value).data)


def accepted(name: str, types: list[TensorType], attrs: dict[str, AttrValue]) -> str | None:
    """StableHLO of a function of this one op, ``None`` where inference refuses it."""
    function = Function("f")
    args = [function.block.add_arg(t, f"x{i}") for i, t in enumerate(types)]
    try:
        op = Builder(function).emit(name, args, attrs)
    except GraphgenError:
        return None
    function.outputs = [(f"y{i}", result) for i, result in enumerate(op.results)]
    return emit_stablehlo(Module("m", mesh={"tp": 3}), function, locs=False)


def refusal(text: str) -> str:
    """What jaxlib has against the text; empty when nothing."""
    with CONTEXT:
        try:
            mlir.Module.parse(text).operation.verify()
        except mlir.MLIRError as error:
            return f"{error}\n{text}"
    return ""


def test_every_simple_op_is_tried():
    # Below, with numbers chosen by hand.
    elsewhere = {"gather", "scatter", *CONTROL, "custom_call", "hlo.opaque"}
    assert set(USES) | elsewhere == {name for name, op in OPS.items() if not op.composite}


@pytest.mark.parametrize("name", USES)
@pytest.mark.one_in(6)
def test_what_inference_accepts_is_stablehlo(name: str):
    found: list[str] = []

    @settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
    @given(USES[name])
    def search(made: Use) -> None:
        text = accepted(name, *made)
        if text is not None:
            found.append(text)
            assert refusal(text) == ""

    search()
    assert len(set(found)) >= 3, f"only {len(set(found))} uses of {name} were well formed"


# Chance never makes a gather: right dimension numbers, and for each field some that are not.
GATHER: dict[str, AttrValue] = {
    "offset_dims": (1, 2),
    "collapsed_slice_dims": (0,),
    "start_index_map": (0, 2),
    "index_vector_dim": 1,
    "slice_sizes": (1, 3, 2),
}
SCATTER: dict[str, AttrValue] = {
    "update_window_dims": (1, 2),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0, 2),
    "index_vector_dim": 1,
}
OPERAND, AT, UPDATES = tensor(f32, (4, 3, 2)), tensor(s32, (5, 2)), tensor(f32, (5, 3, 2))
FIELDS: dict[str, list[AttrValue]] = {
    "offset_dims": [(1, 2), (0, 1), (0, 2), (2, 1), (1, 1), (0, 3), (1,), (0, 1, 2)],
    "update_window_dims": [(1, 2), (0, 1), (0, 2), (2, 1), (1, 1), (0, 3), (1,), (0, 1, 2)],
    "collapsed_slice_dims": [(0,), (1,), (), (0, 0), (1, 0), (0, 2), (3,)],
    "inserted_window_dims": [(0,), (1,), (), (0, 0), (1, 0), (0, 2), (3,)],
    "start_index_map": [(0, 2), (2, 0), (0, 0), (1, 1), (0, 3), (0,)],
    "scatter_dims_to_operand_dims": [(0, 2), (2, 0), (0, 0), (1, 1), (0, 3), (0,)],
    "index_vector_dim": [0, 1, 2, 3],
    "slice_sizes": [(1, 3, 2), (1, 1, 1), (0, 3, 2), (1, 4, 2), (1, 3), (1, 3, 0)],
}


@pytest.mark.parametrize(
    ("name", "base", "types"),
    [("gather", GATHER, [OPERAND, AT]), ("scatter", SCATTER, [OPERAND, AT, UPDATES])],
)
def test_two_fields_changed(name: str, base: dict[str, AttrValue], types: list[TensorType]):
    texts: set[str] = set()
    for first, second in combinations(base, 2):
        for one, other in product(FIELDS[first], FIELDS[second]):
            text = accepted(name, types, {**base, first: one, second: other})
            if text is not None:
                texts.add(text)
    assert len(texts) >= 4
    assert [found for text in sorted(texts) if (found := refusal(text))] == []
