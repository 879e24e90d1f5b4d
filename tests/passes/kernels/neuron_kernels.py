"""Artifacts of kernels in NKI for the minis of tests: nothing is compiled, files are empty."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

QKV, MLP, ATTENTION = "rmsnorm_qkv_isa_kernel", "mlp_isa_kernel", "attention_isa_kernel"
ROWS, NARROW_MLP = "rmsnorm_quant_kernel", "quant_mlp_isa_kernel"
FUSED: Mapping[str, object] = {"fused_rmsnorm": True, "eps": 1e-05}
NO_SWAP: Mapping[str, object] = {
    "kernel_name": "CausalAttentionMMSoftmaxMMWithoutSwap",
    "scale": 1.0,
}


def entry(
    folder: Path,
    kernel: str,
    operands: Sequence[str],
    result: str,
    arguments: Mapping[str, object],
    **config: object,
) -> dict[str, object]:
    """An entry of a manifest, with the configuration that the guide of NKI shows."""
    binary = folder / f"{kernel}.klir"
    binary.write_bytes(b"")
    names = [f"x{i}" for i in range(len(operands))]
    inner = {"binary": str(binary), "input_names": names, "output_names": ["y"]}
    stated = {"kernel_version": 1, "klir_binary": inner, "func_name": kernel, "grid": []}
    return {
        "kernel": kernel,
        "operands": list(operands),
        "results": [result],
        "arguments": dict(arguments),
        "config": {**stated, "has_collectives": False, **config},
    }


def of_mini(folder: Path, batch: int, length: int) -> list[dict[str, object]]:
    """QKV and MLP of one rank of Llama's mini: 64 hidden, 128 in the MLP, 8 and 2 heads of 8."""
    x, norm = f"bf16[{batch},{length},64]", "bf16[1,64]"
    inner = "bf16[64,128]"
    return [
        entry(
            folder,
            QKV,
            [x, "bf16[64,96]", norm],
            f"bf16[{batch},{length},96]",
            {"kernel_name": "QKV", **FUSED},
        ),
        entry(
            folder,
            MLP,
            [x, norm, inner, inner, "bf16[128,64]"],
            x,
            {"kernel_name": "MLP", **FUSED},
        ),
    ]


def of_attention(folder: Path, batch: int, length: int) -> dict[str, object]:
    """Attention of one rank of Llama's mini."""
    turned = f"bf16[{batch * 8},8,{length}]"
    value = f"bf16[{batch * 8},{length},8]"
    return entry(folder, ATTENTION, [turned, turned, value], turned, NO_SWAP)


def of_narrow_mlp(folder: Path, batch: int, length: int, bound: float = 0.0) -> dict[str, object]:
    """The MLP of one rank of Llama's mini in 8 bits."""
    x, inner, scale = f"bf16[{batch},{length},64]", "f8e4m3[64,128]", "f32[128,128]"
    operands = [x, "bf16[1,64]", inner, scale, inner, scale, "f8e4m3[128,64]", "f32[128,64]"]
    arguments = {"kernel_name": "MLP", "clamp_bound": bound, **FUSED}
    return entry(folder, NARROW_MLP, operands, x, arguments)


def of_rows(folder: Path, batch: int, length: int, bound: float = 0.0) -> dict[str, object]:
    """Rows of 8-bit numbers and their scale, of a norm of Llama's mini."""
    stated = {"norm_type": "RMS_NORM", "quantization_type": "ROW", "lower_bound": bound}
    operands, result = [f"bf16[{batch},{length},64]", "bf16[1,64]"], f"f8e4m3[{batch},{length},68]"
    return entry(folder, ROWS, operands, result, {**stated, "eps": 1e-05})


def manifest(folder: Path, entries: Sequence[Mapping[str, object]]) -> str:
    """The path of a file with these entries."""
    path = folder / "kernels.json"
    path.write_text(json.dumps(entries))
    return str(path)
