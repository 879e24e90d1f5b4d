"""NxD's layers as modules of PyTorch, for models that users write in PyTorch.

They compute what the layers of ``neuronx_distributed.parallel_layers`` and NxD Inference's
``NeuronAttentionBase`` do on all ranks together: the modules are traced whole, and how ranks divide
them follows from the annotations of :func:`layout_rules` and from the mesh. Parameters are
allocated and not initialized: their values are those of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphgen.errors import GraphgenError, did_you_mean

# The attention of a layer over its cache: the meaning of its calls is given where they are traced.
CACHED_ATTENTION = "graphgen.cached_attention.default"


def element_type(given: object) -> torch.dtype:
    """An element type of torch, also by its name (GG0705)."""
    if isinstance(given, torch.dtype):
        return given
    found: object = getattr(torch, str(given).removeprefix("torch."), None)
    if isinstance(found, torch.dtype):
        return found
    raise GraphgenError("GG0705", f"dtype {given!r}: torch has no such element type")


def _empty(dtype: object, *shape: int) -> nn.Parameter:
    """A parameter whose memory is not touched before the checkpoint fills it."""
    return nn.Parameter(torch.empty(shape, dtype=element_type(dtype)), requires_grad=False)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of a layer.

    Attributes:
        built: what it computes follows from these.
        without_effect: about ranks, kernels and memory.
        unbuilt: known with these values alone, which are those that nothing follows from.
    """

    built: tuple[str, ...]
    without_effect: tuple[str, ...]
    unbuilt: Mapping[str, tuple[object, ...]]


_OF_RANKS = (
    *("device", "init_method", "pad", "tensor_model_parallel_group", "rank_ordering", "tile_cc"),
    *("sequence_parallel_enabled", "sequence_dimension"),
)
_OF_LINEAR = _Arguments(
    ("input_size", "output_size", "bias", "dtype"),
    (
        *_OF_RANKS,
        *("gather_output", "input_is_parallel", "reduce_output", "reduce_dtype", "stride"),
        *("keep_master_weight", "pad_alignment_size_per_rank"),
    ),
    {"skip_bias_add": (False,), "keep_padded_output": (False,)},
)
_OF_EMBEDDING = _Arguments(
    ("num_embeddings", "embedding_dim", "padding_idx", "dtype", "shard_across_embedding"),
    (
        *_OF_RANKS,
        *("norm_type", "scale_grad_by_freq", "sparse", "use_spmd_rank", "collect_output"),
    ),
    {"max_norm": (None,)},
)


def _check_arguments(layer: str, given: Mapping[str, object], known: _Arguments) -> None:
    """Refuse arguments that are unknown, or would change what is computed (GG0904)."""
    names = (*known.built, *known.without_effect, *known.unbuilt)
    for name, value in given.items():
        if name not in names:
            raise GraphgenError(
                "GG0904",
                f"{layer} has no argument {name}",
                help=did_you_mean(name, names) or "leave it out, or compute it in the module",
            )
        # An enumeration's member counts by its name.
        if name in known.unbuilt and getattr(value, "name", value) not in known.unbuilt[name]:
            raise GraphgenError(
                "GG0904",
                f"{layer}: {name} = {value!r} is not built",
                help="leave it out, or compute it in the module",
            )


class _ParallelLinear(nn.Module):
    """A linear layer with the arguments of NxD's.

    Args:
        input_size: K.
        output_size: N.
        bias: whether it has one.
        dtype: element type of the parameters.
        others: NxD's arguments about devices, groups of ranks, padding and sequence parallelism;
            no effect, as ranks are laid out by the compilation.

    Attributes:
        weight: [N,K].
        bias: [N], or ``None``.

    Raises:
        GraphgenError: GG0904 for an argument that is unknown, or changes what is computed and is
            not built.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        *,
        dtype: object = torch.float32,
        **others: object,
    ) -> None:
        super().__init__()
        _check_arguments(type(self).__name__, others, _OF_LINEAR)
        self.input_size, self.output_size = input_size, output_size
        self.weight = _empty(dtype, output_size, input_size)
        self.bias = _empty(dtype, output_size) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [...,K] times the weight, [...,N]."""
        return functional.linear(x, self.weight, self.bias)


