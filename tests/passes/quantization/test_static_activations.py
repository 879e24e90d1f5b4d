"""Activations in 8 bits with fixed scales: from a file of ranges, or those of a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Array, evaluate
from graphgen.exec.session import Workload
from graphgen.ir import Function, Module, Role, entry, tensor
from graphgen.ir.dtype import f32, s8
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import default
from graphgen.passes.quantization.cache_ranges import write_ranges
from graphgen.passes.quantization.product_statistics import add_range_outputs
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.matrix.cells import input_ranges
from tests.passes.quantization.test_quantize_activations import ONE, Q, X, mini, product

KINDS = {
    "s8": np.int8,
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}


def options(ranges: Path | None, *more: str) -> str:
    file = [] if ranges is None else [f"ranges={ranges}"]
    return f"quantize-activations{{{','.join(['scale=static', *file, *more])}}}"


def values(
    module: Module, element: str, scale: Array | None = None, *, meaning: bool = False
) -> Array:
    given = {"x": X, "q": Q.astype(KINDS[element])}
    given |= {} if scale is None else {"q.input_scale": scale}
    return evaluate(module.function("f"), given, MEANING if meaning else NATIVE)["y"]


@pytest.fixture
def ranges(tmp_path: Path) -> Path:
    """A file in which what %q is multiplied by is 500 at most: half of what X has."""
    write_ranges(tmp_path / "ranges.json", {}, {"q": 500.0})
    return tmp_path / "ranges.json"


@pytest.mark.parametrize("native", [[], ["native=[s8]"]])
def test_int8_inputs_have_one_scale_and_are_clamped_beyond_it(ranges: Path, native: list[str]):
    module = product("s8")
    run_pipeline(module, parse_pipeline(options(ranges, *native)))
    scale = 500 / 127
    numbers = np.clip(np.rint(X / scale), -127, 127)
    assert numbers[1, 0] == 127
    np.testing.assert_allclose(values(module, "s8"), numbers @ Q.T * scale, rtol=1e-6)
    (dot,) = [op for op in module.function("f").ops if op.name == "dot_general"]
    assert {value.dtype.name for value in dot.operands} == {"s8" if native else "f32"}


@pytest.mark.parametrize(("element", "limit"), [("f8e4m3", 240), ("f8e4m3fn", 240)])
def test_f8_inputs_end_at_240(ranges: Path, element: str, limit: float):
    # Neuron's f8e4m3 ends there; OCP's is stored for it until the target is known.
    module = product(element)
    run_pipeline(module, parse_pipeline(options(ranges)))
    scale = np.float32(500 / limit)
    numbers = np.clip(X / scale, -limit, limit).astype(KINDS[element]).astype(np.float32)
    np.testing.assert_allclose(values(module, element), numbers @ Q.T * scale, rtol=1e-6)


def test_nothing_but_the_clamp_is_left_in_double_precision(ranges: Path):
    module = product("s8")
    run_pipeline(module, parse_pipeline(options(ranges)))
    wanted = np.clip(X, -500, 500) @ Q.T
    np.testing.assert_allclose(values(module, "s8", meaning=True), wanted, rtol=1e-6)


def test_chosen_experts_have_no_range_of_what_they_are_chosen_by(tmp_path: Path):
    module = Module("m", level="canonical")
    function = module.add(Function("f", phase="decode"))
    with Builder(function, module) as b:
        x, router = b.input("x", f32, (1, 4)), b.weight("router", f32, (3, 4))
        _, chosen = b.top_k(b.dot(x, router), 1)
        expert = b.take(b.weight("experts", s8, (3, 6, 4)), b.reshape(chosen, (1,)), 0, 1)
        b.output("y", b.dot(x, b.convert(b.reshape(expert, (6, 4)), f32)))
    write_ranges(tmp_path / "ranges.json", {}, {"router": 500.0})
    run_pipeline(module, parse_pipeline(options(tmp_path / "ranges.json")))
    assert not any(op.name == "clamp" for op in function.ops)


def with_scale(element: str) -> Module:
    """A product with q.weight, and a row for the checkpoint's scale of its input."""
    module = product(element)
    module.interface["q.input_scale"] = entry(Role.WEIGHT, "q.input_scale", tensor(f32, (1,)))
    return module


@pytest.mark.parametrize(
    ("element", "more", "factor", "limit"),
    [
        ("s8", [], 1.0, 127),
        # OCP's scale and type; and both made Neuron's, as ReadQuantized makes those of weights.
        ("f8e4m3fn", [], 1.0, 448),
        ("f8e4m3fn", ["rescaled=true"], 448 / 240, 240),
    ],
)
def test_scales_of_a_checkpoint(element: str, more: list[str], factor: float, limit: float):
    module = with_scale(element)
    run_pipeline(module, parse_pipeline(options(None, *more)))
    given = np.array([1.5], np.float32)
    scale = given * np.float32(factor)
    numbers = np.clip(X / scale, -limit, limit)
    kept = np.rint(numbers) if element == "s8" else numbers.astype(KINDS[element])
    found = values(module, element, given)
    np.testing.assert_allclose(found, kept.astype(np.float32) @ Q.T * scale, rtol=1e-6)


