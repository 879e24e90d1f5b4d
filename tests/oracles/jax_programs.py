"""Twenty programs of JAX, each written in the six forms in which people have them."""

# jax carries few types, and none for what a program is given.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax._src.interpreters import mlir
from jax.experimental import sparse
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

RANKS = 4
# Forms before optimization, and after it, by the suffix of the file.
BEFORE = ("mlir", "bytecode", "hlo", "pb")
AFTER = ("optimized.hlo", "optimized.pb")


@dataclass(frozen=True, slots=True)
class JaxProgram:
    """A program with its arguments.

    Attributes:
        run: the function.
        arguments: NumPy arrays.
        options: of ``jax.jit``.
        symbols: the shapes of the arguments in the exported forms, with symbols.
        exported: whether ``jax.export`` takes it.
    """

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    symbols: tuple[str, ...] = ()
    exported: bool = True

    @property
    def jitted(self) -> Any:
        """The compiled function; all arguments are kept."""
        return jax.jit(self.run, keep_unused=True, **self.options)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def _mesh() -> Mesh:
    return Mesh(np.array(jax.devices()[:RANKS]).reshape(2, 2), ("x", "y"))


def _line() -> Mesh:
    return Mesh(np.array(jax.devices()[:RANKS]), ("p",))


def training_step() -> JaxProgram:
    """Adam on a stack of layers, which a loop runs over."""

    def layer(h, w):
        up, down = w
        h = h + jax.nn.gelu((h - h.mean(-1, keepdims=True)) @ up) @ down
        return h, jnp.square(h).mean()

    def loss(weights, x, labels):
        h, sizes = lax.scan(layer, x, weights)
        scores = jax.nn.log_softmax(h)
        return -jnp.take_along_axis(scores, labels[:, None], 1).mean() + 1e-3 * sizes.sum()

    def step(weights, moments, count, x, labels):
        value, slopes = jax.value_and_grad(loss)(weights, x, labels)
        moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, slopes)
        rate = 0.01 / (1 - 0.9 ** (count + 1).astype(jnp.float32))
        return jax.tree.map(lambda w, m: w - rate * m, weights, moments), moments, count + 1, value

    weights = floats(3, 8, 16), floats(3, 16, 8)
    moments = jax.tree.map(np.zeros_like, weights)
    labels = np.array([0, 3, 7, 2], np.int32)
    return JaxProgram(step, (weights, moments, np.int32(2), floats(4, 8), labels))


def pjit() -> JaxProgram:
    """Two products that XLA splits over a mesh."""
    mesh = _mesh()

    def on(*spec: str | None) -> NamedSharding:
        return NamedSharding(mesh, P(*spec))

    def run(x, w, v):
        h = lax.with_sharding_constraint(jnp.tanh(x @ w), on("x", "y"))
        return h @ v, h.sum()

    shardings = (on("x", None), on(None, "y"), on("y", None))
    options = {"in_shardings": shardings, "out_shardings": (on("x", None), on())}
    return JaxProgram(run, (floats(8, 16), floats(16, 32), floats(32, 16)), options)


def shard_map() -> JaxProgram:
    """Each collective, over one axis of a mesh or over both."""
    mesh = _mesh()

    def part(x, w):
        whole = lax.all_gather(x, "y", axis=1, tiled=True)
        scattered = lax.psum_scatter(x @ w, "x", scatter_dimension=0, tiled=True)
        shifted = lax.ppermute(x, "y", [(0, 1), (1, 0)])
        turned = lax.all_to_all(x, "x", split_axis=1, concat_axis=0, tiled=True)
        place = lax.axis_index("x") * 10 + lax.axis_index("y")
        return (
            (lax.psum(x.sum(), ("x", "y")) + lax.pmax(x.max(), "x"))[None],
            lax.pmean(whole, "x") - lax.pmin(x.min(), ("x", "y")),
            scattered,
            shifted,
            turned,
            place.astype(jnp.float32) + x,
        )

    specs = P("x", "y")
    run = jax.shard_map(
        part,
        mesh=mesh,
        in_specs=(specs, P(None, None)),
        out_specs=(P("y"), specs, specs, specs, specs, specs),
        check_vma=False,
    )
    return JaxProgram(run, (floats(8, 8), floats(4, 6)))


