"""Findings of a first-time user, and the tests that keep them mended.

| finding | test |
|---|---|
| ``equiv`` after ``default`` of a module of phase ``main`` | here: test_equiv_after_default |
| ``validate`` of modules with symbols | here: test_validate_with_symbols |
| experts stay whole in silence | tests/passes/spmd/test_experts.py |
| ``run`` and ``lower`` of imports | here: test_imports_lower_like_built_modules |
| a collective in ``@weights.rank`` | here: test_collectives_stay_in_programs |
| symbols of any name | here: test_symbols_of_any_name |
| a page of the builder's methods | tests/graphgen/build/test_builder_page.py |
| convolutions | tests/passes/sharding/test_convolution.py |
| top-level names | tests/test_packaging.py |
| a lowered program with kernels of Neuron on the CPU | here: test_kernels_run_on_the_cpu |
| errors of two styles | tests/graphgen/cli/test_usage_errors.py |
| ``self.bias[i]``, a table looked up by numbers | here: test_rows_of_a_parameter |
| experts of transformers 5 | tests/import_table: rows Mixtral, Qwen2-MoE, docs/importing.md |
| MLA: values of another width | test_attention_terms.py: test_values_may_be_of_another_width |
| biases and soft caps | test_attention_terms.py: test_what_is_done_to_scores_is_part_of_attention |
| YaRN in checkpoints | test_models.py: test_yarn_frequencies_are_those_of_transformers |
| dynamic rope: refused | test_models.py: REFUSED; test_export_model.py, for imports |
| neighbours of a user's file | here: test_a_file_imports_its_neighbours |
| commands that load a pass and do not run it | test_the_pass_of_the_readme_is_run_and_right |

test_attention_terms.py is in tests/passes/raising, test_models.py in tests/graphgen/models and
test_export_model.py in tests/lowering/aten; test_the_table_names_what_is_there reads this table.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphgen as gg
from graphgen.errors import GraphgenError
from graphgen.ir import Dim
from graphgen.passes.core import run_pipeline
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.partial_pipeline import remaining
from graphgen.passes.pipelines import parse
from tests.graphgen.cli.conftest import done, error

F32 = gg.dtype("f32")


def gated(phase: str, rows: Dim, steps: Dim, *, level: str = "logical") -> gg.Module:
    """A gated MLP over embeddings: its projections are prepared by ``lift-weights``."""
    module = gg.Module("gated", level)
    with gg.Builder(module.add(gg.Function("main", phase=phase)), module) as b:
        tokens = b.input("tokens", gg.dtype("s32"), (rows, steps))
        x = b.embedding(b.weight("embed.weight", F32, (12, 8)), tokens)
        x = b.rms_norm(x, b.weight("norm.weight", F32, (8,)), 1e-5)
        gate = b.silu(b.dot(x, b.weight("gate.weight", F32, (16, 8))))
        up = b.dot(x, b.weight("up.weight", F32, (16, 8)))
        b.output("y", x + b.dot(gate * up, b.weight("down.weight", F32, (8, 16))))
    return module


def flat(size: Dim) -> gg.Module:
    """An MLP over N rows."""
    module = gg.Module("flat")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", F32, (size, 8))
        hidden = b.silu(b.dot(x, b.weight("up.weight", F32, (16, 8))))
        b.output("y", b.dot(hidden, b.weight("down.weight", F32, (8, 16))))
    return module


def written(module: gg.Module, folder: Path) -> Path:
    """The module as a file."""
    path = folder / f"{module.name}.gg"
    path.write_text(gg.print_module(module), encoding="utf-8")
    return path


B, S, N = gg.symbol("B"), gg.symbol("S"), gg.symbol("N")


@pytest.mark.parametrize("phase", ["main", "prefill", "score"])
@pytest.mark.parametrize("sizes", [(2, 4), (B, S)], ids=["numbers", "symbols"])
def test_equiv_after_default(phase: str, sizes: tuple[Dim, Dim]):
    before, after = gated(phase, *sizes), gated(phase, *sizes)
    run_pipeline(after, parse("default{context=[8],tokens=[8]}"))
    assert "gate-up.weight.prepared" in after.interface
    assert equivalent(before, after).equal
    changed = gated(phase, *sizes)
    (program,) = changed.programs()
    silu = next(op for op in program.block if op.name == "silu")
    program.replace_uses(silu.results[0], silu.operands[0])
    run_pipeline(changed, parse("default{context=[8],tokens=[8]}"))
    assert not equivalent(before, changed).equal


@pytest.mark.parametrize("level", ["logical", "canonical"])
@pytest.mark.parametrize("phase", ["main", "score"])
def test_validate_with_symbols(phase: str, level: str, tmp_path: Path):
    file = written(gated(phase, B, S, level=level), tmp_path)
    found = done("validate", file, "-p", "default", "--no-rewrites").stdout
    assert "FAILED" not in found
    assert "programs 1 of 1, B=3, C=8" in found
    other = done("validate", file, "-p", "default{batch=[2],context=[4]}", "--no-rewrites").stdout
    assert "B=2, C=4" in other


def test_validate_takes_sizes_of_symbols(tmp_path: Path):
    file = written(flat(N), tmp_path)
    for pipeline in ("default", "canonicalize,cse"):
        found = done("validate", file, "-p", pipeline, "--dims", "N=5", "--no-rewrites").stdout
        assert "programs 1 of 1, N=5" in found
    assert "no symbol 'T'" in error("validate", file, "--dims", "T=5")


def test_imports_lower_like_built_modules(tmp_path: Path):
    module = gated("main", B, S, level="canonical")
    module.meta["format"] = "torch.export"
    names = [item.name for item in remaining(module)]
    assert {"specialize", "fuse-projections", "lift-weights", "legalize"} <= set(names)
    file = written(module, tmp_path)
    by_numpy, by_xla = (done("run", file, "--on", on) for on in ("numpy", "cpu"))
    assert by_numpy.stdout.split()[:9] == by_xla.stdout.split()[:9]
    assert "B=1, S=8 by default" in by_xla.stderr
    lowered = done("lower", file, "--dims", "B=2,S=4", "-o", tmp_path / "out.mlir").stderr
    assert "specialize{dims=[B=2,S=4]" in lowered
    assert "fuse-projections" in lowered
    assert "tensor<2x4x" in (tmp_path / "out.mlir").read_text(encoding="utf-8")


def test_symbols_of_any_name(tmp_path: Path):
    module = flat(N)
    with pytest.raises(GraphgenError, match="no size for N") as caught:
        run_pipeline(module, parse("default"))
    assert (caught.value.code, "dims=[N=8]" in caught.value.help) == ("GG0302", True)
    for pipeline in ("default{dims=[N=8]}", "canonicalize,specialize{dims=[N=8]},legalize"):
        module = flat(N)
        run_pipeline(module, parse(pipeline))
        (program,) = module.programs()
        assert (program.name, dict(program.dims)) == ("main.n8", {"N": 8})
    file = written(flat(N), tmp_path)
    assert "f32[5,8]" in done("run", file, "--dims", "N=5").stdout
    assert "tensor<5x8xf32>" in done("lower", file, "--dims", "N=5").stdout
    assert "@main.n5" in done("cost", file, "--dims", "N=5").stdout
    done("check", file, "--target", "trn2", "--dims", "N=5")
    assert "main.n5" in done("hash", file, "--dims", "N=5").stdout


@pytest.mark.parametrize("text", ["N", "N=0", "N=x", "N=4,N=5", "=4"])
def test_sizes_that_are_none(text: str):
    with pytest.raises(GraphgenError, match="GG0302"):
        run_pipeline(flat(N), parse(f"default{{dims=[{text}]}}"))


def test_dims_name_the_options_of_a_serving_model():
    program = parse("specialize{dims=[B=2,S=16,C=32,M=64,R=4]}")
    module = gated("prefill", B, S)
    run_pipeline(module, program)
    (made,) = module.programs()
    assert dict(made.dims) == {"B": 2, "S": 16, "C": 16, "R": 4, "M": 64}


def test_kernels_run_on_the_cpu(tmp_path: Path):
    module = gg.Module("choose")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        best, at = b.top_k(b.input("x", F32, (3, 40)), 2)
        b.output("best", best)
        b.output("at", at)
    file, lowered = written(module, tmp_path), tmp_path / "choose.pb"
    done("lower", file, "--target", "trn2", "--to", "hlo", "-o", lowered)
    assert "AwsNeuronTopK" in done("inspect", lowered).stdout
    outputs = [done("run", each, "--on", "cpu").stdout.split("\n")[1:3] for each in (file, lowered)]
    values = [[line.split()[1:] for line in found] for found in outputs]
    assert values[0][0] == values[1][0]
    assert values[0][1][1:] == values[1][1][1:]


SCANNED = """\
module @scan level=canonical {
  input %x : f32[4,8]
  weight %a : f32[8,8]
  output %y : f32[4,8]
}

