"""Mixtures of experts: the router, the experts, and an expert for every token beside them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from graphgen.build import Builder
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32, lowest, pred
from graphgen.nn.linear import gated_mlp, linear


@dataclass(frozen=True, slots=True)
class ExpertGroups:
    """Groups of neighboring experts, from the best of which the experts of a token are chosen.

    Attributes:
        count: groups.
        kept: groups that a token has.
        best: experts whose scores are summed to that of their group.
    """

    count: int
    kept: int
    best: int = 1


def limit_to_groups(b: Builder, scores: Value, groups: ExpertGroups) -> Value:
    """The scores f32 [...,E], those of groups that a token has not being the lowest f32.

    A zero in their place, as NxD's ``GroupLimitedRouter`` has, wins against negative scores.
    """
    *outer, experts = scores.shape
    assert isinstance(experts, int)
    last = len(outer)
    apart = b.reshape(scores, (*outer, groups.count, experts // groups.count))
    if groups.best == 1:
        of_groups = b.reduce(apart, [last + 1], "maximum")
    else:
        of_groups = b.reduce(b.top_k(apart, groups.best)[0], [last + 1], "add")
    _, kept = b.top_k(of_groups, groups.kept)
    chosen = b.one_hot(kept, groups.count, pred)
    allowed = b.broadcast_in_dim(b.reduce(chosen, [last], "or"), apart.shape, list(range(last + 1)))
    low = b.full(lowest(scores.dtype), apart.type)
    return b.reshape(b.select(allowed, apart, low), scores.shape)


def scores_at(b: Builder, scores: Value, indices: Value) -> Value:
    """The scores [...,K] of experts ``indices`` s32 [...,K], of scores [...,E]."""
    *outer, experts = scores.shape
    assert isinstance(experts, int)
    last = len(outer)
    there = b.one_hot(indices, experts, pred)
    spread = b.broadcast_in_dim(scores, there.shape, [*range(last), last + 1])
    # One number and zeros: their sum is exact.
    return b.reduce(b.select(there, spread, b.full(0, spread.type)), [last + 1], "add")


@dataclass(frozen=True, slots=True)
class TopKRouter:
    """The choice of the experts of a token.

    Attributes:
        num_experts: E.
        top_k: K, experts of a token.
        score: ``softmax`` or ``sigmoid`` of the logits, in f32.
        over: ``all`` to score before the choice, ``chosen`` to score what was chosen alone.
        normalize: divide the weights of a token by their sum.
        scaling: factor of the weights after that.
        bias: whether logits have a bias [E], which the choice sees too.
        groups: of experts, if a token has experts of some groups only.
        correction: name of a bias [E] of the scores that decides the choice and is in no weight
            (arXiv 2412.19437); empty for none.
        epsilon: what is added to the sum that weights are divided by.
    """

    num_experts: int
    top_k: int
    score: str = "softmax"
    over: str = "all"
    normalize: bool = False
    scaling: float = 1.0
    bias: bool = False
    groups: ExpertGroups | None = None
    correction: str = ""
    epsilon: float = 0.0


@dataclass(frozen=True, slots=True)
class ExpertForm:
    """The function of an expert: the attributes of the op ``experts``, and biases.

    Attributes:
        bias: whether gate, up and down have biases: [E,I], [E,I], [E,H].
        glu: ``glu`` or ``swiglu``.
        activation_scale: factor of the gate inside the activation.
        up_offset: summand of the up projection, after its bounds.
        gate_bounds: least and greatest value of the gate, before the activation.
        up_bounds: of the up projection.
        modulate: ``output`` to weight what an expert gives, ``input`` to weight what it gets.
        activation: of the gate; empty for the layer's.
    """

    bias: bool = False
    glu: str = "glu"
    activation_scale: float = 1.0
    up_offset: float = 0.0
    gate_bounds: tuple[float, float] = (-inf, inf)
    up_bounds: tuple[float, float] = (-inf, inf)
    modulate: str = "output"
    activation: str = ""

    def attributes(self) -> dict[str, str | float]:
        """Attributes of the op ``experts``, without its element type and the layer's activation."""
        (gate_lower, gate_upper), (up_lower, up_upper) = self.gate_bounds, self.up_bounds
        return {
            "glu": self.glu,
            "activation_scale": self.activation_scale,
            "up_offset": self.up_offset,
            "gate_lower": gate_lower,
            "gate_upper": gate_upper,
            "up_lower": up_lower,
            "up_upper": up_upper,
            "modulate": self.modulate,
            **({"activation": self.activation} if self.activation else {}),
        }


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """A gated MLP that every token has beside its own experts.

    Attributes:
        intermediate_size: its I.
        module: its scope in that of the mixture.
        gate: scope of a weight [1,H]: the logistic function of its product with a token multiplies
            the result; empty for none.
        bias: its products have a bias.
    """

    intermediate_size: int
    module: str = "shared_experts"
    gate: str = ""
    bias: bool = False