def convolution() -> JaxProgram:
    """Convolutions of several kinds, a pool, and their gradient."""

    def net(w, v, x):
        y = lax.conv_general_dilated(
            x, w, (2, 1), "SAME", rhs_dilation=(1, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = lax.reduce_window(
            jax.nn.relu(y), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
        y = lax.conv_general_dilated(
            y,
            v,
            (1, 1),
            [(1, 1), (0, 1)],
            lhs_dilation=(2, 1),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=2,
        )
        return y

    def run(w, v, x):
        y = net(w, v, x)
        return y, jax.grad(lambda w, v: (net(w, v, x) ** 2).sum(), (0, 1))(w, v)

    return JaxProgram(run, (floats(3, 3, 3, 4), floats(2, 2, 2, 6), floats(2, 12, 8, 3)))


def sort() -> JaxProgram:
    """Sorts of one array and of several, of numbers and of places."""

    def run(x, n):
        ordered = lax.sort((n, x[:, 0]), num_keys=2)
        middle = jnp.median(x, axis=0)
        return jnp.sort(x, 0), jnp.argsort(-x, 1), ordered, middle, jnp.searchsorted(middle, x[0])

    return JaxProgram(run, (floats(12, 5), np.arange(12, dtype=np.int32) % 4))


def fft() -> JaxProgram:
    """Transforms of real and of complex numbers."""

    def run(x):
        half = jnp.fft.rfft(x)
        both = jnp.fft.fft2(x.reshape(4, 8, 4))
        return jnp.abs(half), jnp.fft.irfft(half * 2, 16), both.real, jnp.fft.ifft(both).imag

    return JaxProgram(run, (floats(8, 16),))


def top_k() -> JaxProgram:
    """The largest elements of floats, narrow floats and integers."""

    def run(x, n):
        values, places = lax.top_k(x, 4)
        narrow, _ = lax.top_k(x.astype(jnp.bfloat16), 2)
        return values, places, narrow.astype(jnp.float32), lax.top_k(n, 3)

    return JaxProgram(run, (floats(3, 20), np.arange(30, dtype=np.int32).reshape(3, 10) * 7 % 11))


def cholesky() -> JaxProgram:
    """A factor of a symmetric matrix, and equations that it solves."""

    def run(x, b):
        square = x @ x.T + 6 * jnp.eye(6)
        factor = jnp.linalg.cholesky(square)
        solved = lax.linalg.triangular_solve(factor, b, left_side=True, lower=True)
        return factor, solved, jnp.linalg.solve(square, b), 2 * jnp.log(jnp.diag(factor)).sum()

    return JaxProgram(run, (floats(6, 6), floats(6, 3)))


def complex_numbers() -> JaxProgram:
    """Products, functions and parts of complex numbers."""

    def run(x, y):
        z = lax.complex(x, y)
        product = z @ z.conj().T
        whole = jnp.exp(1j * x[0]) * (2 + 1j) / z[1]
        return product, jnp.abs(z), jnp.angle(z), whole, jnp.sqrt(z), (z**2).imag, jnp.log(z + 3)

    return JaxProgram(run, (floats(3, 5), floats(3, 5, seed=1)))


def fp8() -> JaxProgram:
    """A product of narrow floats with scales, as mixed-precision training has it."""

    def run(x, w):
        scale = 448 / jnp.abs(x).max()
        narrow = jnp.clip(x * scale, -448, 448).astype(jnp.float8_e4m3fn)
        other = w.astype(jnp.float8_e5m2)
        product = lax.dot(narrow, other, preferred_element_type=jnp.float32)
        return product / scale, narrow, other.astype(jnp.bfloat16)

    return JaxProgram(run, (floats(4, 16), floats(16, 8)))


def int4() -> JaxProgram:
    """A product with weights of four bits."""

    def run(x, w, scale):
        wide = w.astype(jnp.float32) * scale
        packed = jnp.round(x * 2).astype(jnp.int4)
        return x @ wide, packed, packed.astype(jnp.int32)

    weights = (np.arange(64).reshape(16, 4) % 16 - 8).astype(jnp.int4)
    return JaxProgram(run, (floats(4, 16), weights, np.abs(floats(4))))


def ragged_dot() -> JaxProgram:
    """Products of groups of rows, each with its own matrix: a mixture of experts."""

    def run(x, w, sizes):
        y = lax.ragged_dot(x, w, sizes)
        return y, jax.grad(lambda w: (lax.ragged_dot(x, w, sizes) ** 2).sum())(w)

    return JaxProgram(run, (floats(10, 6), floats(3, 6, 4), np.array([4, 0, 6], np.int32)))


def while_loop() -> JaxProgram:
    """Loops of a number of turns that is known, and of one that is not."""

    def run(x, w, turns):
        def body(state):
            x, count = state
            return jnp.tanh(x @ w), count + 1

        def goes_on(state):
            return ((state[0] ** 2).sum() > 0.3) & (state[1] < 20)

        far = lax.while_loop(goes_on, body, (x, 0))
        near = lax.fori_loop(0, turns, lambda i, y: y * 0.5 + i, x)
        return far, near, lax.fori_loop(0, 4, lambda i, y: y.at[i].add(i), x)

    return JaxProgram(run, (floats(4, 8), floats(8, 8) * 0.2, np.int32(5)))


def cond() -> JaxProgram:
    """A branch of two and one of three, and their gradient."""

    def run(flag, index, x):
        two = lax.cond(flag, lambda x: jnp.sin(x) @ x.T, lambda x: x @ x.T + 1, x)
        branches = [lambda x: x * 2, lambda x: jnp.square(x - x.mean()), jnp.cumsum]
        three = lax.switch(index, [partial(lambda f, x: f(x).sum(), f) for f in branches], x)
        slope = jax.grad(lambda x: lax.cond(flag, jnp.sum, lambda x: (x**2).sum(), x))(x)
        return two, three, slope

    return JaxProgram(run, (np.array(False), np.int32(2), floats(4, 5)))


def remat() -> JaxProgram:
    """A gradient that computes activations again."""

    @jax.checkpoint
    def block(x, w):
        return jnp.sin(jnp.tanh(x @ w) @ w.T)

    def run(x, w):
        return jax.value_and_grad(lambda w: (block(block(x, w), w) ** 2).sum())(w)

    return JaxProgram(run, (floats(4, 6), floats(6, 8) * 0.3))


def donated() -> JaxProgram:
    """A step of decoding that writes into the caches that it is given."""

    def run(keys, values, at, q, k, v):
        keys = lax.dynamic_update_slice(keys, k[:, None], (0, at, 0))
        values = lax.dynamic_update_slice(values, v[:, None], (0, at, 0))
        scores = jnp.einsum("bd,bsd->bs", q, keys)
        weights = jax.nn.softmax(jnp.where(jnp.arange(keys.shape[1]) <= at, scores, -jnp.inf))
        return keys, values, jnp.einsum("bs,bsd->bd", weights, values)

    caches = floats(2, 8, 4), floats(2, 8, 4, seed=1)
    news = floats(2, 4), floats(2, 4, seed=1), floats(2, 4, seed=2)
    return JaxProgram(run, (*caches, np.int32(5), *news), {"donate_argnums": (0, 1)})


def callback() -> JaxProgram:
    """A call of Python code, which no other process can make."""

    def run(x):
        y = jax.pure_callback(lambda x: np.asarray(x) * 2, jax.ShapeDtypeStruct((3,), x.dtype), x)
        return jnp.tanh(x) + y

    return JaxProgram(run, (floats(3),), exported=False)


def sparse_product() -> JaxProgram:
    """A product with a sparse matrix, given as its elements and their places."""

    def run(data, places, x):
        matrix = sparse.BCOO((data, places), shape=(6, 5))
        return matrix @ x, matrix.todense()

    places = np.array([[0, 1], [0, 4], [2, 2], [5, 0], [3, 3]], np.int32)
    return JaxProgram(run, (floats(5), places, floats(5, 3)))


def symbols() -> JaxProgram:
    """A program whose exported forms have symbols for two sizes."""

    def run(x, w):
        y = jax.nn.softmax(x @ w)
        return (
            y,
            y.reshape(-1),
            x.mean(0),
            jnp.concatenate([x, x + jnp.arange(x.shape[0])[:, None]]),
        )

    return JaxProgram(run, (floats(3, 4), floats(4, 5)), symbols=("b, 4", "4, n"))


def pipeline() -> JaxProgram:
    """Stages on devices of their own, which hand microbatches on."""
    ring = [(i, (i + 1) % RANKS) for i in range(RANKS)]

    def stages(w, xs):
        w, stage = w[0], lax.axis_index("p")
        count = xs.shape[0]

        def turn(state, t):
            held, done = state
            new = xs[jnp.clip(t, 0, count - 1)]
            made = jnp.tanh(jnp.where(stage == 0, new, held) @ w)
            slot = jnp.clip(t - RANKS + 1, 0, count - 1)
            last = (stage == RANKS - 1) & (t >= RANKS - 1)
            done = done.at[slot].set(jnp.where(last, made, done[slot]))
            return (lax.ppermute(made, "p", ring), done), None

        start = jnp.zeros_like(xs[0]), jnp.zeros_like(xs)
        (_, done), _ = lax.scan(turn, start, jnp.arange(count + RANKS - 1))
        return lax.psum(done, "p")

    run = jax.shard_map(
        stages, mesh=_line(), in_specs=(P("p"), P()), out_specs=P(), check_vma=False
    )
    return JaxProgram(run, (floats(RANKS, 6, 6), floats(3, 2, 6)))


PROGRAMS: dict[str, Callable[[], JaxProgram]] = {
    "training step with scan": training_step,
    "pjit": pjit,
    "shard_map": shard_map,
    "convolution": convolution,
    "sort": sort,
    "fft": fft,
    "top_k": top_k,
    "cholesky": cholesky,
    "complex": complex_numbers,
    "fp8": fp8,
    "int4": int4,
    "ragged_dot": ragged_dot,
    "while": while_loop,
    "cond": cond,
    "remat": remat,
    "donated": donated,
    "callback": callback,
    "sparse": sparse_product,
    "export with symbols": symbols,
    "pipeline": pipeline,
}


def forms(program: JaxProgram) -> dict[str, bytes]:
    """The six forms, by the suffix of a file."""
    lowered = program.jitted.lower(*program.arguments)
    hlo = lowered.compiler_ir("hlo")
    text = lowered.as_text()
    if program.exported:
        exported = _exported(program)
        bytecode = exported.mlir_module_serialized
        text = exported.mlir_module() if program.symbols else text
    else:
        bytecode = mlir.module_to_bytecode(lowered.compiler_ir())
    compiled = lowered.compile()
    module = compiled.runtime_executable().hlo_modules()[0]
    return {
        "mlir": text.encode(),
        "bytecode": bytecode,
        "hlo": hlo.as_hlo_text().encode(),
        "pb": hlo.as_serialized_hlo_module_proto(),
        "optimized.hlo": compiled.as_text().encode(),
        "optimized.pb": module.as_serialized_hlo_module_proto(),
    }


def _exported(program: JaxProgram) -> Any:
    arguments = program.arguments
    if program.symbols:
        scope = export.SymbolicScope()
        arguments = tuple(
            jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), array.dtype)
            for text, array in zip(program.symbols, arguments, strict=True)
        )
    return export.export(program.jitted)(*arguments)


def flat_arguments(program: JaxProgram) -> list[np.ndarray]:
    """The arguments in the order in which programs take them."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(program.arguments)]


def results(program: JaxProgram) -> list[np.ndarray]:
    """The outputs that JAX computes, whole."""
    copies = jax.tree.map(np.array, program.arguments)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(program.jitted(*copies))]


def of_devices(
    program: JaxProgram, arguments: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arguments and outputs as devices have them, stacked, where XLA splits the program."""
    compiled = program.jitted.lower(*program.arguments).compile()
    into = jax.tree.leaves(compiled.input_shardings[0])
    if all(len(sharding.device_set) == 1 for sharding in into):
        return [*arguments], [*outputs]
    return _parts(arguments, into), _parts(outputs, jax.tree.leaves(compiled.output_shardings))


def _parts(arrays: Sequence[np.ndarray], shardings: Sequence[Any]) -> list[np.ndarray]:
    """The part of each device, in the order of devices."""
    made: list[np.ndarray] = []
    for array, sharding in zip(arrays, shardings, strict=True):
        places = sharding.devices_indices_map(array.shape)
        order = sorted(places, key=lambda device: device.id)
        made.append(np.stack([array[places[device]] for device in order]))
    return made