func @step {
  arg %n : s32[]
  arg %h : f32[4,8]
  arg %a : f32[8,8]
  %1 = constant() value=s32[](1) : s32[]
  %m = add(%n, %1) : s32[]
  %g = dot_general(%h, %a) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[4,8]
  return n.next = %m
  return h.next = %g
  return a.next = %a
}

func @more {
  arg %n : s32[]
  arg %h : f32[4,8]
  arg %a : f32[8,8]
  %3 = constant() value=s32[](3) : s32[]
  %p = compare(%n, %3) direction=LT : pred[]
  return p = %p
}

func @main phase=main {
  arg %x : f32[4,8]
  arg %a : f32[8,8]
  %0 = constant() value=s32[](0) : s32[]
  %n, %y, %b = while(%0, %x, %a) condition=more body=step trip_count=3 : s32[], f32[4,8], f32[8,8]
  return y = %y
}
"""


@pytest.mark.parametrize("rules", ["", ",rules=[a:{tp,-}]"], ids=["whole", "split"])
def test_collectives_stay_in_programs(rules: str):
    before, after = gg.parse(SCANNED), gg.parse(SCANNED)
    run_pipeline(after, parse(f"default{{tp=2{rules}}}"))
    prepared = after.functions.get("weights.rank")
    names = [op.name for op in prepared.block] if prepared is not None else []
    assert not {"all_gather", "all_reduce", "all_to_all"} & set(names)
    assert equivalent(before, after).equal


def test_rows_of_a_parameter():
    torch = pytest.importorskip("torch")
    from graphgen.lowering.aten.export_model import export
    from graphgen.lowering.aten.program import read_exported

    class Biased(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = torch.nn.Parameter(torch.arange(12.0).reshape(4, 3))

        def forward(self, x: Any, ids: Any) -> Any:
            return x + self.bias[ids]

    x = torch.ones(2, 3)
    for kind in (torch.int32, torch.int64):
        ids = torch.tensor([3, 1], dtype=kind)
        model = Biased()
        read = read_exported(export(model, (x, ids), {}), "biased")
        run_pipeline(read.module, parse("raise-composites"))
        (found,) = read.module.evaluate(
            {**read.weights, "x": x.numpy(), "ids": ids.numpy()}
        ).values()
        assert np.array_equal(found, model(x, ids).detach().numpy())


def test_a_file_imports_its_neighbours(tmp_path: Path):
    (tmp_path / "near_sizes.py").write_text("WIDTH = 3\n", encoding="utf-8")
    (tmp_path / "far_model.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "from near_sizes import WIDTH\n"
        "def double():\n"
        "    return jax.jit(lambda x: x + x).lower(jnp.zeros((2, WIDTH)))\n",
        encoding="utf-8",
    )
    made = tmp_path / "double.gg"
    path = list(sys.path)
    done("import", f"{tmp_path}/far_model.py:double", "-o", made)
    assert "f32[2,3]" in made.read_text(encoding="utf-8")
    assert sys.path == path


def test_the_table_names_what_is_there():
    tests = Path(__file__).parent
    text = __doc__ or ""
    sources = [file.read_text(encoding="utf-8") for file in tests.rglob("test_*.py")]
    for name in re.findall(r"\b(test_\w+)(?!\w*\.py)\b", text):
        assert any(f"def {name}(" in source for source in sources), name
    for name in re.findall(r"\b\w+\.py\b", text):
        assert list(tests.rglob(name)), name
