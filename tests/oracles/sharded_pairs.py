"""Programs of JAX for one device, and the same written for the ranks of a mesh, right and wrong.

Run as a program with a folder: JAX makes its devices when it starts. For each pair it writes
``NAME.single.mlir``, ``NAME.right.mlir`` and ``NAME.wrong.mlir``; for those that XLA's partitioner
divides by itself also ``NAME.split.pb``, the HLO of a rank.
"""

# jax carries no types.
# pyright: basic, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Of this process only: a test that imports this file keeps its devices, and so do its children.
    os.environ["JAX_NUM_CPU_DEVICES"] = "2"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TOKENS, WIDTH, HEADS, HEAD = 6, 8, 4, 4
INNER = HEADS * HEAD
ALL, COLUMNS, ROWS = P(), P(None, "tp"), P("tp", None)


@dataclass(frozen=True)
class Pair:
    """A program, its per-rank program, a wrong one, and how values are cut."""

    name: str
    single: Callable[..., Any]
    right: Callable[..., Any]
    wrong: Callable[..., Any]
    cuts: Sequence[Any]
    result: Any
    shapes: Sequence[tuple[int, ...]]
    tokens: bool = False
    split: bool = False


def added(x: Any) -> Any:
    """The sum over ranks."""
    return lax.psum(x, "tp")


def same(x: Any) -> Any:
    """The value itself."""
    return x


def attention(join: Any, heads: int, scale: float = HEAD**-0.5) -> Any:
    def program(x: Any, q: Any, k: Any, v: Any, o: Any) -> Any:
        a, b, c = [(x @ w).reshape(TOKENS, heads, HEAD) for w in (q, k, v)]
        scores = jnp.einsum("qhk,thk->hqt", a, b) * scale
        mask = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e30), -1)
        out = jnp.einsum("hqt,thk->qhk", weights, c).reshape(TOKENS, heads * HEAD)
        return join(out @ o)

    return program


def mlp(join: Any) -> Any:
    def program(x: Any, gate: Any, up: Any, down: Any) -> Any:
        return join((jax.nn.silu(x @ gate) * (x @ up)) @ down)

    return program


def experts(join: Any, count: int, step: int = 0) -> Any:
    def program(x: Any, router: Any, w: Any) -> Any:
        weights = jax.nn.softmax(x @ router, -1)
        if step:
            start = lax.axis_index("tp") * step
            weights = lax.dynamic_slice(weights, (0, start), (TOKENS, count))
        inner = jnp.tanh(jnp.einsum("td,edf->tef", x, w))
        return join(jnp.einsum("te,tef->tf", weights, inner))

    return program


def norm(join: Any, width: int) -> Any:
    def program(x: Any, w: Any) -> Any:
        squares = join(jnp.sum(x * x, -1, keepdims=True))
        return x * lax.rsqrt(squares / width + 1e-5) * w

    return program


def embedding(tokens: Any, table: Any) -> Any:
    return table[tokens]


def split_embedding(first: int) -> Any:
    def program(tokens: Any, table: Any) -> Any:
        local = tokens - lax.axis_index("tp") * first
        held = (local >= 0) & (local < 8)
        rows = table[jnp.where(held, local, 0)]
        return added(jnp.where(held[:, None], rows, 0.0))

    return program


def ring(scaled: bool) -> Any:
    def program(q: Any, k: Any, v: Any) -> Any:
        top = jnp.full((3, 1), -jnp.inf)
        total, out = jnp.zeros((3, 1)), jnp.zeros((3, WIDTH))
        for turn in range(2):
            scores = q @ k.T
            new = jnp.maximum(top, jnp.max(scores, -1, keepdims=True))
            weights, factor = jnp.exp(scores - new), jnp.exp(top - new)
            total = (total * factor if scaled else total) + jnp.sum(weights, -1, keepdims=True)
            out, top = out * factor + weights @ v, new
            if turn == 0:
                k, v = [lax.ppermute(x, "tp", [(0, 1), (1, 0)]) for x in (k, v)]
        return out / total

    return program


def layers(x: Any, w: Any) -> Any:
    return lax.scan(lambda h, one: (jnp.tanh(h @ one), None), x, w)[0]


def pipelined(order: Sequence[int]) -> Any:
    def program(x: Any, w: Any) -> Any:
        rank = lax.axis_index("tp")
        for stage in order:
            x = added(jnp.where(rank == stage, layers(x, w), 0.0))
        return x

    return program


def separate(x: Any, q: Any, k: Any, v: Any) -> Any:
    return jnp.tanh(x @ q) * (x @ k) + x @ v


def fused(order: Sequence[int]) -> Any:
    def program(x: Any, *weights: Any) -> Any:
        y = x @ jnp.concatenate([weights[n] for n in order], 1)
        a, b, c = jnp.split(y, 3, 1)
        return jnp.tanh(a) * b + c

    return program


