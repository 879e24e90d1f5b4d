"""A training step of a small network on one device: writes train.hlo, as XLA scheduled it."""

from pathlib import Path

import jax
import jax.numpy as jnp

jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
WORDS, WIDTH, ROWS = 4096, 128, 256


def loss(weights, tokens, targets):
    """Mean loss of the words that were right."""
    hidden = jnp.tanh(weights["embed"][tokens] @ weights["up"]) @ weights["down"]
    logits = hidden @ weights["embed"].T
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[:, None], axis=1)
    return -chosen.mean()


def step(weights, tokens, targets):
    """Weights after one step, and the loss."""
    found, slopes = jax.value_and_grad(loss)(weights, tokens, targets)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, slopes), found


shapes = {"embed": (WORDS, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
weights = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
rows = jax.ShapeDtypeStruct((ROWS,), jnp.int32)
compiled = jax.jit(step, donate_argnums=0).lower(weights, rows, rows).compile()
Path("train.hlo").write_text(compiled.as_text())
