"""Programs of JAX split over four devices: XLA's results of JAX's text and of the text from here.

Run as a program, for XLA makes its devices when it starts; prints a line of JSON per program.
"""

# jaxlib's bindings carry no types.
# pyright: basic, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import json
import os
from typing import Any

if __name__ == "__main__":
    # Of this process only: a test that imports this file keeps its devices, and so do its children.
    os.environ["JAX_NUM_CPU_DEVICES"] = "4"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.lib import xla_client
from jax._src.sharding_impls import GSPMDSharding
from jax.extend import backend
from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo

SHAPES = ((8, 16), (16, 32), (32, 16))


def texts(shardy: bool) -> dict[str, str]:
    """StableHLO of a small network by the partitioner, and of the same with manual axes."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
    jax.config.update("jax_use_shardy_partitioner", shardy)

    def over(*axes: str | None) -> NamedSharding:
        return NamedSharding(mesh, P(*axes))

    def network(x: Any, w1: Any, w2: Any) -> Any:
        h = jax.lax.with_sharding_constraint(jax.nn.gelu(x @ w1), over("data", "model"))
        return jax.nn.softmax(h @ w2, -1)

    def product(x: Any, w: Any) -> Any:
        return jax.lax.psum(x @ w, "model")

    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES]
    split = (over("data", None), over(None, "model"), over("model", None))
    whole = jax.jit(network, in_shardings=split, out_shardings=over("data", None))
    specs = (P("data", "model"), P("model", None))
    manual = jax.shard_map(product, mesh=mesh, in_specs=specs, out_specs=P("data", None))
    return {
        "network": whole.lower(*given).as_text(),
        "export": str(jax.export.export(whole)(*given).mlir_module()),
        "manual": jax.jit(manual).lower(*given[:2]).as_text(),
    }


def run(text: str, shardy: bool) -> tuple[list[Any], list[str]]:
    """Results on each device, and the shardings that XLA gives arguments and results."""
    client = backend.get_backend("cpu")
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = build.num_replicas = 1
    options.num_partitions = build.num_partitions = 4
    build.use_spmd_partitioning, build.use_shardy_partitioner = True, shardy
    build.device_assignment = xla_client.DeviceAssignment.create(np.arange(4).reshape(1, 4))
    devices = tuple(client.devices())
    with make_ir_context():
        module = ir.Module.parse(text)
        program = client.compile_and_load(module, xla_client.DeviceList(devices), options)
    rng = np.random.default_rng(0)
    shardings = program.get_parameter_shardings()
    arrays = [
        jax.device_put(rng.normal(size=shape).astype(np.float32), GSPMDSharding(devices, sharding))
        for shape, sharding in zip(SHAPES, shardings, strict=False)
    ]
    out = program.execute_sharded(arrays).disassemble_into_single_device_arrays()
    stated = [*map(str, shardings), *map(str, program.get_output_shardings())]
    return [np.asarray(part) for parts in out for part in parts], stated


def main() -> None:
    """Compare every program."""
    for shardy in (False, True):
        for name, text in texts(shardy).items():
            module = read_stablehlo(text)
            again = emit_stablehlo(module, module.programs()[0])
            before, after = run(text, shardy), run(again, shardy)
            same = all(map(np.array_equal, before[0], after[0]))
            row = {
                "name": name,
                "shardy": shardy,
                "read": module.meta["format"],
                "dropped": module.meta.get("dropped", ""),
                "same numbers": same and len(before[0]) == len(after[0]) > 0,
                "same shardings": before[1] == after[1],
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