def training(join: Any) -> Any:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.sum((jnp.tanh(x @ w) - y) ** 2)

    return lambda w, x, y: w - 0.1 * join(jax.grad(loss)(w, x, y))


def convolution(padding: Any) -> Any:
    def program(x: Any, w: Any) -> Any:
        names = ("NHWC", "HWIO", "NHWC")
        return jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=names))

    return program


FEATURES = P(None, None, None, "tp")
WEIGHTS = ((WIDTH, INNER), (WIDTH, INNER), (WIDTH, INNER))
X = (TOKENS, WIDTH)
PAIRS = (
    Pair(
        "attention",
        attention(same, HEADS),
        attention(added, HEADS // 2),
        attention(added, HEADS // 2, (2 * HEAD) ** -0.5),
        (ALL, COLUMNS, COLUMNS, COLUMNS, ROWS),
        ALL,
        (X, *WEIGHTS, (INNER, WIDTH)),
    ),
    Pair(
        "mlp",
        mlp(same),
        mlp(added),
        mlp(same),
        (ALL, COLUMNS, COLUMNS, ROWS),
        ALL,
        (X, *WEIGHTS[:2], (INNER, WIDTH)),
        split=True,
    ),
    Pair(
        "experts",
        experts(same, 4),
        experts(added, 2, 2),
        experts(added, 2, 1),
        (ALL, ALL, P("tp", None, None)),
        ALL,
        (X, (WIDTH, 4), (4, WIDTH, WIDTH)),
    ),
    Pair(
        "normalization",
        norm(same, WIDTH),
        norm(added, WIDTH),
        norm(added, WIDTH // 2),
        (COLUMNS, P("tp")),
        COLUMNS,
        (X, (WIDTH,)),
        split=True,
    ),
    Pair(
        "embedding",
        embedding,
        split_embedding(8),
        split_embedding(7),
        (ALL, ROWS),
        ALL,
        ((TOKENS,), (16, WIDTH)),
        tokens=True,
    ),
    Pair(
        "ring_attention",
        lambda q, k, v: jax.nn.softmax(q @ k.T, -1) @ v,
        ring(scaled=True),
        ring(scaled=False),
        (ROWS, ROWS, ROWS),
        ROWS,
        (X, X, X),
    ),
    Pair(
        "pipelined_scan",
        layers,
        pipelined((0, 1)),
        pipelined((1, 0)),
        (ALL, P("tp", None, None)),
        ALL,
        (X, (4, WIDTH, WIDTH)),
    ),
    Pair(
        "fused_qkv",
        separate,
        fused((0, 1, 2)),
        fused((0, 2, 1)),
        (ALL, COLUMNS, COLUMNS, COLUMNS),
        COLUMNS,
        (X, *WEIGHTS),
        split=True,
    ),
    Pair(
        "training_step",
        training(same),
        training(added),
        training(same),
        (ALL, ROWS, ROWS),
        ALL,
        ((WIDTH, WIDTH), (4, WIDTH), (4, WIDTH)),
    ),
    Pair(
        "convolution",
        convolution("SAME"),
        convolution("SAME"),
        convolution(((0, 2), (0, 2))),
        (ALL, FEATURES),
        FEATURES,
        ((1, 4, 4, 3), (3, 3, 3, 4)),
    ),
)


def write(pair: Pair, folder: Path, mesh: Mesh) -> None:
    """Write the programs of a pair."""
    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in pair.shapes]
    if pair.tokens:
        given[0] = jax.ShapeDtypeStruct(pair.shapes[0], jnp.int32)
    single = jax.jit(pair.single).lower(*given).as_text()
    (folder / f"{pair.name}.single.mlir").write_text(single)
    for kind, program in (("right", pair.right), ("wrong", pair.wrong)):
        specs = {"in_specs": tuple(pair.cuts), "out_specs": pair.result, "check_vma": False}
        made = jax.jit(jax.shard_map(program, mesh=mesh, **specs))
        (folder / f"{pair.name}.{kind}.mlir").write_text(made.lower(*given).as_text())
    if pair.split:
        cuts = [NamedSharding(mesh, cut) for cut in pair.cuts]
        result = NamedSharding(mesh, pair.result)
        whole = jax.jit(pair.single, in_shardings=cuts, out_shardings=result)
        executable: Any = whole.lower(*given).compile().runtime_executable()
        (hlo,) = executable.hlo_modules()
        (folder / f"{pair.name}.split.pb").write_bytes(hlo.as_serialized_hlo_module_proto())


def main() -> None:
    """Write all pairs into the folder of the command line."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("tp",))
    for pair in PAIRS:
        write(pair, Path(sys.argv[1]), mesh)


if __name__ == "__main__":
    main()