class ColumnParallelLinear(_ParallelLinear):
    """A linear layer whose output features are divided over the ranks.

    The first five arguments have NxD's order; see the base class for all.

    Args:
        gather_output: no effect: the ops that read the result decide how ranks divide it.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        gather_output: bool = True,
        dtype: object = torch.float32,
        **others: object,
    ) -> None:
        super().__init__(input_size, output_size, bias, dtype=dtype, **others)


class RowParallelLinear(_ParallelLinear):
    """A linear layer whose input features are divided over the ranks, which sum their products.

    The first five arguments have NxD's order; see the base class for all.

    Args:
        input_is_parallel: no effect: the ops that make the input decide how ranks divide it.
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        bias: bool = True,
        input_is_parallel: bool = False,
        dtype: object = torch.float32,
        **others: object,
    ) -> None:
        super().__init__(input_size, output_size, bias, dtype=dtype, **others)


class ParallelEmbedding(nn.Module):
    """A table of embeddings, divided over the ranks by rows or by columns.

    Args:
        num_embeddings: rows.
        embedding_dim: columns.
        padding_idx: no effect: the row is that of the checkpoint.
        dtype: element type of the table.
        shard_across_embedding: ranks divide columns.
        others: as of :class:`ColumnParallelLinear`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        dtype: object = torch.float32,
        shard_across_embedding: bool = False,
        **others: object,
    ) -> None:
        super().__init__()
        _check_arguments(type(self).__name__, others, _OF_EMBEDDING)
        self.shard_across_embedding = shard_across_embedding
        self.weight = _empty(dtype, num_embeddings, embedding_dim)

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of ``ids`` [...], [...,embedding_dim]."""
        return functional.embedding(ids, self.weight)


class CustomRMSNorm(nn.Module):
    """The root-mean-square norm, computed in f32.

    Args:
        hidden_size: features; by default not weighted.
        eps: added to the mean of squares.
    """

    def __init__(self, hidden_size: int | None = None, eps: float = 1e-6) -> None:
        super().__init__()
        self.variance_epsilon = eps
        self.weight = None if hidden_size is None else nn.Parameter(torch.ones(hidden_size))

    def forward(self, hidden_states: Tensor) -> Tensor:
        """``hidden_states`` [...,E] of norm 1, times the weight, in their own type."""
        x = hidden_states.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        made = x.to(hidden_states.dtype)
        return made if self.weight is None else self.weight * made


