"""Compiled programs: donation, provenance in the metadata, keeping them as bytes, refusals."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate, numpy_dtype
from graphgen.ir import DType, Function, Module, dtype, loc, tensor
from graphgen.ir.dtype import f32, f64, s32, s64
from graphgen.lowering.abi import donated
from graphgen.lowering.cpu import (
    CpuProgram,
    compile_program,
    configure,
    cpu_key,
    load_program,
    pjrt,
)
from graphgen.lowering.cpu.pjrt import join, put
from graphgen.lowering.cpu.program import program_key, serialize_program
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse

COUNTER = """\
module @m level=target{mesh} {{
  input %x : f32[3,4]
  state %k : f32[3,4]
  output %y : f32[3,4]
}}

func @decode phase=decode {{
  arg %x : f32[3,4]
  arg %k : f32[3,4]
  %n = add(%k, %x) : f32[3,4]
  %y = negate(%k) : f32[3,4]
  return y = %y
  return k = %n
}}
"""


def counter(ranks: int = 1) -> tuple[Module, Function]:
    module = parse(COUNTER.format(mesh=f" mesh=tp:{ranks}" if ranks > 1 else ""))
    return module, module.function("decode")


def pointer(array: Any) -> int:
    return array.unsafe_buffer_pointer()


def test_states_are_what_is_donated():
    module, function = counter()
    assert donated(module, function) == {1: 1}
    assert compile_program(module, function).states == {"k"}
    assert "tf.aliasing_output = 1" in emit_stablehlo(module, function)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_state_stays_where_it_is(ranks: int):
    program = compile_program(*counter(ranks))
    x = put([np.full((3, 4), rank + 1, np.float32) for rank in range(ranks)])
    # JAX may borrow the memory of a NumPy array and has to leave that alone: own it first.
    k = join(program.launch({"x": x, "k": put([np.zeros((3, 4), np.float32)] * ranks)})["k"])
    homes = [pointer(shard.data) for shard in k.addressable_shards]
    for step in range(1, 4):
        out = program.launch({"x": x, "k": k})
        assert k.is_deleted()
        assert not x.is_deleted()
        assert [pointer(array) for array in out["k"]] == homes
        for rank, array in enumerate(out["y"]):
            np.testing.assert_array_equal(np.asarray(array), -step * (rank + 1))
        k = join(out["k"])
    for rank, shard in enumerate(k.addressable_shards):
        np.testing.assert_array_equal(np.asarray(shard.data), 4 * (rank + 1))


def test_arrays_of_the_caller_are_not_donated():
    program = compile_program(*counter())
    given = {"x": np.ones((3, 4), np.float32), "k": np.zeros((3, 4), np.float32)}
    for _ in range(2):
        (out,) = program.run_numpy([given])
        np.testing.assert_array_equal(out["k"], 1)
    np.testing.assert_array_equal(given["k"], 0)


def test_every_cache_of_a_model_stays_where_it_is():
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True, phases=("decode",))
    run_pipeline(module, default(CompileConfig(batch=(2,), tokens=(8,))))
    (function,) = module.programs()
    program = compile_program(module, function)
    caches = {f"model.layers.{i}.self_attn.{x}_cache" for i in range(2) for x in "kv"}
    assert program.states == caches
    values = {
        name: put([np.zeros(type_.dims, numpy_dtype(type_.dtype))])
        for name, type_ in program.arguments
    }
    out = program.launch(values)
    assert all(values[name].is_deleted() for name in caches)
    homes = {name: pointer(out[name][0]) for name in caches}
    out = program.launch({**values, **{name: out[name][0] for name in caches}})
    assert {name: pointer(out[name][0]) for name in caches} == homes


def test_provenance_reaches_the_metadata():
    module = Module("m", "target")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (64, 64)), "x")
    where = loc("my/model.py", 42, "model.layers.3.mlp", ("partition", "legalize"))
    y = Builder(function, loc=where).dot(x, x)
    function.outputs = [("y", y)]
    text = executable_text(compile_program(module, function))
    line = next(line for line in text.splitlines() if "dot" in line and "metadata" in line)
    assert 'op_name="model/layers/3/mlp via partition,legalize"' in line
    # File and line stand in tables of their own since XLA keeps stack frames.
    assert '"my/model.py"' in text or 'source_file="my/model.py"' in text
    assert re.search(r"line=42\b", text)


def executable_text(program: CpuProgram) -> str:
    executable = cast(Any, program.executable)
    return executable.hlo_modules()[0].to_string()


def test_models_have_scopes_in_their_metadata():
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True, phases=("decode",))
    run_pipeline(module, default(CompileConfig(tokens=(8,))))
    (function,) = module.programs()
    text = executable_text(compile_program(module, function))
    assert re.search(r'op_name="model/layers/1/self_attn/o_proj via [\w,-]+"', text)
    assert "graphgen/nn/linear.py" in text


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_program_kept_as_bytes_gives_the_same(ranks: int):
    module, function = counter(ranks)
    random = np.random.default_rng(0)
    given = [
        {name: random.standard_normal((3, 4)).astype(np.float32) for name in "xk"}
        for _ in range(ranks)
    ]
    program = compile_program(module, function)
    data = serialize_program(program)
    again = load_program(module, function, data)
    assert again is not None
    assert again.arguments == program.arguments
    assert again.outputs == program.outputs == ("y", "k")
    for one, other, numpy in zip(
        program.run_numpy(given),
        again.run_numpy(given),
        [evaluate(function, rank) for rank in given],
        strict=True,
    ):
        for name in ("y", "k"):
            np.testing.assert_array_equal(one[name], other[name])
            np.testing.assert_array_equal(one[name], numpy[name])


def test_a_loaded_program_donates_as_well():
    module, function = counter()
    program = load_program(module, function, serialize_program(compile_program(module, function)))
    assert program is not None
    x = put([np.ones((3, 4), np.float32)])
    (k,) = program.launch({"x": x, "k": put([np.zeros((3, 4), np.float32)])})["k"]
    home = pointer(k)
    out = program.launch({"x": x, "k": k})
    assert k.is_deleted()
    assert pointer(out["k"][0]) == home


def test_the_key_of_a_program_is_its_text_and_the_machine(monkeypatch: pytest.MonkeyPatch):
    key = program_key("text")
    assert key == program_key("text")
    assert key != program_key("other text")
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        assert key != program_key("text")
    with monkeypatch.context() as patch:
        patch.setenv("GRAPHGEN_XLA_CODE", "quick")
        assert key != program_key("text")
    monkeypatch.setenv("GRAPHGEN_XLA_CODE", "optimized")
    assert key == program_key("text")
    assert re.fullmatch(r"[0-9a-f]{16}", cpu_key())


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", True),
        ("--xla_cpu_max_isa=AVX2", False),
        ("--xla_one=1 --xla_cpu_max_isa=AVX512_BF16", False),
        ("--xla_cpu_max_isa=AVX2 --xla_cpu_max_isa=AMX_FP16", True),
    ],
)
def test_a_limit_of_xla_leaves_the_matrix_unit_out(
    flags: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    info = tmp_path / "cpuinfo"
    info.write_text("flags : avx2 amx_bf16\n")
    monkeypatch.setattr(pjrt, "Path", lambda _: info)
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert pjrt.has_matrix_unit() == expected
    monkeypatch.setenv("XLA_FLAGS", "")
    info.write_text("flags : avx2\n")
    assert not pjrt.has_matrix_unit()


def test_quick_code_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch):
    given = {"x": np.full((3, 4), 2, np.float32), "k": np.ones((3, 4), np.float32)}
    programs: list[CpuProgram] = []
    for kind in ("optimized", "quick"):
        monkeypatch.setenv("GRAPHGEN_XLA_CODE", kind)
        programs.append(compile_program(*counter()))
    for program in programs:
        (out,) = program.run_numpy([given])
        np.testing.assert_array_equal(out["y"], -given["k"])
        np.testing.assert_array_equal(out["k"], given["k"] + given["x"])
    assert len({serialize_program(program) for program in programs}) == 2


def test_an_unknown_kind_of_code_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHGEN_XLA_CODE", "fast")
    with pytest.raises(GraphgenError) as caught:
        compile_program(*counter())
    assert (caught.value.code, caught.value.what) == (
        "GG0705",
        "GRAPHGEN_XLA_CODE=fast is not quick or optimized",
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{}], "@decode: %x must be f32[3,4], given nothing"),
        ([{"x": np.zeros((4, 3))}], "@decode: %x must be f32[3,4], given [4, 3]"),
        ([], "@decode runs on 1 ranks, given 0"),
    ],
)
def test_inputs_that_do_not_fit_are_named(given: Any, message: str):
    program = compile_program(*counter())
    with pytest.raises(GraphgenError) as caught:
        program.run_numpy(given)
    assert (caught.value.code, caught.value.what) == ("GG0402", message)


def test_what_xla_refuses_is_an_error_of_ours():
    module = Module("m", "target")
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(f32, (2,)), "x")
    function.outputs = [("y", Builder(function).unary("negate", x))]
    assert x.users
    next(function.ops).result.type = tensor(s32, (2,))
    with pytest.raises(GraphgenError, match="XLA refuses the program") as caught:
        compile_program(module, function)
    assert caught.value.code == "GG0401"


def test_more_devices_than_jax_has_started_with_are_refused():
    assert len(jax.devices("cpu")) >= 2
    configure(2)
    with pytest.raises(GraphgenError) as caught:
        configure(1000)
    assert caught.value.code == "GG0705"
    assert caught.value.what.startswith("1000 CPU devices are needed, and JAX has started with ")


def test_devices_are_made_before_the_first_launch():
    program = (
        "from graphgen.lowering.cpu import configure; configure(3);"
        " import jax; print(len(jax.devices()))"
    )
    env = {k: v for k, v in os.environ.items() if k not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env
    )
    assert ran.stdout.split() == ["3"]


@pytest.mark.parametrize("shape", [(2, 3), ()])
@pytest.mark.parametrize("kind", [s64, f64])
def test_arguments_of_64_bits_arrive_whole_on_every_rank(kind: DType, shape: tuple[int, ...]):
    module = Module("m", "sharded", {"tp": 2})
    function = module.add(Function("f"))
    x = function.block.add_arg(tensor(kind, shape), "x")
    function.outputs = [("y", Builder(function).binary("add", x, x))]
    given = [np.full(shape, 2**40 + rank, numpy_dtype(kind)) for rank in range(2)]
    results = compile_program(module, function).run_numpy([{"x": array} for array in given])
    for array, result in zip(given, results, strict=True):
        assert result["y"].dtype == array.dtype
        np.testing.assert_array_equal(result["y"], 2 * array)
