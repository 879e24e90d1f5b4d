"""Names of ops in other libraries, and their functions composed of several ops here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Name elsewhere -> the op here.
SYNONYMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "dot", "einsum", "linear", "addmm"), "dot_general"),
    **dict.fromkeys(("conv", "conv1d", "conv2d", "conv3d"), "convolution"),
    **dict.fromkeys(("exp",), "exponential"),
    **dict.fromkeys(("sub",), "subtract"),
    **dict.fromkeys(("mul",), "multiply"),
    **dict.fromkeys(("div", "truediv"), "divide"),
    **dict.fromkeys(("neg",), "negate"),
    **dict.fromkeys(("pow",), "power"),
    **dict.fromkeys(("cast", "astype"), "convert"),
    **dict.fromkeys(("sigmoid",), "logistic"),
    **dict.fromkeys(("sin",), "sine"),
    **dict.fromkeys(("cos",), "cosine"),
    **dict.fromkeys(("view", "squeeze", "unsqueeze", "flatten"), "reshape"),
    **dict.fromkeys(("permute", "swapaxes"), "transpose"),
    **dict.fromkeys(("cat", "concat"), "concatenate"),
    **dict.fromkeys(("where",), "select"),
    **dict.fromkeys(("expand", "broadcast", "repeat"), "broadcast_in_dim"),
    **dict.fromkeys(("sum", "amax", "amin", "max", "min"), "reduce"),
    **dict.fromkeys(("arange",), "iota"),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "equal", "less"), "compare"),
    **dict.fromkeys(("topk",), "top_k"),
    **dict.fromkeys(("flip",), "reverse"),
    **dict.fromkeys(("layernorm",), "layer_norm"),
    **dict.fromkeys(("rmsnorm",), "rms_norm"),
    **dict.fromkeys(("sdpa", "scaled_dot_product_attention"), "attention"),
    **dict.fromkeys(("cond", "if", "case"), "conditional"),
    **dict.fromkeys(("while_loop", "scan", "fori_loop"), "while"),
}
# Functions of the builder that are several ops.
SEVERAL: Final = (
    *("softmax", "mean", "var", "one_hot", "split", "stack", "matmul", "sum", "max", "min"),
    *("argmax", "argmin", "cumsum", "einsum", "where", "clip", "squeeze", "expand_dims", "repeat"),
    *("tile", "arange", "broadcast_to", "conv1d", "conv2d", "group_norm", "scan", "cond", "switch"),
)


def elsewhere(name: str) -> str:
    """Help for a name of other libraries; empty for a name that is not one."""
    plain = name.lower()
    texts: list[str] = []
    if plain in SYNONYMS:
        texts.append(f"here it is {SYNONYMS[plain]}: graphgen ops {SYNONYMS[plain]}")
    if plain in SEVERAL:
        texts.append(f"b.{plain}(...) of the builder makes it of several ops: docs/builder.md")
    return "; ".join(texts)