class RotaryEmbedding(nn.Module):
    """Cosine and sine of the rotary angles of positions.

    Args:
        dim: of a head.
        max_position_embeddings: no effect: positions are those of the call.
        base: of the frequencies.
    """

    def __init__(
        self, dim: int, max_position_embeddings: int = 2048, base: float = 10000.0
    ) -> None:
        super().__init__()
        self.dim, self.base = dim, base
        self.max_position_embeddings = max_position_embeddings
        powers = torch.arange(0, dim, 2, dtype=torch.float32) / dim
        self.register_buffer("inv_freq", 1.0 / base**powers, persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine [B,S,dim] of ``position_ids`` [B,S], in the type of ``x``."""
        frequencies = cast(Tensor, self.inv_freq).to(torch.float32)
        angles = position_ids[:, :, None].to(torch.float32) * frequencies[None, None, :]
        both = torch.cat((angles, angles), -1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


def rotate_half(x: Tensor) -> Tensor:
    """The second half of each head, negated, before the first one."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def apply_rotary_pos_emb(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
) -> tuple[Tensor, Tensor]:
    """``q`` and ``k`` [B,H,S,D] turned by their angles; cos and sin are [B,S,D]."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


@torch.library.custom_op("graphgen::cached_attention", mutates_args=())
def cached_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layer: str,
    scale: float,
    window: int,
    softcap: float,
    sinks: Tensor | None,
) -> Tensor:
    """Causal attention of q [B,S,H,D] over k and v [B,S,K,D] of a prompt: [B,S,H*D].

    Here it has no cache. In a compiled program keys and values go to the cache of ``layer`` first,
    and queries read those of all earlier positions. A query reads ``window`` positions at most, if
    that is not 0; ``softcap`` bounds scores, ``sinks`` [H] are scores without a value.
    """
    groups = query.shape[2] // key.shape[2]
    q, k, v = (x.transpose(1, 2).to(torch.float32) for x in (query, key, value))
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(-1, -2) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    place = torch.arange(query.shape[1], device=query.device)
    distance = place[:, None] - place[None, :]
    hidden = (distance < 0) | ((distance >= window) if window else (distance < 0))
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        extra = sinks.to(torch.float32)[None, :, None, None].expand(*scores.shape[:3], 1)
        weights = torch.cat((scores, extra), -1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2).to(query.dtype).contiguous()


@cached_attention.register_fake  # pyright: ignore[reportUnknownMemberType]
def _of_shape(query: Tensor, *_: object) -> Tensor:
    batch, active, heads, size = query.shape
    return query.new_empty((batch, active, heads * size))


class NeuronAttentionBase(nn.Module):
    """Attention with grouped queries over the cache of its layer.

    A subclass gives the sizes to ``__init__``, or sets them as attributes and calls
    :meth:`init_gqa_properties`, as earlier releases of NxD Inference want it. Parameters are
    ``q_proj``, ``k_proj``, ``v_proj`` and ``o_proj``.

    Args:
        config: of the model.
        hidden_size: E.
        num_attention_heads: H.
        num_key_value_heads: K; by default H.
        head_dim: D; by default E / H.
        rotary_emb: gives cosine and sine of positions; ``None`` for queries and keys as they are.
        qkv_bias, o_bias: whether projections have biases.
        q_layernorm, k_layernorm: norms of the heads of queries and keys.
        use_qk_norm: normalize heads without weights, with ``rms_norm_eps``.
        rms_norm_eps: of that norm.
        sliding_window: positions that a query reads at most.
        clip_qkv: bound of the projections.
        softmax_scale: of the scores; by default the root of 1 / D.
        softcap: bound of the scores; 0 for none. AWS's class has no such argument.
        others: arguments about ranks and kernels; no effect.

    Raises:
        GraphgenError: GG0904 for an argument that is unknown, or changes the mathematics and is
            not built.
    """

    def __init__(self, config: object = None, **values: object) -> None:
        super().__init__()
        self.config: Any = config
        # The path of the module in its model, by which its cache is found.
        self.layer_path = ""
        self.head_dim: Any = None
        self.num_key_value_heads: Any = None
        self.rotary_emb: Any = None
        self.q_layernorm: Any = None
        self.k_layernorm: Any = None
        self.sliding_window: int | None = None
        self.clip_qkv: float | None = None
        self.qkv_bias = self.o_bias = self.use_qk_norm = False
        self.rms_norm_eps = 1e-6
        self.softmax_scale: float | None = None
        self.softcap = 0.0
        _check_arguments(NeuronAttentionBase.__name__, values, _OF_ATTENTION)
        for name, value in values.items():
            if name in _OF_ATTENTION.built and value is not None:
                setattr(self, name, value)
        if "hidden_size" in values:
            self.init_gqa_properties()

    def init_gqa_properties(self) -> None:
        """Make the projections of the sizes that are set."""
        heads = cast(int, self.num_attention_heads)
        width = cast(int, self.hidden_size)
        self.num_key_value_heads = self.num_key_value_heads or heads
        self.head_dim = self.head_dim or width // heads
        settings: Any = getattr(self.config, "neuron_config", None)
        dtype = element_type(getattr(settings, "torch_dtype", None) or torch.float32)
        for name, count in (
            ("q_proj", heads),
            ("k_proj", self.num_key_value_heads),
            ("v_proj", self.num_key_value_heads),
        ):
            size = count * self.head_dim
            self.add_module(name, ColumnParallelLinear(width, size, self.qkv_bias, dtype=dtype))
        inner = heads * self.head_dim
        self.o_proj = RowParallelLinear(inner, width, self.o_bias, dtype=dtype)
        if self.use_qk_norm:
            self.q_layernorm = CustomRMSNorm(None, self.rms_norm_eps)
            self.k_layernorm = CustomRMSNorm(None, self.rms_norm_eps)

    def prep_qkv_tensors(
        self,
        position_ids: Tensor,
        hidden_states: Tensor,
        past_key_value: object = None,
        cos_cache: Tensor | None = None,
        sin_cache: Tensor | None = None,
        **others: object,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """Queries, keys and values [B,H,S,D], rotated, and the cosine and sine that turned them."""
        batch, active, _ = hidden_states.shape
        made: list[Tensor] = []
        for name, norm in (
            ("q_proj", self.q_layernorm),
            ("k_proj", self.k_layernorm),
            ("v_proj", None),
        ):
            flat = self.get_submodule(name)(hidden_states)
            if self.clip_qkv is not None:
                flat = flat.clamp(-self.clip_qkv, self.clip_qkv)
            heads = flat.view(batch, active, -1, self.head_dim)
            made.append((heads if norm is None else norm(heads)).transpose(1, 2))
        q, k, v = made
        if self.rotary_emb is not None:
            if cos_cache is None or sin_cache is None:
                cos_cache, sin_cache = self.rotary_emb(v, position_ids)
            q, k = self.apply_rotary_embedding(q, k, v, position_ids, cos_cache, sin_cache)
        return q, k, v, cos_cache, sin_cache

    def apply_rotary_embedding(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position_ids: Tensor,
        cos_cache: Tensor | None,
        sin_cache: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """``q`` and ``k`` [B,H,S,D] turned by the angles of their positions."""
        return apply_rotary_pos_emb(q, k, cast(Tensor, cos_cache), cast(Tensor, sin_cache))

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: object = None,
        position_ids: Tensor | None = None,
        past_key_value: object = None,
        active_mask: object = None,
        cos_cache: Tensor | None = None,
        sin_cache: Tensor | None = None,
        **others: object,
    ) -> tuple[Tensor, None, Tensor | None, Tensor | None]:
        """The output [B,S,E], no keys and values, as the cache has them, and cosine and sine."""
        if position_ids is None:
            place = torch.arange(hidden_states.shape[1], device=hidden_states.device)
            position_ids = place[None].expand(hidden_states.shape[0], -1)
        q, k, v, cos, sin = self.prep_qkv_tensors(
            position_ids, hidden_states, None, cos_cache, sin_cache
        )
        out = cached_attention(
            *(x.transpose(1, 2).contiguous() for x in (q, k, v)),
            self.layer_path,
            self.head_dim**-0.5 if self.softmax_scale is None else self.softmax_scale,
            self.sliding_window or 0,
            self.softcap,
            None,
        )
        return self.o_proj(out), None, cos, sin


_NOTHING: Final = (None, False, 0)
_OF_ATTENTION = _Arguments(
    (
        *("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rotary_emb"),
        *("qkv_bias", "o_bias", "q_layernorm", "k_layernorm", "use_qk_norm", "rms_norm_eps"),
        *("sliding_window", "clip_qkv", "softmax_scale", "softcap"),
    ),
    (
        # The angles are those of rotary_emb.
        *("rope_theta", "num_cores_per_group", "sequence_parallel_enabled"),
        *("tensor_model_parallel_group", "optimize_interleave_attn"),
        *("is_pre_global_attn_layer", "is_post_global_attn_layer"),
    ),
    {
        "attention_chunk_size": _NOTHING,
        "learned_sinks_size": _NOTHING,
        "use_scaled_rope": _NOTHING,
        "post_transpose_layernorm": _NOTHING,
        "qk_norm_placement": (None, "PRE_ROPE", 0),
        "o_proj_layer_name": (None, "o_proj"),
    },
)


def _modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules of a model by their paths."""
    return list(cast("Iterator[tuple[str, nn.Module]]", model.named_modules()))


