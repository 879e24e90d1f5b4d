"""The same model, annotated alike, split by XLA's own partitioner and by ours."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.exec.session import Runner
from graphgen.ir import Module
from graphgen.lowering.cpu import compile_program
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.oracles import jax_llama as plain
from tests.passes.raising.test_raise_composites import STYLES, raised, script_of

# Split by output features, by input features, and whole, as the rules of `shard` below say.
COLUMNS, ROWS, WHOLE = P(None, "tp"), P("tp", None), P()
LAYOUT = {"wq": COLUMNS, "wk": COLUMNS, "wv": COLUMNS, "wo": ROWS} | {
    "wg": COLUMNS,
    "wu": COLUMNS,
    "wd": ROWS,
    "head": COLUMNS,
}
RULES = ",".join(
    f"*{name}:{{{'-,tp' if layout == COLUMNS else 'tp,-'}}}" for name, layout in LAYOUT.items()
)


def by_xla(style: str, params: Any, tokens: np.ndarray, tp: int) -> np.ndarray:
    """Logits of a program that XLA has split over ``tp`` devices as its inputs lie."""
    mesh = Mesh(np.array(jax.devices()[:tp]), ("tp",))

    def placed(path: Any, leaf: np.ndarray) -> jax.Array:
        layout = LAYOUT.get(str(path[-1].key), WHOLE)
        return jax.device_put(leaf, NamedSharding(mesh, layout))

    inputs = jax.tree_util.tree_map_with_path(placed, params)
    ids = jax.device_put(tokens, NamedSharding(mesh, WHOLE))
    compiled = jax.jit(STYLES[style]).lower(inputs, ids).compile()
    assert (compiled.as_text() or "").count("all-reduce") >= 4
    return np.asarray(compiled(inputs, ids))


def on_devices(module: Module, function: Any, given: Any) -> Any:
    return compile_program(module, module.function(function.name)).run_numpy(given)


# Stacked weights have a dimension more than these layouts.
@pytest.mark.parametrize("style", [style for style in STYLES if style != "scan"])
def test_both_partitioners_give_the_same_numbers(style: str):
    # XLA cannot split two key-value heads over more ranks; that is what `heads` is for.
    tp, params, tokens = 2, plain.parameters(), plain.tokens()
    wanted = by_xla(style, params, tokens, tp)
    module = raised(style)
    script = script_of(module, params, tokens)
    text = f"shard{{tp={tp},rules=[{RULES}]}},partition,cse,lift-weights,legalize,cse,dce"
    run_pipeline(module, pipeline(text))
    (outcome,) = Runner(module, script, on_devices).outcomes()
    np.testing.assert_allclose(outcome["result"], wanted, rtol=1e-4, atol=1e-5)


ODD = """\
module @m level=canonical {
  input %x : f32[2,5]
  state %held : f32[3,5]
  weight %w : f32[3,5]
  output %y : f32[2,3]
}

func @f phase=main {
  arg %held : f32[3,5]
  arg %x : f32[2,5]
  arg %w : f32[3,5]
  %sum = add(%w, %held) : f32[3,5]
  %y = dot_general(%x, %sum) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,3]
  return held = %held
  return y = %y
}
"""


@pytest.mark.parametrize("name", ["held", "w"])
def test_a_row_of_the_interface_that_does_not_divide_over_the_mesh_is_refused(name: str):
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(parse(ODD), pipeline(f"shard{{tp=2,rules=[{name}:{{tp,-}}]}},partition"))
    assert caught.value.code == "GG0304"
    assert caught.value.what == f"{name} f32[3,5]: 3 does not divide over tp = 2"


# Kernels of 2 entries in space: no size of theirs is one of the batch's.
GROUPED = """\
module @m level=canonical {
  input %x : f32[8,6,3]
  weight %w : f32[2,3,4]
  output %y : f32[2,5,4]
}

func @f phase=main {
  arg %x : f32[8,6,3]
  arg %w : f32[2,3,4]
  %y = convolution(%x, %w) dim_labels="b0f_0io->b0f" batch_group_count=4 dtype=f32 : f32[2,5,4]
  return y = %y
}
"""


def test_groups_of_a_batch_are_divided():
    module = parse(GROUPED)
    workload = make_workload(module, 1)
    (whole,) = Runner(module, workload, arithmetic=MEANING).outcomes()
    rules = "x:{tp,-,-},w:{-,-,tp},y:{-,-,tp}"
    run_pipeline(module, pipeline(f"shard{{tp=2,rules=[{rules}]}},partition,cse,dce"))
    (op,) = [op for op in module.programs()[0].ops if op.name == "convolution"]
    assert [value.type.text for value in op.operands] == ["f32[4,6,3]", "f32[2,3,2]"]
    assert op.attrs.integer("batch_group_count") == 2
    (parts,) = Runner(module, workload, arithmetic=MEANING).outcomes()
    np.testing.assert_allclose(parts["y"], whole["y"], rtol=1e-9)