@dataclass(frozen=True, slots=True)
class MixtureConfig:
    """Sizes, switches and names of one layer's mixture of experts.

    Attributes:
        router: its choice.
        intermediate_size: I of each expert.
        module: scope of the mixture; the router's weight is ``gate.weight`` in it, those of the
            experts are ``experts.NAME.weight``.
        names: of gate, up and down in a checkpoint.
        shared: the expert of every token, if there is one.
        form: what an expert computes.
        gate: scope of the router's weight, where it is not ``gate``.
    """

    router: TopKRouter
    intermediate_size: int
    module: str = "mlp"
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    shared: SharedExpert | None = None
    form: ExpertForm = ExpertForm()
    gate: str = "gate"


def route(b: Builder, logits: Value, config: TopKRouter) -> tuple[Value, Value]:
    """The experts s32 [...,K] of each token and their weights f32 [...,K], of logits f32 [...,E].

    Of equal scores the first expert comes first. The score of a logit grows with it, so experts are
    chosen by logits.
    """
    scores = logits if config.over == "chosen" else _scored(b, logits, config)
    ranked = _corrected(b, scores, config.correction)
    if config.groups is not None:
        ranked = limit_to_groups(b, ranked, config.groups)
    weights, indices = b.top_k(ranked, config.top_k)
    if config.correction:
        weights = scores_at(b, scores, indices)
    if config.over == "chosen":
        weights = _scored(b, weights, config)
    if config.normalize:
        weights = normalized(b, weights, config.epsilon)
    return indices, weights * config.scaling if config.scaling != 1.0 else weights


def normalized(b: Builder, weights: Value, epsilon: float = 0.0) -> Value:
    """Weights [...,K] of each token divided by their sum plus ``epsilon``."""
    last = len(weights.shape) - 1
    total = b.reduce(weights, [last], "add")
    total = total + epsilon if epsilon else total
    return weights / b.broadcast_in_dim(total, weights.shape, list(range(last)))


def _corrected(b: Builder, scores: Value, name: str) -> Value:
    """Scores [...,E] plus the bias ``name`` [E] of the router."""
    if not name:
        return scores
    bias = b.weight(name, f32, scores.shape[-1:])
    return scores + b.broadcast_in_dim(bias, scores.shape, [len(scores.shape) - 1])


def _scored(b: Builder, x: Value, config: TopKRouter) -> Value:
    return b.softmax(x, -1) if config.score == "softmax" else b.unary("logistic", x)


def mixture(b: Builder, x: Value, config: MixtureConfig, activation: str, dtype: DType) -> Value:
    """The sum over a token's experts, weighted by the router: [...,H] in ``dtype`` of x [...,H].

    The router's product and its scores are f32. Weights are ``gate.weight`` [E,H] and, stacked,
    ``experts.*.weight`` [E,I,H] for gate and up, [E,H,I] for down.
    """
    return routed(b, x, config, activation, dtype).hidden


@dataclass(frozen=True, slots=True)
class Routed:
    """The result of a mixture, and the router's.

    Attributes:
        hidden: [...,H].
        logits: f32 [...,E].
        indices: experts of each token, s32 [...,K].
    """

    hidden: Value
    logits: Value
    indices: Value


def routed(b: Builder, x: Value, config: MixtureConfig, activation: str, dtype: DType) -> Routed:
    """:func:`mixture` with the logits and indices of its router."""
    router = config.router
    with b.scope(config.module):
        logits = linear(b, config.gate, x, router.num_experts, bias=router.bias, dtype=f32)
        indices, weights = route(b, logits, router)
        held = _parameters(b, x, config)
        options = config.form.attributes()
        y = b.op(
            *("experts", x, indices, weights, *held),
            **{"activation": activation, **options, "dtype": dtype},
        )
        if config.shared is not None:
            y = y + _shared(b, x, config.shared, activation, dtype)
        return Routed(y, logits, indices)


def _parameters(b: Builder, x: Value, config: MixtureConfig) -> list[Value]:
    """Weights of gate, up and down, then their biases if they have some."""
    width, inner, count = x.shape[-1], config.intermediate_size, config.router.num_experts
    shapes = [(count, inner, width), (count, inner, width), (count, width, inner)]
    found: list[Value] = []
    with b.scope("experts"):
        for part in ("weight", "bias") if config.form.bias else ("weight",):
            for name, shape in zip(config.names, shapes, strict=True):
                with b.scope(name):
                    held = shape if part == "weight" else shape[:2]
                    found.append(b.weight(part, x.dtype, held))
    return found


def _shared(b: Builder, x: Value, config: SharedExpert, activation: str, dtype: DType) -> Value:
    """The result of the expert that every token has."""
    y = gated_mlp(
        *(b, x, config.intermediate_size),
        activation=activation,
        bias=config.bias,
        dtype=dtype,
        module=config.module,
    )
    if not config.gate:
        return y
    share = b.unary("logistic", linear(b, config.gate, x, 1, dtype=dtype))
    last = len(y.shape) - 1
    share = b.reshape(share, share.shape[:last])
    return y * b.broadcast_in_dim(share, y.shape, list(range(last)))
