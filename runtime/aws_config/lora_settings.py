"""Translate a LoraServingConfig: adapter files by id, and compile options for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.neuron_config import LoraServingConfig, NeuronConfig
from graphgen.runtime.checkpoint.config_file import read_json_object
from graphgen.runtime.lora.loaded_adapters import needed_settings

_FOLDER, _DEVICE, _HOST = "lora-ckpt-dir", "lora-ckpt-paths", "lora-ckpt-paths-cpu"


def lora_config(config: NeuronConfig) -> LoraServingConfig | None:
    """The configuration of adapters; ``None`` for a model without."""
    given = config.value("lora_config")
    return given if isinstance(given, LoraServingConfig) else None


def check_adapters(config: NeuronConfig) -> None:
    """Check the attributes of adapters beside those of NeuronConfig; no file is read.

    Raises:
        GraphgenError: GG0903 for another batch than the model's, GG0904 for another element type.
    """
    lora = lora_config(config)
    if lora is None:
        return
    batch, rows = lora.value("batch_size"), config.value("batch_size")
    if batch not in (None, rows):
        raise GraphgenError(
            "GG0903",
            f"LoraServingConfig.batch_size = {batch}: NeuronConfig.batch_size is {rows}",
            help="leave it out",
        )
    dtype, model = lora.value("lora_dtype"), str(config.value("torch_dtype"))
    if dtype is not None and str(dtype).removeprefix("torch.") != model:
        raise GraphgenError(
            "GG0904",
            f"LoraServingConfig.lora_dtype = {dtype!r}: adapters of another element type than the "
            f"model's {model} are not built yet",
            help="leave it out",
        )


def with_adapter_files(
    settings: CompileConfig, config: NeuronConfig, model: Mapping[str, object]
) -> CompileConfig:
    """The compile configuration with slots, rank and projections that the given adapters need.

    Args:
        settings: that the attributes say.
        config: names the files.
        model: a ``config.json``.

    Raises:
        GraphgenError: GG0903 for more adapters than slots; that of a file which is not an adapter.
    """
    lora = lora_config(config)
    files = {} if lora is None else adapter_files(lora)
    if lora is None or not files:
        return settings
    dynamic = bool(lora.value("dynamic_multi_lora"))
    slots, count = settings.max_loras, len(device_files(lora))
    if "max_loras" in lora.given and count > slots:
        raise GraphgenError(
            "GG0903",
            f"LoraServingConfig.max_loras = {slots}: {count} adapters are on the device",
            help=f"set max_loras to {count}, or leave it out",
        )
    needed = needed_settings(model, files.values(), only=not dynamic)
    targets = cast("tuple[str, ...]", needed["lora_target_modules"])
    if given := settings.lora_target_modules:
        # Those of the files alone: other adapters that follow have the given ones.
        own = needed_settings(model, files.values(), only=True) if dynamic else needed
        targets = tuple(sorted({*given, *cast("tuple[str, ...]", own["lora_target_modules"])}))
    return replace(
        settings,
        max_loras=max(slots, count),
        max_lora_rank=max(settings.max_lora_rank, cast(int, needed["max_lora_rank"])),
        lora_target_modules=targets,
    )


def device_files(lora: LoraServingConfig) -> dict[str, Path]:
    """The adapters that have slots from the start, by id."""
    return _listed(lora, "lora_ckpt_paths", _DEVICE)


def adapter_files(lora: LoraServingConfig) -> dict[str, Path]:
    """All adapters by id, those of the device first (GG0903 for an id of two files)."""
    found, others = device_files(lora), _listed(lora, "lora_ckpt_paths_cpu", _HOST)
    for name, path in others.items():
        if found.setdefault(name, path) != path:
            raise GraphgenError(
                "GG0903",
                f"the adapter '{name}' is {found[name]} on the device and {path} on the host",
                help="an id is of one adapter",
            )
    return found


def _listed(lora: LoraServingConfig, name: str, key: str) -> dict[str, Path]:
    """The adapters of an attribute, or of a key of the JSON file."""
    given = cast("Mapping[str, str] | None", lora.value(name))
    listing, folder = lora.value("lora_ckpt_json"), Path()
    if listing is not None:
        path = Path(str(listing))
        fields = read_json_object(path)
        folder = Path(str(fields.get(_FOLDER, "")))
        found = fields.get(key, {})
        if not isinstance(found, Mapping):
            what = f"'{key}' is not an object of ids and paths"
            raise GraphgenError("GG0902", what, where=str(path), help='{"id": "folder"}')
        given = {str(k): str(v) for k, v in cast("Mapping[object, object]", found).items()}
    return {name: folder / path for name, path in (given or {}).items()}
