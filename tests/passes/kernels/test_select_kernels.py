"""Calls of the CPU's kernels: what becomes one, what stays beside it, and what is shared."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, Op, dtype
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import default
from graphgen.passes.validate import PassChecks, validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.matrix.axes import AXES, config_of

ROWS = "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32"
DOT = f"%d = dot_general(%x, %w) {ROWS} : f32[2,64]"
HALVES = (
    "%l = slice(%d) start_indices=[0,0] limit_indices=[2,32] : f32[2,32]",
    "%a = silu(%l) : f32[2,32]",
    "%r = slice(%d) start_indices=[0,32] limit_indices=[2,64] : f32[2,32]",
)
GATE = (*HALVES, "%y = multiply(%a, %r) : f32[2,32]")


def module(*ops: str, returned: Sequence[str] = ("y",), columns: int = 64) -> Module:
    """A program of x f32[2,8] and res f32[2,64] with the weights w f32[64,8] and n f32[8]."""
    types = {op.split(" = ")[0]: op.rpartition(" : ")[2] for op in ops}
    values = {"x": "f32[2,8]", "res": "f32[2,64]", "each": "f32[2]"}
    weights = {"w": f"f32[{columns},8]", "n": "f32[8]", "bias": "f32[64]"}
    lines = ["module @m level=canonical {"]
    lines += [f"  input %{name} : {type_}" for name, type_ in values.items()]
    lines += [f"  weight %{name} : {type_}" for name, type_ in weights.items()]
    lines += [f"  output %{name} : {types[f'%{name}']}" for name in returned]
    lines += ["}", "", "func @f phase=decode {"]
    lines += [f"  arg %{name} : {type_}" for name, type_ in (values | weights).items()]
    lines += [f"  {op}" for op in ops]
    lines += [f"  return {name} = %{name}" for name in returned]
    return parse("\n".join([*lines, "}", ""]))


def selected(item: Module, journal: Journal | None = None) -> Module:
    run_pipeline(item, parse_pipeline("select-kernels"), journal=journal)
    return item


def calls(item: Module, program: str = "f") -> list[Op]:
    return [op for op in item.function(program).block if op.name == "call"]


def configs(item: Module, program: str = "f") -> list[dict[str, object]]:
    return [json.loads(op.attrs.text("config")) for op in calls(item, program)]


def names(item: Module, function: str) -> list[str]:
    """The ops of a function, without the packing of a weight."""
    packing = ("reshape", "transpose", "pad", "constant", "slice")
    return [op.name for op in item.function(function).block if op.name not in packing]


def test_a_gated_product_is_one_call():
    item = selected(module(DOT, *GATE))
    (config,) = configs(item)
    assert (config["columns"], config["activation"]) == (32, "silu")
    assert names(item, "f") == ["call"]
    assert names(item, "kernel.linear") == ["dot_general", "silu", "multiply"]


@pytest.mark.parametrize(
    ("ops", "returned"),
    [
        # The product is read besides.
        ((DOT, *GATE, "%z = negate(%d) : f32[2,64]"), ("y", "z")),
        ((DOT, *GATE), ("y", "d")),
        # The active half is.
        ((DOT, *GATE), ("y", "a")),
        # Both halves are the same one.
        ((DOT, *HALVES[:2], "%y = multiply(%a, %l) : f32[2,32]"), ("y",)),
        # A sum is not a gate.
        ((DOT, *HALVES, "%y = add(%a, %r) : f32[2,32]"), ("y",)),
        # The left half is not activated.
        ((DOT, HALVES[0], HALVES[2], "%y = multiply(%l, %r) : f32[2,32]"), ("y",)),
        # The right half is.
        (
            (
                *(DOT, HALVES[0], HALVES[2], "%a = silu(%r) : f32[2,32]"),
                "%y = multiply(%a, %l) : f32[2,32]",
            ),
            ("y",),
        ),
    ],
)
def test_what_is_not_a_gate_stays_behind_the_product(ops: Sequence[str], returned: Sequence[str]):
    item = selected(module(*ops, returned=returned))
    (config,) = configs(item)
    assert (config["columns"], config["activation"]) == (64, "none")
    assert names(item, "kernel.linear") == ["dot_general"]


def test_halves_that_are_no_whole_tiles_are_no_gate():
    text = "\n".join([DOT, *GATE]).replace("64]", "24]").replace("32]", "12]")
    item = selected(module(*text.replace("[0,32]", "[0,12]").splitlines(), columns=24))
    (config,) = configs(item)
    assert (config["columns"], config["activation"]) == (24, "none")
    # Two tiles, of which the second is half full.
    (call,) = calls(item)
    assert call.operands[1].type.text == "f32[2,8,16]"


@pytest.mark.parametrize("order", ["%d, %res", "%res, %d"])
def test_a_residual_is_added_by_the_kernel(order: str):
    item = selected(module(DOT, f"%y = add({order}) : f32[2,64]"))
    (config,) = configs(item)
    assert config["residual"] is True
    assert names(item, "f") == ["call"]
    (call,) = calls(item)
    assert [value.name for value in call.operands][-1] == "res"


BIAS = (
    "%b = broadcast_in_dim(%bias) shape=[2,64] dimensions=[1] : f32[2,64]",
    "%s = add(%d, %b) : f32[2,64]",
)


@pytest.mark.parametrize(
    ("ops", "found"),
    [
        (BIAS, (True, False)),
        ((*BIAS, "%y = add(%res, %s) : f32[2,64]"), (True, True)),
        # A second one is not a residual.
        ((*BIAS, "%y = add(%s, %b) : f32[2,64]"), (True, False)),
        # One number for each row.
        (
            (
                "%b = broadcast_in_dim(%each) shape=[2,64] dimensions=[0] : f32[2,64]",
                "%y = add(%d, %b) : f32[2,64]",
            ),
            (False, False),
        ),
        (("%y = multiply(%d, %res) : f32[2,64]",), (False, False)),
    ],
)
def test_a_bias_is_added_by_the_kernel(ops: Sequence[str], found: tuple[bool, bool]):
    last = ops[-1].split(" = ")[0].removeprefix("%")
    item = selected(module(DOT, *ops, returned=(last,)))
    (config,) = configs(item)
    assert (config["bias"], config["residual"]) == found
    behind = 0 if sum(found) == len([op for op in ops if "add" in op]) and any(found) else 1
    assert len([name for name in names(item, "f") if name in ("add", "multiply")]) == behind


NORM = "%h = rms_norm(%x, %n) epsilon=0.5 : f32[2,8]"
NORMED = DOT.replace("%x", "%h").replace("%d", "%y")


def test_a_norm_is_computed_by_the_kernel():
    item = selected(module(NORM, NORMED))
    (config,) = configs(item)
    assert (config["norm"], config["epsilon"]) == (True, 0.5)
    assert names(item, "f") == ["call"]
    (call,) = calls(item)
    assert [value.name for value in call.operands] == ["x", None, "n"]


LAYER = "%h = layer_norm(%x, %n, %n) epsilon=0.5 : f32[2,8]"


def test_a_norm_with_an_offset_is_computed_by_the_kernel():
    item = selected(module(LAYER, NORMED))
    (config,) = configs(item)
    assert (config["norm"], config["offset"], config["epsilon"]) == (True, True, 0.5)
    assert names(item, "f") == ["call"]


ZEROS = (
    "%c = constant() value=f32[](0.0) : f32[]",
    "%z = broadcast_in_dim(%c) shape=[2,64] dimensions=[] : f32[2,64]",
)


@pytest.mark.parametrize(
    ("ops", "kind"),
    [
        (("%y = silu(%s) : f32[2,64]",), "silu"),
        (("%y = gelu(%s) approximate=tanh : f32[2,64]",), "gelu_tanh"),
        ((*ZEROS, "%y = maximum(%s, %z) : f32[2,64]"), "relu"),
        ((*ZEROS, "%y = maximum(%z, %s) : f32[2,64]"), "relu"),
    ],
)
def test_the_activation_of_a_whole_product_is_the_kernels(ops: Sequence[str], kind: str):
    item = selected(module(DOT, *BIAS, *ops))
    (config,) = configs(item)
    assert (config["bias"], config["activation"], config["gated"]) == (True, kind, False)
    assert names(item, "f") == ["call"]


@pytest.mark.parametrize(
    "ops",
    [
        # Not zero, no constant, and another op.
        (ZEROS[0].replace("0.0", "1.0"), ZEROS[1], "%y = maximum(%d, %z) : f32[2,64]"),
        ("%y = maximum(%d, %res) : f32[2,64]",),
        (*ZEROS, "%y = minimum(%d, %z) : f32[2,64]"),
    ],
)
def test_what_is_no_activation_stays_behind_the_product(ops: Sequence[str]):
    item = selected(module(DOT, *ops))
    assert configs(item)[0]["activation"] == "none"
    assert names(item, "f")[-1] in ("maximum", "minimum")


def test_an_activation_that_is_added_to_is_one_call_and_an_addition():
    item = selected(module(DOT, "%a = silu(%d) : f32[2,64]", "%y = add(%a, %res) : f32[2,64]"))
    assert configs(item)[0]["residual"] is False
    assert names(item, "f") == ["call", "add"]


def test_a_norm_that_is_read_twice_is_a_call_of_its_own():
    item = selected(module(NORM, NORMED, "%z = negate(%h) : f32[2,8]", returned=("y", "z")))
    norm, product = configs(item)
    assert (norm["epsilon"], product["norm"]) == (0.5, False)
    assert names(item, "f") == ["call", "call", "negate"]


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        (
            (f"%y = dot_general(%x, %x) {ROWS} : f32[2,2]",),
            "its right operand is not a matrix made of weights alone",
        ),
        (
            (f"%y = dot_general(%w, %w) {ROWS} : f32[64,64]",),
            "its left operand is made of weights itself",
        ),
        (
            (
                "%t = transpose(%x) permutation=[1,0] : f32[8,2]",
                "%y = dot_general(%t, %w) lhs_contracting_dims=[0] rhs_contracting_dims=[1] "
                "dtype=f32 : f32[2,64]",
            ),
            "the left side does not contract its last dimension",
        ),
    ],
)
def test_a_product_that_is_not_selected_has_a_reason(ops: Sequence[str], reason: str):
    journal = Journal()
    item = selected(module(*ops), journal)
    assert calls(item) == []
    assert [miss.why.reason for miss in journal.misses] == [reason]


def test_programs_share_packed_weights_and_functions():
    item = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    config = CompileConfig(batch=(1,), context=(8,), tokens=(8, 16), kernels="on")
    run_pipeline(item, default(config))
    kinds = {name: configs(item, name) for name in ("decode.b1.c8", "decode.b1.c16")}
    layers = 2
    for found in kinds.values():
        # The last norm comes before the choice of a token, not right before a product.
        assert len(found) == 8 * layers + 2
        assert sum("attended" in config for config in found) == layers
        # Queries and keys are rotated; keys and values are written.
        assert sum(config.get("half") == 4 for config in found) == 2 * layers
        assert sum(config.get("half") == 0 for config in found) == layers
    # Both decode programs run the same products and writes, and attend to another number of slots.
    run = [{op.attrs.text("to_apply") for op in calls(item, name)} for name in kinds]
    assert len(run[0] & run[1]) == 9
    assert len(run[0] ^ run[1]) == 2
    packed = [name for name in item.interface if name.endswith(".prepared")]
    assert len(packed) == 4 * layers + 1


# New keys of a layer: the first two heads of a product, rotated and rounded.
HEADS = (
    "%s = slice(%x) start_indices=[0,0,4] limit_indices=[2,1,12] : f32[2,1,8]",
    "%h = reshape(%s) shape=[2,1,2,4] : f32[2,1,2,4]",
    "%t = rope(%h, %cos, %sin) : f32[2,1,2,4]",
    "%c = convert(%t) dtype=bf16 : bf16[2,1,2,4]",
)
WRITE = "%y = kv_update(%k, %c, %ids, %at) : bf16[3,6,2,4]"


def rotation(*ops: str, returned: Sequence[str] = ("y",)) -> Module:
    """A program of rows x f32[2,1,16], tables of two pairs, a cache and places in it."""
    types = {op.split(" = ")[0]: op.rpartition(" : ")[2] for op in ops}
    values = {"x": "f32[2,1,16]", "cos": "f32[2,1,2]", "sin": "f32[2,1,2]"}
    values |= {"k": "bf16[3,6,2,4]", "ids": "s32[2]", "at": "s32[2,1]"}
    lines = ["module @m level=canonical {"]
    lines += [f"  input %{name} : {type_}" for name, type_ in values.items()]
    lines += [f"  output %{name} : {types[f'%{name}']}" for name in returned]
    lines += ["}", "", "func @f phase=decode {"]
    lines += [f"  arg %{name} : {type_}" for name, type_ in values.items()]
    lines += [f"  {op}" for op in ops]
    lines += [f"  return {name} = %{name}" for name in returned]
    return parse("\n".join([*lines, "}", ""]))


def test_keys_are_rotated_rounded_and_written_by_one_call():
    item = selected(rotation(*HEADS, WRITE))
    (config,) = configs(item)
    assert config == {
        "offset": 4,
        "heads": 2,
        "size": 4,
        "half": 2,
        "pairs": "halves",
        "type": "bf16",
        "numbers": "",
        "limit": 0.0,
        "scale": False,
        "row_scale": False,
    }
    assert names(item, "f") == ["call"]
    assert [value.name for value in calls(item)[0].operands] == [
        "k",
        "x",
        "ids",
        "at",
        "cos",
        "sin",
    ]


@pytest.mark.parametrize(
    ("ops", "returned", "left"),
    [
        # The rotated keys are read besides, rounded or not: a rope of its own.
        ((*HEADS, WRITE), ("y", "c"), ["call", "call"]),
        ((*HEADS, WRITE), ("y", "t"), ["call", "call"]),
        # The heads are.
        ((*HEADS, WRITE), ("y", "h"), ["reshape", "call"]),
        # Some rows of the product are not there.
        (
            (
                "%s = slice(%x) start_indices=[0,0,0] limit_indices=[2,1,16] strides=[1,1,2] "
                ": f32[2,1,8]",
                *HEADS[1:],
                WRITE,
            ),
            ("y",),
            ["slice", "call"],
        ),
        # Nothing writes.
        (HEADS, ("c",), ["call"]),
    ],
)
def test_what_more_than_the_cache_reads_stays(
    ops: Sequence[str], returned: Sequence[str], left: Sequence[str]
):
    item = selected(rotation(*ops, returned=returned))
    found = [op.name for op in item.function("f").block if op.name != "slice" or "slice" in left]
    assert found == list(left)


@pytest.mark.one_in(51)
@pytest.mark.parametrize("family", AXES["family"])
@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_selection_means_the_same(family: str, kind: str):
    """Of each family: the functions in double precision, the kernels in the program's own types."""
    item = build(config_of(family), dtype(kind), mini=True)
    config = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), kernels="on")
    checks = PassChecks(evaluator=CpuBackend())
    verdicts = validate(item, default(config), make_workload(item, seed=4), checks)
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    assert "select-kernels" in [verdict.pass_text for verdict in verdicts]


@pytest.mark.parametrize(
    ("sampling", "k"),
    [("on-device-sampling", 1), ("on-device-sampling{do_sample=true,global_topk=9}", 9)],
)
def test_a_choice_among_logits_is_one_call(sampling: str, k: int):
    item = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True, phases=("decode",))
    config = CompileConfig(batch=(2,), tokens=(8,), kernels="on", sampling=sampling)
    run_pipeline(item, default(config))
    found = [each for each in configs(item, item.programs()[0].name) if "k" in each]
    assert found == [{"k": k}]


def test_a_norm_that_no_product_takes_in_is_a_call():
    given = ["%y = rms_norm(%x, %n) epsilon=1e-05 : f32[2,8]"]
    item = selected(module(*given))
    assert configs(item) == [{"offset": False, "epsilon": 1e-05}]
    assert names(item, "kernel.norm") == ["rms_norm"]