def test_a_scale_is_prepared_once():
    module = with_scale("s8")
    run_pipeline(module, parse_pipeline(f"{options(None)},lift-weights,dce"))
    rows = {row.name: row.physical.text for row in module.entries(Role.PARAM)}
    assert [name for name in rows if "input_scale" in name] != []
    assert module.function("f").arg("q.input_scale") is None


@pytest.mark.parametrize("element", ["s8", "f8e4m3fn"])
def test_inputs_of_weights_that_a_checkpoint_stores_narrow_are_measured(element: str):
    module = product(element)
    assert add_range_outputs(module) == {"q": "range.q"}
    found = evaluate(module.function("f"), {"x": X, "q": Q.astype(KINDS[element])}, NATIVE)
    np.testing.assert_array_equal(found["range.q"], np.abs(X).max(1))


def ranges_of(module: Module, workload: Workload, path: Path) -> dict[str, float]:
    """The largest inputs of products over the calls, in a file as ``graphgen calibrate`` writes."""
    found = input_ranges(module, workload)
    write_ranges(path, {}, found)
    return found


@pytest.mark.parametrize(
    ("element", "target", "tp"),
    [
        ("int8", "cpu", 2),
        ("f8e4m3", "trn2", 1),
        pytest.param("f8e5m2", "cpu", 1, marks=pytest.mark.slow),
        pytest.param("f8e4m3", "cpu", 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.one_in(2)
def test_every_pass_keeps_the_meaning(element: str, target: str, tp: int, tmp_path: Path):
    module = mini("bf16")
    workload = make_workload(module)
    found = ranges_of(module, workload, tmp_path / "ranges.json")
    assert {name.split(".")[-2] for name in found} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"),
    }
    config = replace(
        ONE,
        quantization=f"quantize-weights{{dtype={element}}}",
        target=target,
        tp=tp,
        activation_quantization_type="static",
        activation_ranges=str(tmp_path / "ranges.json"),
    )
    verdicts = validate(module, default(config), workload)
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    (own,) = [v for v in verdicts if v.pass_text.startswith("quantize-activations")]
    assert own.rounding.relative > 1e-3


def test_ranges_are_the_largest_inputs(tmp_path: Path):
    module = mini()
    found = ranges_of(module, make_workload(module), tmp_path / "ranges.json")
    # q, k and v read one norm, gate and up another.
    layer = "model.layers.1"
    names = [f"{layer}.self_attn.{name}_proj.weight" for name in "qkv"]
    assert len({found[name] for name in names}) == 1
    assert found[f"{layer}.mlp.gate_proj.weight"] != found[names[0]]
    assert all(value > 0 for value in found.values())


def test_one_scale_of_fused_projections_and_none_a_rank(tmp_path: Path):
    module = mini()
    workload = make_workload(module)
    ranges_of(module, workload, tmp_path / "ranges.json")
    config = replace(
        ONE,
        tp=2,
        activation_quantization_type="static",
        activation_ranges=str(tmp_path / "ranges.json"),
    )
    run_pipeline(module, default(config))
    program = next(f for f in module.programs() if f.phase == "decode")
    assert not [
        op
        for op in program.ops
        if op.name == "reduce"
        and op.result.dtype is f32
        and op.attrs.text("kind") == "maximum"
        and op.operands[0].producer("abs")
    ]
    kinds = [op.attrs.text("kind") for op in program.ops if op.name == "all_reduce"]
    assert kinds == ["add"] * 5


def test_mistakes_are_named(ranges: Path, tmp_path: Path):
    def message(module: Module, text: str) -> str:
        with pytest.raises(GraphgenError) as caught:
            run_pipeline(module, parse_pipeline(text))
        return str(caught.value)

    assert "scale=dynamic reads no ranges" in message(
        product("s8"), f"quantize-activations{{ranges={ranges}}}"
    )
    assert "the checkpoint has scales of no input: not of that of q" in message(
        product("s8"), options(None)
    )
    write_ranges(tmp_path / "other.json", {}, {"another": 1.0})
    shown = message(product("s8"), options(tmp_path / "other.json"))
    assert "has ranges of no input: not of that of q" in shown
    assert "graphgen calibrate MODEL" in shown
    (tmp_path / "caches.json").write_text('{"format": 1, "largest": {}}')
    assert 'it has no "inputs"' in message(product("s8"), options(tmp_path / "caches.json"))
    with pytest.raises(GraphgenError, match="activation_ranges has no effect on dynamic"):
        default(replace(ONE, activation_ranges=str(ranges)))


def test_a_product_without_a_range_says_so(ranges: Path):
    module = product("s8")
    write_ranges(ranges, {}, {"other": 1.0})
    journal = Journal()
    with pytest.raises(GraphgenError):
        run_pipeline(module, parse_pipeline(options(ranges)), journal=journal)
    assert [miss.why.reason for miss in journal.misses if "q" in miss.why.reason] == [
        "the file has no range for q"
    ]
