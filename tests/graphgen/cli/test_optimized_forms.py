"""Optimized programs of JAX: the text and the protobuf of one module are equal, and XLA's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphgen.lowering.hlo_proto.fields import ModuleField
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from tests.graphgen.cli.conftest import done

MAKE = """
import sys
import jax, jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("x",))
on = lambda *spec: NamedSharding(mesh, P(*spec))
f32 = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
programs = {
    "top_k": jax.jit(lambda x: lax.top_k(x * 2, 3)).lower(f32(5, 17)),
    "cholesky": jax.jit(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(4))).lower(f32(4, 4)),
    "scan": jax.jit(lambda x, w: lax.scan(lambda h, v: (jnp.tanh(h @ w + v), h.sum()), x[0], x)
                    ).lower(f32(5, 4, 8), f32(8, 8)),
    "pjit": jax.jit(lambda x, w: jax.nn.softmax(x @ w), in_shardings=(on("x", None), on(None, "x")),
                    out_shardings=on(None, "x")).lower(f32(8, 16), f32(16, 8)),
}
for name, lowered in programs.items():
    compiled = lowered.compile()
    with open(f"{sys.argv[1]}/{name}.hlo", "w") as file:
        file.write(compiled.as_text())
    with open(f"{sys.argv[1]}/{name}.pb", "wb") as file:
        (module,) = compiled.runtime_executable().hlo_modules()
        file.write(module.as_serialized_hlo_module_proto())
"""
NAMES = ("top_k", "cholesky", "scan", "pjit")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("optimized")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    subprocess.run(
        [sys.executable, "-c", MAKE, str(made)],
        check=True,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )
    return made


@pytest.mark.parametrize("name", NAMES)
def test_the_text_and_the_protobuf_are_equal(folder: Path, name: str):
    found = done("diff", folder / f"{name}.pb", folder / f"{name}.hlo")
    assert "note: not in both forms: " in found.stderr
    assert "the devices that run it" in found.stderr


@pytest.mark.parametrize("name", NAMES)
def test_xla_reads_the_text_that_is_printed_of_the_protobuf(folder: Path, name: str):
    from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

    data = (folder / f"{name}.pb").read_bytes()
    text = print_hlo_text(data)
    read = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    assert traces(data) == traces(parse_hlo_text(text))
    # XLA leaves out frames that come twice.
    assert set(traces(read)) <= set(traces(data))
    assert max(map(len, traces(read))) > 1


def traces(data: bytes) -> list[tuple[tuple[int, int], ...]]:
    """Line and column of each stack frame and of its parents; 0 is no parent."""
    table = Message(data).message(ModuleField.STACK_FRAMES)
    assert table is not None
    places = [(place.integer(3), place.integer(4)) for place in table.messages(3)]
    found: list[tuple[tuple[int, int], ...]] = []
    for frame in table.messages(4):
        outer = found[frame.integer(2) - 1] if frame.integer(2) else ()
        found.append((places[frame.integer(1) - 1], *outer))
    return found
