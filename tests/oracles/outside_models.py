"""Models that people outside would write with the builder: an encoder, a state space, experts."""

from __future__ import annotations

import graphgen as gg

F32, S32 = gg.dtype("f32"), gg.dtype("s32")
ROWS, STEPS = gg.symbol("B"), gg.symbol("S")
WIDTH, HEADS, WORDS, POSITIONS = 16, 4, 30, 12
STATES, EXPERTS, CHOSEN, INNER = 4, 4, 2, 24

# How the weights lie over two ranks.
LAYOUTS: dict[str, dict[str, str]] = {
    "encoder": {
        "*.q.weight": "{tp,-}",
        "*.k.weight": "{tp,-}",
        "*.v.weight": "{tp,-}",
        "*.o.weight": "{-,tp}",
        "*.up.weight": "{tp,-}",
        "*.down.weight": "{-,tp}",
    },
    "state_space": {"gate.weight": "{tp,-}", "step.weight": "{tp,-}", "log_rate": "{tp}"},
    "experts": {"experts.*": "{tp,-,-}"},
}


def norm(b: gg.Builder, x: gg.Value, name: str) -> gg.Value:
    """Layer norm of [B,S,H] from single ops."""
    size = x.shape[-1]
    assert isinstance(size, int)
    mean = b.reduce(x, [2], "add") / float(size)
    apart = x - b.broadcast_in_dim(mean, x.shape, [0, 1])
    spread = b.reduce(apart * apart, [2], "add") / float(size)
    scale = b.rsqrt(b.broadcast_in_dim(spread, x.shape, [0, 1]) + 1e-5)
    weight = b.broadcast_in_dim(b.weight(f"{name}.weight", F32, (size,)), x.shape, [2])
    return apart * scale * weight


def softmax(b: gg.Builder, x: gg.Value) -> gg.Value:
    """Along the last dimension."""
    last = len(x.shape) - 1
    kept = list(range(last))
    top = b.broadcast_in_dim(b.reduce(x, [last], "maximum"), x.shape, kept)
    raised = b.exponential(x - top)
    return raised / b.broadcast_in_dim(b.reduce(raised, [last], "add"), x.shape, kept)


def attend(b: gg.Builder, x: gg.Value) -> gg.Value:
    """Every token reads every token."""
    size = WIDTH // HEADS

    def heads(name: str) -> gg.Value:
        made = b.dot(x, b.weight(f"{name}.weight", F32, (WIDTH, WIDTH)))
        return b.transpose(b.reshape(made, (ROWS, STEPS, HEADS, size)), [0, 2, 1, 3])

    query, key, value = heads("q"), heads("k"), heads("v")
    scores = b.dot_general(query, key, ([3], [3]), ([0, 1], [0, 1])) * size**-0.5
    mixed = b.dot_general(softmax(b, scores), value, ([3], [2]), ([0, 1], [0, 1]))
    flat = b.reshape(b.transpose(mixed, [0, 2, 1, 3]), (ROWS, STEPS, WIDTH))
    return b.dot(flat, b.weight("o.weight", F32, (WIDTH, WIDTH)))


def encoder() -> gg.Module:
    """tokens [B,S] to hidden [B,S,H], both ways."""
    module = gg.Module("encoder")
    with gg.Builder(module.add(gg.Function("encode", phase="prefill")), module) as b:
        tokens = b.input("tokens", S32, (ROWS, STEPS))
        places = b.iota(S32, tokens.shape, 1)
        x = b.embedding(b.weight("words", F32, (WORDS, WIDTH)), tokens)
        x = x + b.embedding(b.weight("places", F32, (POSITIONS, WIDTH)), places)
        for layer in range(2):
            with b.scope(f"layers.{layer}"):
                x = norm(b, x + attend(b, x), "first")
                up = b.gelu(b.dot(x, b.weight("up.weight", F32, (64, WIDTH))), "none")
                x = norm(b, x + b.dot(up, b.weight("down.weight", F32, (WIDTH, 64))), "second")
        b.output("hidden", x)
    return module


