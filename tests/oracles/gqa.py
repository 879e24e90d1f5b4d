"""Head counts to try, models that have them, and the layouts of the peers by their formulas.

The layouts are written from the formulas of NxD Inference and transformers-neuronx, not from ours,
so that comparing the two checks both.
"""

from __future__ import annotations

from graphgen.ir import Module
from graphgen.ir.dtype import f32
from graphgen.models import build
from graphgen.passes.core import parse_pipeline, run_pipeline

# Ranks, query heads, key-value heads.
SWEEP = (
    (8, 32, 8), (16, 32, 8), (32, 32, 8), (64, 32, 8), (32, 56, 8), (64, 40, 8), (24, 32, 8),
    (24, 64, 8), (48, 64, 8), (8, 28, 4), (16, 12, 2), (10, 14, 2), (4, 71, 1), (8, 71, 71),
    (16, 40, 10), (6, 32, 8), (4, 32, 8), (10, 9, 3), (4, 9, 3), (2, 9, 3), (3, 9, 3), (6, 12, 3),
)  # fmt: skip

Maps = tuple[tuple[int, ...], tuple[int, ...]]


def padded(count: int, tp: int) -> int:
    """The next multiple of ``tp``."""
    return -(-count // tp) * tp


def interleaved(heads: int, groups: int, extra: int) -> list[int]:
    """``groups`` equal runs of heads, each followed by its share of ``extra`` zero heads."""
    size, zeros = heads // groups, extra // groups
    assert zeros * groups == extra
    out: list[int] = []
    for group in range(groups):
        out += [*range(group * size, (group + 1) * size), *[-1] * zeros]
    return out


def repeated(heads: int, times: int) -> list[int]:
    """Adjacent copies of each head."""
    return [head for head in range(heads) for _ in range(times)]


def filled(heads: list[int], count: int) -> list[int]:
    """Zero heads at the end."""
    return heads + [-1] * (count - len(heads))


def nxdi_maps(tp: int, q: int, kv: int) -> Maps:
    """What NxD Inference means to lay out, with the pad length of CONVERT_TO_MHA mended."""
    replicate = tp % kv == 0
    total = padded(q, tp)
    if q == kv:
        kv_total = total
    elif kv < tp or kv % tp:
        kv_total = tp if replicate else total
    else:
        kv_total = kv
    times = 1
    if kv_total != kv:
        times = tp // kv if replicate else q // kv
    keys = filled(repeated(kv, times), kv_total)
    queries = interleaved(q, kv, total - q) if replicate else filled(list(range(q)), total)
    return tuple(queries), tuple(keys)


def tnx_counts(tp: int, q: int, kv: int, replicated: bool) -> tuple[int, int]:
    """``get_qkv_padding``: padded query heads, and key-value heads before the last padding."""
    total = padded(q, tp)
    if q == kv or not replicated:
        return total, kv
    extra = total - q
    times = q // kv
    if kv < tp and tp % kv == 0 and (q % tp == 0 or (extra % kv == 0 and extra > 0)):
        times = tp // kv
    elif total / tp == q / kv:
        times = 1
    keys = max(kv * times, tp)
    return total, total if keys == q else keys


def tnx_maps(tp: int, q: int, kv: int, strategy: str) -> Maps:
    """The index maps of ``DecoderLayer.to_neuron``; of the caches, for ALL_GATHER_HEADS."""
    total, keys = tnx_counts(tp, q, kv, strategy == "REPLICATED_HEADS")
    extra = total - q
    spread = strategy == "REPLICATED_HEADS" and q != kv and tp % kv == 0 and extra % kv == 0
    spread = (spread and extra > 0) or strategy == "ALL_GATHER_HEADS"
    queries = interleaved(q, kv, extra) if spread else filled(list(range(q)), total)
    held = repeated(kv, 1)
    if strategy == "ALL_GATHER_HEADS":
        held = repeated(kv, max(tp // kv, 1))
    elif keys != kv:
        times = keys // kv if keys % kv == 0 else (keys - extra) // kv
        if total == keys and extra > 0:
            times = (keys - extra) // kv
        held = repeated(kv, times) if times > 0 else filled(held, keys)
    if len(held) == q:
        held = [held[head] if head >= 0 else -1 for head in queries]
    return tuple(queries), tuple(filled(held, padded(len(held), tp)))


def grouped_model(
    q: int, kv: int, *, tp: int = 1, layers: int = 1, bias: bool = False, size: int = 2
) -> Module:
    """A llama of these heads and of nothing else worth mentioning; its MLP divides by ``tp``."""
    config: dict[str, object] = {
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": tp,
        "num_hidden_layers": layers,
        "num_attention_heads": q,
        "num_key_value_heads": kv,
        "head_dim": size,
        "vocab_size": 11,
        "max_position_embeddings": 64,
        "attention_bias": bias,
    }
    return build(config, f32)


def specialized_model(
    q: int, kv: int, *, tp: int = 1, layers: int = 1, bias: bool = False, size: int = 2
) -> Module:
    """The same, with a prefill program and decode programs of two buckets."""
    module = grouped_model(q, kv, tp=tp, layers=layers, bias=bias, size=size)
    sizes = "batch=[3],context=[8],tokens=[8,16],in_place=true"
    run_pipeline(module, parse_pipeline(f"canonicalize,specialize{{{sizes}}}"))
    return module
