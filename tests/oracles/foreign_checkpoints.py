"""Make ``tests/data/foreign``: mini checkpoints by the libraries of their quantization schemes.

Run it by hand, in an environment of its own, when a scheme is added; tests only read the folders::

    pip install torch==2.13.0 transformers==5.24.0 compressed-tensors==0.20.0 bitsandbytes==0.50.2
    python tests/oracles/foreign_checkpoints.py tests/data/foreign

Each folder has ``config.json``, ``model.safetensors`` and ``expected.npz``: transformers' logits of
the last token of two rows, in f32 (``logits``), and of the scheme's own kernels where they run on
this CPU (``own_kernels``). The model is Llama with seeded weights.
"""

from __future__ import annotations

import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

TOKENS = [[3, 1, 4, 1], [5, 9, 2, 6]]
# name -> format and the settings of weights.
COMPRESSED: dict[str, tuple[str, dict[str, Any]]] = {
    "ct-int8-channel": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}),
    "ct-float8-tensor": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}),
    "ct-int4-group": (
        "pack-quantized",
        {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
    ),
    "ct-int4-group-zero": (
        "pack-quantized",
        {
            "num_bits": 4,
            "type": "int",
            "strategy": "group",
            "group_size": 32,
            "symmetric": False,
        },
    ),
    "ct-int8-packed": ("pack-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}),
}


def library(name: str) -> Any:
    """A module of a library that the project does not depend on."""
    return import_module(name)


def base_model() -> Any:
    """A mini Llama with weights of ordinary size in f32, the same at every run."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(20)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=2,
        vocab_size=96,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


def last_logits(model: Any) -> np.ndarray:
    """Logits [row, word] of the last tokens."""
    import torch

    with torch.no_grad():
        return model(torch.tensor(TOKENS)).logits[:, -1].float().numpy()


def compressed(folder: Path, form: str, weights: dict[str, Any]) -> None:
    """Quantize, compress and write by compressed-tensors; read by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    quantization = library("compressed_tensors.quantization")
    helpers = library("compressed_tensors.quantization.utils")
    compressors = library("compressed_tensors.compressors")
    model = base_model()
    group = {"targets": ["Linear"], "weights": weights, "format": form}
    config = quantization.QuantizationConfig(
        config_groups={"group_0": group}, format=form, ignore=["lm_head"]
    )
    quantization.apply_quantization_config(model, config)
    for module in model.modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None:
            continue
        args, weight = scheme.weights, module.weight.detach()
        strategy = str(args.strategy)
        if strategy == "group":
            flat = weight.reshape(len(weight), -1, args.group_size)
        else:
            flat = weight.reshape(1 if strategy == "tensor" else len(weight), -1)
        low, high = flat.amin(-1), flat.amax(-1)
        scale, zero = helpers.calculate_qparams(low, high, args)
        module.weight_scale.data = scale.reshape(module.weight_scale.shape)
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data = zero.reshape(module.weight_zero_point.shape).to(
                module.weight_zero_point.dtype
            )
        module.quantization_status = quantization.QuantizationStatus.FROZEN
    compressor = compressors.ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    if weights.get("symmetric", True):
        read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    else:
        # transformers 5.24 refuses the packed zero points that compressed-tensors 0.20 writes.
        compressor.decompress_model(model)
        read = model
    np.savez(folder / "expected.npz", logits=last_logits(read))


def bitsandbytes(folder: Path) -> None:
    """Quantize and write by bitsandbytes; run as it is, and with its dequantized weights."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    functional, layers = library("bitsandbytes.functional"), library("bitsandbytes.nn")
    plain = folder / "plain"
    base_model().save_pretrained(plain)
    eight = BitsAndBytesConfig(load_in_8bit=True)
    model = AutoModelForCausalLM.from_pretrained(
        plain, quantization_config=eight, device_map="cpu", dtype=torch.float32
    )
    model.save_pretrained(folder)
    shutil.rmtree(plain)
    wide = base_model()
    for name, module in model.named_modules():
        if isinstance(module, layers.Linear8bitLt):
            # The first call of a module moves its scales elsewhere.
            weight: Any = module.weight
            made = functional.int8_vectorwise_dequant(weight.data, weight.SCB)
            wide.get_submodule(name).weight.data = made.float()
    logits, own = last_logits(wide), last_logits(model)
    np.savez(folder / "expected.npz", logits=logits, own_kernels=own)


def main(output: Path) -> None:
    """Write every folder anew; a scheme whose library fails here stops with its error."""
    shutil.rmtree(output, ignore_errors=True)
    for name, (form, weights) in COMPRESSED.items():
        (output / name).mkdir(parents=True)
        compressed(output / name, form, weights)
    (output / "bitsandbytes-int8").mkdir()
    bitsandbytes(output / "bitsandbytes-int8")
    for extra in output.glob("*/generation_config.json"):
        extra.unlink()
    for file in sorted(output.rglob("*")):
        if file.is_file():
            print(f"{file.relative_to(output)}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
