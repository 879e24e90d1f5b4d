"""Configuration of a model by name: a path, a packaged checkpoint, or a known shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.models import known_shape
from graphgen.read_file import is_folder, is_there
from graphgen.runtime.checkpoint.hf_folder import tensor_names
from graphgen.runtime.checkpoint.hub import download, is_plain_name, is_repository, locate
from graphgen.runtime.checkpoint.open_checkpoint import as_stored, open_checkpoint, read_config
from graphgen.runtime.progress import Silent

_FORMS = (
    "(or smollm2, ORGANIZATION/NAME of the hub, or a path: a checkpoint folder, a config.json, "
    "a .gguf file)"
)


def model_config(
    model: str, *, plain_names: bool = False, keep_quantized: bool = False
) -> Mapping[str, object]:
    """Read the configuration under Hugging Face's names; no weights are read.

    Args:
        model: in this order, an existing path (a checkpoint folder, a bare ``config.json``, a GGUF
            file), a packaged checkpoint (``smollm2``), a repository of the hub (``ORG/NAME``), a
            known shape (``llama-3.1-8b``).
        plain_names: as the last, a word may name a repository of the hub without an organization.
        keep_quantized: of a GGUF file with its weights in the blocks that it stores.

    Raises:
        GraphgenError: GG0504 unknown name, GG0601 a path without a readable configuration, and
            GG0501 to GG0503 for a GGUF file whose model cannot be translated; GG0705 for
            ``keep_quantized`` without weights that can be kept.
    """
    if keep_quantized:
        return _kept_config(model)
    path = Path(model)
    if _is_path(model):
        bare = path.suffix == ".json" or is_there(path / "config.json")
        return _of_folder(path) if bare else open_checkpoint(path).config
    found = locate(model, weights=False)
    if found is not None:
        return _of_folder(found) if is_folder(found) else open_checkpoint(found).config
    try:
        return known_shape(model)
    except GraphgenError as error:
        error.help = f"{error.help} {_FORMS}".strip()
        if not (plain_names and is_plain_name(model)):
            raise
        return _config_of_hub(model, error.help)


def _kept_config(model: str) -> Mapping[str, object]:
    """The configuration of a checkpoint whose weights stay as narrow as they are stored."""
    path = Path(model) if _is_path(model) else locate(model, weights=False)
    if path is None or path.suffix == ".json":
        raise GraphgenError(
            "GG0705",
            f"--keep-quantized has no effect: {model} has no weights",
            help="name a GGUF file, or leave it out",
        )
    return as_stored(open_checkpoint(path), keep=True).config


def _of_folder(path: Path) -> Mapping[str, object]:
    """The configuration in a folder or file; of quantized weights, with the modules they are of."""
    config = read_config(path)
    names = tensor_names(path)
    # NxD Inference states nothing in config.json: scales beside weights are its form.
    stated = "quantization_config" in config or "compression_config" in config
    quantized = stated or any(name.endswith(".scale") for name in names)
    return open_checkpoint(path).config if quantized and names else config


def _config_of_hub(model: str, help: str) -> Mapping[str, object]:
    """The configuration in a repository without an organization.

    Args:
        model: its name.
        help: remedies if it cannot be downloaded, beside those of the hub.
    """
    try:
        return read_config(download(model, Silent(), weights=False))
    except GraphgenError as error:
        error.help = f"{error.help}; {help}"
        raise


def _is_path(model: str) -> bool:
    """True if ``model`` is a path: it exists, or it has a slash or the ending of a file."""
    looks = ("/" in model and not is_repository(model)) or Path(model).suffix in (
        ".json",
        ".gguf",
        ".safetensors",
    )
    return looks or is_there(Path(model))
