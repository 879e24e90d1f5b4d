"""Make ``tests/data/foreign``: mini checkpoints by the libraries of their quantization schemes.

Run it by hand, in an environment of its own, when a scheme is added; tests only read the folders::

    pip install torch==2.13.0 transformers==5.24.0 compressed-tensors==0.20.0 bitsandbytes==0.50.2
    pip install --no-deps auto-gptq==0.7.1 autoawq==0.2.9
    python tests/oracles/foreign_checkpoints.py tests/data/foreign [NAME ...]

AutoGPTQ and AutoAWQ are of an older transformers, so that only their modules of layers are
imported. GPTQModel, their successor, is not used: its 7.7 needs a newer PyTorch.

Each folder has ``config.json``, ``model.safetensors`` and ``expected.npz``: transformers' logits of
the last token of two rows, in f32 (``logits``), and of the scheme's own kernels where they run on
this CPU (``own_kernels``). The model is Llama with seeded weights.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

TOKENS = [[3, 1, 4, 1], [5, 9, 2, 6]]
# name -> format and the settings of weights.
COMPRESSED: dict[str, tuple[str, dict[str, Any]]] = {
    "ct-int8-channel": ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}),
    "ct-float8-tensor": ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}),
    "ct-float8-channel": (
        "float-quantized",
        {"num_bits": 8, "type": "float", "strategy": "channel"},
    ),
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


def bare_package(name: str) -> None:
    """Let the modules of a package be imported without what its ``__init__`` imports."""
    from importlib.util import find_spec
    from types import ModuleType

    if name in sys.modules:
        return
    found = find_spec(name)
    assert found is not None
    package = ModuleType(name)
    package.__path__ = list(found.submodule_search_locations or [])
    sys.modules[name] = package


def rounded(weight: Any, group: int, bits: int, symmetric: bool) -> tuple[Any, Any]:
    """Scales and zero points [out, groups] of a weight [out, in], as round-to-nearest has them."""
    import torch

    blocks = weight.reshape(len(weight), -1, group)
    low, high, most = blocks.amin(-1), blocks.amax(-1), 2**bits - 1
    if symmetric:
        size = torch.maximum(low.abs(), high.abs())
        low, high = -size, size
    scale = ((high - low) / most).half().float()
    middle = torch.full_like(scale, 2 ** (bits - 1))
    # AutoGPTQ stores a zero point less one.
    return scale, middle if symmetric else torch.clamp(torch.round(-low / scale), 1, most)


def packed(folder: Path, config: dict[str, Any], replacement: Any) -> None:
    """Write a model whose products are layers of a library; its logits are those of their weights.

    Args:
        folder: for the files.
        config: the quantization_config.
        replacement: the layer of a linear module, and the weight [out, in] that it computes with.
    """
    import torch

    bare = ("auto_gptq", "auto_gptq.nn_modules", "awq", "awq.modules", "awq.modules.linear")
    for package in bare:
        bare_package(package)
    model, wide = base_model(), base_model()
    for name, module in [*model.named_modules()]:
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        parent, _, last = name.rpartition(".")
        made, wide.get_submodule(name).weight.data = replacement(module)
        setattr(model.get_submodule(parent), last, made)
    save = library("safetensors.torch").save_file
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    save(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stated = {**model.config.to_dict(), "quantization_config": config}
    (folder / "config.json").write_text(json.dumps(stated, indent=2, default=str) + "\n")
    np.savez(folder / "expected.npz", logits=last_logits(wide))


def auto_gptq(folder: Path, bits: int, symmetric: bool, ordered: bool) -> None:
    """Pack by AutoGPTQ: symmetric or with zero points, groups in order or by activations."""
    import torch

    def replacement(module: Any) -> Any:
        # The layer that packs rows of any group.
        kind = library("auto_gptq.nn_modules.qlinear.qlinear_cuda")
        layer = kind.QuantLinear(bits, 32, module.in_features, module.out_features, False)
        groups = torch.arange(module.in_features) // 32
        order = torch.argsort(groups, stable=True)
        if ordered:
            shuffled = torch.randperm(module.in_features)
            groups = groups[shuffled]
            order = torch.argsort(groups, stable=True)
        scale, zero = rounded(module.weight.data[:, order], 32, bits, symmetric)
        layer.pack(module, scale, zero, groups.to(torch.int32))
        # In f32, in which its scales are still.
        made = layer(torch.eye(module.in_features)).T.contiguous()
        layer.scales = layer.scales.half()
        return layer, made

    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": 32,
        "sym": symmetric,
        "desc_act": ordered,
    }
    packed(folder, config, replacement)


def auto_awq(folder: Path) -> None:
    """Pack by AutoAWQ's GEMM layers."""

    def replacement(module: Any) -> Any:
        kind = library("awq.modules.linear.gemm")
        scale, zero = rounded(module.weight.data, 32, 4, False)
        layer = kind.WQLinear_GEMM.from_linear(module, 4, 32, scales=scale.T, zeros=zero.T)
        wide = kind.dequantize_gemm(layer.qweight, layer.qzeros, layer.scales.float(), 4, 32)
        return layer, wide.T.contiguous()

    config = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 32,
        "version": "gemm",
        "zero_point": True,
    }
    packed(folder, config, replacement)


