"""Read a Hugging Face ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from graphgen.read_file import is_folder, read_json
from graphgen.runtime.checkpoint.mapped_file import unreadable

# model_type of models that read images too -> that of their text model, under ``text_config``.
_TEXT_MODELS = {"llama4": "llama4_text"}
# Keys of such a configuration that hold for all its models.
_OF_ALL = ("quantization_config", "torch_dtype", "dtype")


def read_config(path: str | Path) -> Mapping[str, object]:
    """The configuration in a ``config.json``; of Llama 4 that reads images, its text model's.

    Args:
        path: the file, or its folder.

    Raises:
        GraphgenError: GG0601 if it is missing or is not a JSON object.
    """
    file = Path(path)
    if is_folder(file):
        file = file / "config.json"
    return _of_text(read_json_object(file))


def _of_text(config: dict[str, object]) -> dict[str, object]:
    """The configuration of the text model where there are others beside it."""
    kind, text = _TEXT_MODELS.get(str(config.get("model_type"))), config.get("text_config")
    if kind is None or not isinstance(text, dict):
        return config
    shared = {key: config[key] for key in _OF_ALL if key in config}
    return {**shared, **cast("dict[str, object]", text), "model_type": kind}


def read_json_object(path: Path) -> dict[str, object]:
    """The JSON object in the file ``path`` (GG0601 with line and column if it is not one)."""
    value = read_json(path, "GG0601")
    if not isinstance(value, dict):
        raise unreadable(path, f"{path.name} holds no JSON object")
    return cast("dict[str, object]", value)
