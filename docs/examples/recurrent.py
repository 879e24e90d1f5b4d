"""A recurrent layer in front of a softmax, recorded by JAX's profiler: writes recording/."""

import jax
import jax.numpy as jnp

STEPS, ROWS, WIDTH, WORDS = 16, 4, 96, 256
# Sources by their names, wherever this file is.
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")


def forward(weights, inputs):
    """Probabilities of the next word after each step."""

    def turn(state, x):
        state = jnp.tanh(x @ weights["in"] + state @ weights["state"])
        return state, state

    _, states = jax.lax.scan(turn, jnp.zeros((ROWS, WIDTH)), inputs)
    return jax.nn.softmax(states @ weights["head"])


shapes = {"in": (WIDTH, WIDTH), "state": (WIDTH, WIDTH), "head": (WIDTH, WORDS)}
weights = {name: jax.random.normal(jax.random.key(0), shape) / 8 for name, shape in shapes.items()}
inputs = jax.random.normal(jax.random.key(1), (STEPS, ROWS, WIDTH))
step = jax.jit(forward)
jax.block_until_ready(step(weights, inputs))

options = jax.profiler.ProfileOptions()
options.python_tracer_level = 0
with jax.profiler.trace("recording", profiler_options=options):
    for _ in range(2):
        jax.block_until_ready(step(weights, inputs))