def float8(folder: Path, config: dict[str, Any], block: tuple[int, int], parts: Any) -> None:
    """Write f8e4m3 weights in the published layout of a scheme whose library needs a GPU.

    Args:
        folder: for the files.
        config: the quantization_config.
        block: rows and columns that share a scale.
        parts: the tensors beside the numbers by their last name, of the scales [rows, columns].
    """
    import torch

    wide, tensors = base_model(), {}
    for name, value in base_model().state_dict().items():
        module = name.removesuffix(".weight")
        if not module.endswith("_proj"):
            tensors[name] = value
            continue
        rows, columns = (size or whole for size, whole in zip(block, value.shape, strict=True))
        cut = value.reshape(value.shape[0] // rows, rows, value.shape[1] // columns, columns)
        scale = cut.abs().amax((1, 3), keepdim=True) / 448
        numbers = (cut / scale).to(torch.float8_e4m3fn)
        made = (numbers.float() * scale).reshape(value.shape)
        wide.get_submodule(module).weight.data = made
        tensors[name] = numbers.reshape(value.shape)
        tensors |= {f"{module}.{last}": x for last, x in parts(scale[:, 0, :, 0]).items()}
    save = library("safetensors.torch").save_file
    tensors = {name: value.contiguous() for name, value in tensors.items()}
    save(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stated = {**wide.config.to_dict(), "quantization_config": config}
    (folder / "config.json").write_text(json.dumps(stated, indent=2, default=str) + "\n")
    np.savez(folder / "expected.npz", logits=last_logits(wide))


def fbgemm(folder: Path) -> None:
    """FBGEMM's rows: transformers' ``FbgemmFp8Linear`` declares these tensors."""
    import torch

    def parts(scale: Any) -> dict[str, Any]:
        return {"weight_scale": scale, "input_scale_ub": torch.tensor([1200.0])}

    config = {
        "quant_method": "fbgemm_fp8",
        "activation_scale_ub": 1200.0,
        "modules_to_not_convert": ["lm_head"],
    }
    float8(folder, config, (1, 0), parts)


def fp8_blocks(folder: Path) -> None:
    """DeepSeek's blocks; the logits are those of transformers, which dequantizes on a CPU."""
    import torch
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config

    config: dict[str, Any] = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [32, 16],
        "modules_to_not_convert": ["lm_head"],
    }
    float8(folder, config, (32, 16), lambda scale: {"weight_scale_inv": scale})
    how = FineGrainedFP8Config(weight_block_size=(32, 16), dequantize=True)
    read = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=how, dtype=torch.float32, device_map="cpu"
    )
    np.savez(folder / "expected.npz", logits=last_logits(read))


WRITERS: dict[str, Any] = {
    **{name: partial(compressed, form=f, weights=w) for name, (f, w) in COMPRESSED.items()},
    "bitsandbytes-int8": bitsandbytes,
    "gptq-int4": partial(auto_gptq, bits=4, symmetric=True, ordered=False),
    "gptq-int4-zero-order": partial(auto_gptq, bits=4, symmetric=False, ordered=True),
    "gptq-int8": partial(auto_gptq, bits=8, symmetric=True, ordered=False),
    "awq-int4": auto_awq,
    "fbgemm-float8": fbgemm,
    "fp8-blocks": fp8_blocks,
}


def main(output: Path, names: list[str]) -> None:
    """Write folders anew; a scheme whose library fails here stops with its error."""
    for name in names or WRITERS:
        shutil.rmtree(output / name, ignore_errors=True)
        (output / name).mkdir(parents=True)
        WRITERS[name](output / name)
    for extra in output.glob("*/generation_config.json"):
        extra.unlink()
    for file in sorted(output.rglob("*")):
        if file.is_file():
            print(f"{file.relative_to(output)}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