def state_space() -> gg.Module:
    """A selective state space: how much is kept of the past depends on the token."""
    module = gg.Module("state_space")
    with gg.Builder(module.add(gg.Function("prefill", phase="prefill")), module) as b:
        tokens = b.input("tokens", S32, (ROWS, STEPS))
        x = b.embedding(b.weight("words", F32, (WORDS, WIDTH)), tokens)
        step = b.logistic(b.dot(x, b.weight("step.weight", F32, (WIDTH, WIDTH))))
        write = b.dot(x, b.weight("write.weight", F32, (STATES, WIDTH)))
        read = b.dot(x, b.weight("read.weight", F32, (STATES, WIDTH)))
        rate = -b.exponential(b.weight("log_rate", F32, (WIDTH,)))
        decay = step * b.broadcast_in_dim(rate, step.shape, [2])
        square = (STEPS, STEPS)
        earlier = b.compare(b.iota(F32, square, 0), b.iota(F32, square, 1), "GE")
        ones = gg.tensor(F32, square)
        triangle = b.select(earlier, b.full(1.0, ones), b.full(0.0, ones))
        so_far = b.transpose(b.dot_general(triangle, decay, ([1], [1])), [1, 0, 2])
        pairs = (ROWS, STEPS, STEPS, WIDTH)
        since = b.broadcast_in_dim(so_far, pairs, [0, 1, 3])
        since = since - b.broadcast_in_dim(so_far, pairs, [0, 2, 3])
        past = b.broadcast_in_dim(earlier, pairs, [1, 2])
        kept = b.select(past, b.exponential(since), b.full(0.0, since.type))
        score = b.dot_general(read, write, ([2], [2]), ([0], [0]))
        weighed = kept * b.broadcast_in_dim(score, pairs, [0, 1, 2])
        mixed = b.reduce(weighed * b.broadcast_in_dim(step * x, pairs, [0, 2, 3]), [2], "add")
        gate = b.silu(b.dot(x, b.weight("gate.weight", F32, (WIDTH, WIDTH))))
        b.output("logits", b.dot(mixed * gate, b.weight("head", F32, (WORDS, WIDTH))))
    return module


def experts() -> gg.Module:
    """The best two of four MLPs for each token, weighed by a router."""
    module = gg.Module("experts")
    with gg.Builder(module.add(gg.Function("main", phase="prefill")), module) as b:
        x = b.input("x", F32, (ROWS, STEPS, WIDTH))
        values, ids = b.top_k(b.dot(x, b.weight("router", F32, (EXPERTS, WIDTH))), CHOSEN)
        sizes = (ROWS, STEPS, CHOSEN, EXPERTS)
        spread = b.broadcast_in_dim(softmax(b, values), sizes, [0, 1, 2])
        here = b.broadcast_in_dim(ids, sizes, [0, 1, 2])
        hit = b.compare(here, b.iota(S32, sizes, 3), "EQ")
        share = b.reduce(b.select(hit, spread, b.full(0.0, spread.type)), [2], "add")
        gate = b.dot_general(x, b.weight("experts.gate", F32, (EXPERTS, INNER, WIDTH)), ([2], [2]))
        up = b.dot_general(x, b.weight("experts.up", F32, (EXPERTS, INNER, WIDTH)), ([2], [2]))
        down = b.weight("experts.down", F32, (EXPERTS, WIDTH, INNER))
        each = b.dot_general(b.silu(gate) * up, down, ([3], [2]), ([2], [0]))
        each = b.transpose(each, [1, 2, 0, 3])
        b.output("y", b.reduce(each * b.broadcast_in_dim(share, each.shape, [0, 1, 2]), [2], "add"))
    return module


MODELS = {"encoder": encoder, "state_space": state_space, "experts": experts}
