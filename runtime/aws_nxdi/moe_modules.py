"""NxD's modules of experts, as descriptions that append their ops to the program of a family.

``RouterTopK``, ``ExpertMLPs``, ``SharedExperts`` and ``MoE`` take the arguments of the classes of
``neuronx_distributed.modules.moe``. ``module(b, hidden_states)`` in the body of a family stands for
``module(hidden_states)`` in a module of PyTorch; weights have NxD's names and layouts. How ranks
and phases hold them follows from the compilation, so that arguments about devices, groups of ranks
and sequence parallelism change nothing.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import cast

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.ir.dtype import bf16, f16, f32
from graphgen.nn import ExpertForm, TopKRouter, gated_mlp, linear, normalized, route
from graphgen.ops.experts import ACTIVATIONS
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.expert_config import (
    MoENeuronConfig,
    RoutedExpertsMLPOpsConfig,
    RouterConfig,
)

_TYPES = {"float32": f32, "bfloat16": bf16, "float16": f16}


@dataclass(frozen=True, slots=True)
class RouterTopK:
    """The router: logits of a linear layer, and the ``top_k`` experts of each token.

    Attributes:
        num_experts: E.
        top_k: K.
        hidden_size: H.
        act_fn: ``softmax`` or ``sigmoid`` of the logits, in f32.
        dtype: element type that logits are rounded to, of torch or its name.
        bias: whether the linear layer has one.
        apply_act_fn_over_topk: activate the chosen logits alone.
        sequence_parallel_enabled: no effect.
        sequence_dimension: no effect.
    """

    num_experts: int
    top_k: int
    hidden_size: int
    _: KW_ONLY
    act_fn: str = "softmax"
    dtype: object = "float32"
    bias: bool = False
    apply_act_fn_over_topk: bool = False
    sequence_parallel_enabled: bool = False
    sequence_dimension: int | None = None

    def __post_init__(self) -> None:
        RouterConfig(act_fn=self.act_fn, dtype=self.dtype)
        if not 1 <= self.top_k <= self.num_experts:
            raise GraphgenError(
                "GG0903",
                f"RouterTopK.top_k = {self.top_k} with num_experts = {self.num_experts}: top_k "
                "must be from 1 to num_experts",
                help="lower top_k, or raise num_experts",
            )

    def choose(self, b: Builder, hidden_states: Value) -> tuple[Value, Value, Value]:
        """Logits f32 [...,E], and weights f32 and indices s32 [...,K] of the chosen experts."""
        router = TopKRouter(
            self.num_experts,
            self.top_k,
            score=self.act_fn,
            over="chosen" if self.apply_act_fn_over_topk else "all",
        )
        dtype = _TYPES[str(RouterConfig(dtype=self.dtype).value("dtype"))]
        with b.scope("router"):
            logits = linear(
                *(b, "linear_router", hidden_states, self.num_experts),
                bias=self.bias,
                dtype=dtype,
            )
            logits = b.convert(logits, f32)
            indices, weights = route(b, logits, router)
            return logits, weights, indices

    def __call__(self, b: Builder, hidden_states: Value) -> tuple[Value, Value, Value]:
        """``(router_logits, expert_affinities, expert_index)`` of hidden_states [...,H].

        Logits and affinities are f32 [...,E]; affinities of experts that were not chosen are those
        of the activation, or 0 with ``apply_act_fn_over_topk``. Indices are s32 [...,K].
        """
        logits, weights, indices = self.choose(b, hidden_states)
        if self.apply_act_fn_over_topk:
            picked = b.one_hot(indices, self.num_experts)
            rows = list(range(len(weights.shape)))
            spread = picked * b.broadcast_in_dim(weights, picked.shape, rows)
            return logits, b.reduce(spread, [len(rows) - 1], "add"), indices
        soft = self.act_fn == "softmax"
        return logits, b.softmax(logits, -1) if soft else b.unary("logistic", logits), indices


class ExpertMLPs:
    """The MLPs of a mixture, gated or not.

    Weights in the scope ``expert_mlps.mlp_op`` are ``gate_up_proj.weight`` [E,H,2I], gates first,
    and ``down_proj.weight`` [E,I,H]; with ``bias`` also ``gate_up_proj.bias`` [E,2I] and
    ``down_proj.bias`` [E,H]. The bias of the up projection is that of the checkpoint, without
    ``hidden_act_bias``. With ``glu_mlp=False`` an expert is ``down(act(up(x)))``, and
    ``up_proj.weight`` [E,H,I] and ``up_proj.bias`` [E,I] take the place of the fused ones.

    Args:
        routed_experts_mlp_config: the options; without it ``values`` are those.
        values: attributes of a RoutedExpertsMLPOpsConfig.

    Raises:
        GraphgenError: GG0901 to GG0904 for the options, GG0904 for an activation or experts that
            are not built.
    """

    def __init__(
        self, routed_experts_mlp_config: RoutedExpertsMLPOpsConfig | None = None, **values: object
    ) -> None:
        config = routed_experts_mlp_config or RoutedExpertsMLPOpsConfig(**values)
        self.config = config.freeze(type(self).__name__)
        self.form = _form(config)
        if not config.value("glu_mlp"):
            _check_ungated(self.form)
        if self._word("hidden_act") not in ACTIVATIONS:
            shown = f"hidden_act = {self._word('hidden_act')!r}"
            raise _unbuilt(shown, "this activation", f"one of {', '.join(ACTIVATIONS)}")

    def _count(self, name: str) -> int:
        return cast(int, self.config.value(name))

    def _word(self, name: str) -> str:
        return str(self.config.value(name))

    def __call__(
        self,
        b: Builder,
        hidden_states: Value,
        expert_affinities: Value,
        expert_index: Value,
        dtype: DType | None = None,
    ) -> Value:
        """The weighted sum of the experts in ``expert_index`` s32 [...,K], [...,H].

        ``expert_affinities`` are f32 [...,E]. The result is of ``dtype``, by default that of
        ``hidden_states``.
        """
        picked = b.one_hot(expert_index, self._count("num_experts"))
        rows = [*range(len(expert_index.shape) - 1), len(expert_index.shape)]
        spread = picked * b.broadcast_in_dim(expert_affinities, picked.shape, rows)
        weights = b.reduce(spread, [rows[-1]], "add")
        return self.combine(b, hidden_states, weights, expert_index, dtype)

    def combine(
        self, b: Builder, x: Value, weights: Value, indices: Value, dtype: DType | None = None
    ) -> Value:
        """The same of weights f32 [...,K]."""
        if self.config.value("normalize_top_k_affinities") and self._count("top_k") > 1:
            weights = normalized(b, weights)
        with b.scope("expert_mlps.mlp_op"):
            gated = bool(self.config.value("glu_mlp"))
            made = self._parameters if gated else self._ungated
            form = self.form.attributes()
            if not gated:
                form["up_offset"] = 1.0
            return b.op(
                *("experts", x, indices, weights, *made(b, x.dtype)),
                **{"activation": self._word("hidden_act"), **form},
                dtype=dtype or x.dtype,
            )

    def _parameters(self, b: Builder, dtype: DType) -> list[Value]:
        """Gate, up and down as [E,I,H], [E,I,H] and [E,H,I], then their biases."""
        count, width = self._count("num_experts"), self._count("hidden_size")
        inner = self._count("intermediate_size")
        with b.scope("gate_up_proj"):
            both = b.weight("weight", dtype, (count, width, 2 * inner))
            gate, up = [b.transpose(part, [0, 2, 1]) for part in b.split(both, 2, 2)]
            biases: list[Value] = []
            if self.form.bias:
                biases = b.split(b.weight("bias", dtype, (count, 2 * inner)), 2, 1)
        with b.scope("down_proj"):
            down = b.transpose(b.weight("weight", dtype, (count, inner, width)), [0, 2, 1])
            if self.form.bias:
                biases.append(b.weight("bias", dtype, (count, width)))
        return [gate, up, down, *biases]

    def _ungated(self, b: Builder, dtype: DType) -> list[Value]:
        """The same of experts without a gate: ``act(up(x))`` times a gate of 0 x + 1.

        The op ``experts`` has its activation on what it calls the gate, whose factor is the other
        product plus an offset.
        """
        count, width = self._count("num_experts"), self._count("hidden_size")
        inner, biases = self._count("intermediate_size"), list[Value]()
        with b.scope("up_proj"):
            up = b.transpose(b.weight("weight", dtype, (count, width, inner)), [0, 2, 1])
            if self.form.bias:
                bias = b.weight("bias", dtype, (count, inner))
                biases = [bias, b.full(0, bias.type)]
        with b.scope("down_proj"):
            down = b.transpose(b.weight("weight", dtype, (count, inner, width)), [0, 2, 1])
            if self.form.bias:
                biases.append(b.weight("bias", dtype, (count, width)))
        return [up, b.full(0, up.type), down, *biases]


@dataclass(frozen=True, slots=True)
class SharedExperts:
    """An MLP that every token has beside its experts, as wide as ``num_shared_experts`` of them.

    Weights are ``shared_experts.gate_proj.weight`` [nI,H], ``up_proj`` likewise, and
    ``down_proj.weight`` [H,nI], also for ``fused_gate_up_projection`` and ``transpose_weights``:
    products with one input are fused wherever their weights can be joined.
    """

    hidden_size: int
    intermediate_size: int
    num_shared_experts: int
    hidden_act: str
    _: KW_ONLY
    fused_gate_up_projection: bool = False
    sequence_parallel_enabled: bool = False
    transpose_weights: bool = False

    def __call__(self, b: Builder, hidden_states: Value, dtype: DType | None = None) -> Value:
        """The result [...,H]."""
        return gated_mlp(
            *(b, hidden_states, self.num_shared_experts * self.intermediate_size),
            activation=self.hidden_act,
            dtype=dtype,
            module="shared_experts",
        )


@dataclass(frozen=True, slots=True)
class MoE:
    """A mixture of experts: a router, routed experts and shared experts.

    Attributes:
        router: its choice.
        expert_mlps: the experts.
        shared_experts: the MLP of every token, if there is one.
        return_router_logits: whether a call gives the logits f32 [...,E] too.
        return_expert_index: whether it gives the indices s32 [...,K] too, last.
        sequence_parallel_enabled: no effect.
        sequence_dimension: no effect.
    """

    router: RouterTopK
    expert_mlps: ExpertMLPs
    shared_experts: SharedExperts | None = None
    _: KW_ONLY
    return_router_logits: bool = False
    return_expert_index: bool = False
    sequence_parallel_enabled: bool = False
    sequence_dimension: int | None = None

    def __call__(
        self, b: Builder, hidden_states: Value, dtype: DType | None = None
    ) -> tuple[Value, ...]:
        """The result [...,H] of hidden_states [...,H], then logits and indices if requested."""
        logits, weights, indices = self.router.choose(b, hidden_states)
        y = self.expert_mlps.combine(b, hidden_states, weights, indices, dtype)
        if self.shared_experts is not None:
            y = y + self.shared_experts(b, hidden_states, dtype)
        found = [y]
        if self.return_router_logits:
            found.append(logits)
        if self.return_expert_index:
            found.append(indices)
        return tuple(found)


def _form(config: RoutedExpertsMLPOpsConfig) -> ExpertForm:
    """The function of an expert that the options state."""

    def bound(name: str, otherwise: float) -> float:
        found = cast("float | None", config.value(name))
        return otherwise if found is None else found

    early = config.value("early_expert_affinity_modulation")
    return ExpertForm(
        bias=bool(config.value("bias")),
        glu=str(config.value("glu_type")),
        activation_scale=cast(float, config.value("hidden_act_scaling_factor")),
        up_offset=cast(float, config.value("hidden_act_bias")),
        gate_bounds=(bound("gate_clamp_lower_limit", -inf), bound("gate_clamp_upper_limit", inf)),
        up_bounds=(bound("up_clamp_lower_limit", -inf), bound("up_clamp_upper_limit", inf)),
        modulate="input" if early else "output",
    )


def _check_ungated(form: ExpertForm) -> None:
    """Refuse options of a gate for experts without one (GG0903)."""
    plain = ExpertForm(bias=form.bias, modulate=form.modulate)
    if form != plain:
        raise GraphgenError(
            "GG0903",
            "ExpertMLPs: glu_mlp = False with options of a gate: glu_type, "
            "hidden_act_scaling_factor, hidden_act_bias and bounds of gate and up projection",
            help="leave them out, or set glu_mlp=True",
        )


def _unbuilt(shown: str, feature: str, remedy: str) -> GraphgenError:
    return GraphgenError("GG0904", f"ExpertMLPs: {shown}: {feature} is not built yet", help=remedy)


# Names of a model's configuration for each size, the first that is there.
_SIZES = {
    "num_experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "top_k": ("num_experts_per_tok", "top_k"),
    "hidden_size": ("hidden_size",),
    "intermediate_size": ("moe_intermediate_size", "intermediate_size"),
    "hidden_act": ("hidden_act",),
}


def initialize_moe_module(
    config: object,
    num_experts: int | None = None,
    top_k: int | None = None,
    hidden_size: int | None = None,
    intermediate_size: int | None = None,
    hidden_act: str | None = None,
    *,
    neuron_config: MoENeuronConfig | None = None,
    router_bias: bool = False,
    experts_bias: bool = False,
    apply_act_fn_over_topk: bool = False,
    init_tkg_module: bool = False,
) -> MoE:
    """The module of NxD Inference's function of this name.

    Args:
        config: an InferenceConfig, or any object with the sizes as attributes under Hugging Face's
            names, ``n_shared_experts`` among them.
        num_experts: E; by default ``num_local_experts``, ``num_experts`` or ``n_routed_experts``.
        top_k: K; by default ``num_experts_per_tok`` or ``top_k``.
        hidden_size: H.
        intermediate_size: I of an expert; by default ``moe_intermediate_size`` or
            ``intermediate_size``.
        hidden_act: the activation.
        neuron_config: how experts compute; by default ``config.neuron_config``, or that of no
            options.
        router_bias: whether the router has a bias.
        experts_bias: whether experts have biases.
        apply_act_fn_over_topk: activate the chosen logits alone.
        init_tkg_module: no effect: programs of all phases come from one description.

    Raises:
        GraphgenError: GG0503 for a size that ``config`` does not have, GG0902 for a configuration
            without options of experts, GG0903 and GG0904 for options.
    """
    given = (num_experts, top_k, hidden_size, intermediate_size, hidden_act)
    sizes = {
        name: _size(config, name) if value is None else value
        for name, value in zip(_SIZES, given, strict=True)
    }
    options = neuron_config or _options(config)
    routed = RoutedExpertsMLPOpsConfig(**sizes, bias=experts_bias, **_expert_options(options))
    return MoE(
        _router(options, routed, bias=router_bias, over_chosen=apply_act_fn_over_topk),
        ExpertMLPs(routed),
        _shared(config, routed),
        return_router_logits=bool(options.value("return_router_logits")),
        return_expert_index=bool(options.value("return_expert_index")),
    )


def _router(
    options: MoENeuronConfig, routed: RoutedExpertsMLPOpsConfig, *, bias: bool, over_chosen: bool
) -> RouterTopK:
    """The router of as many experts."""
    found = options.value("router_config")
    router = found if isinstance(found, RouterConfig) else RouterConfig()
    experts, chosen, width = (
        cast(int, routed.value(name)) for name in ("num_experts", "top_k", "hidden_size")
    )
    return RouterTopK(
        *(experts, chosen, width),
        act_fn=str(router.value("act_fn")),
        dtype=router.value("dtype"),
        bias=bias,
        apply_act_fn_over_topk=over_chosen,
    )


def _size(config: object, name: str) -> object:
    """A size under the first of its names that the configuration has (GG0503)."""
    for word in _SIZES[name]:
        found = getattr(config, word, None)
        if found is not None:
            return found
    raise GraphgenError(
        "GG0503",
        f"{type(config).__name__} has no {' or '.join(_SIZES[name])}",
        help=f"give {name} to initialize_moe_module, or set it in the configuration",
    )


def _options(config: object) -> MoENeuronConfig:
    """The options in a model's configuration; none where it has no NeuronConfig (GG0902)."""
    found = getattr(config, "neuron_config", None)
    if found is None:
        return MoENeuronConfig()
    if not isinstance(found, MoENeuronConfig):
        raise GraphgenError(
            "GG0902",
            f"neuron_config is a {type(found).__name__}, not a MoENeuronConfig",
            help="make the configuration of a MoENeuronConfig",
        )
    return found


def _expert_options(options: MoENeuronConfig) -> dict[str, object]:
    """The options that experts have too; a capacity is one of all experts of a model."""
    shared = attributes_of("RoutedExpertsMLPOpsConfig").keys() - {"capacity_factor"}
    found = {name: value for name, value in options.given.items() if name in shared}
    return {
        **found,
        "glu_mlp": options.value("glu_mlp"),
        "normalize_top_k_affinities": options.value("normalize_top_k_affinities"),
    }


def _shared(config: object, routed: RoutedExpertsMLPOpsConfig) -> SharedExperts | None:
    count = getattr(config, "n_shared_experts", None)
    if not count:
        return None
    width, inner = (cast(int, routed.value(name)) for name in ("hidden_size", "intermediate_size"))
    return SharedExperts(width, inner, count, str(routed.value("hidden_act")))