def place_caches(model: nn.Module) -> None:
    """Tell each attention its path in the model, which names its cache."""
    for path, module in _modules(model):
        if isinstance(module, NeuronAttentionBase):
            module.layer_path = path


def layout_rules(model: nn.Module) -> Iterator[str]:
    """Rules of ``shard`` that state the layouts of a model's parallel layers, by name.

    Those of attention follow from its heads. Of several names of a tensor the first counts.
    """
    modules = _modules(model)
    attentions = [path for path, m in modules if isinstance(m, NeuronAttentionBase)]
    names = {id(value): name for name, value in model.named_parameters()}
    for path, module in modules:
        if any(path.startswith(f"{home}.") for home in attentions):
            continue
        layouts: dict[str, str] = {}
        if isinstance(module, ColumnParallelLinear):
            layouts = {"weight": "{tp,-}", "bias": "{tp}"}
        elif isinstance(module, RowParallelLinear):
            layouts = {"weight": "{-,tp}"}
        elif isinstance(module, ParallelEmbedding):
            layouts = {"weight": "{-,tp}" if module.shard_across_embedding else "{tp,-}"}
        for name, layout in layouts.items():
            value: object = getattr(module, name)
            if value is not None and names.get(id(value)) == f"{path}.{name}":
                yield f"{path}.{name}:{layout}"
