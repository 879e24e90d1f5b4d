"""A quantized checkpoint: the weights it holds quantized, and its tensors in known shapes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Final, cast

from graphgen.errors import GraphgenError
from graphgen.passes.quantization.compressed_formats import StoredQuantization
from graphgen.passes.quantization.read_config import stored_quantization
from graphgen.passes.quantization.static_scales import INPUT_SCALE
from graphgen.passes.quantization.stored_readings import SCALES
from graphgen.passes.quantization.unlisted_modules import stated_modules
from graphgen.runtime.checkpoint.interfaces import CONVERT, Array, Checkpoint, TensorInfo

# Scales of keys and values for 8-bit caches, beside the projections of attention.
_CACHE_SCALES: Final = ("k_scale", "v_scale", "kv_scale")


def with_quantization(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its quantization stated in its configuration, if it has one.

    A weight is quantized if the tensors of the scheme are there, whatever lists of exceptions say:
    ``modules_to_not_convert``, ``ignore`` and layers of their own need no reading. NxD Inference
    states nothing: numbers of 8 bits beside a ``.scale`` are its form.

    Raises:
        GraphgenError: GG0502 for a scheme that is not read.
    """
    config = checkpoint.config
    if "quantization_config" not in config and "compression_config" not in config:
        stated = _aws_config(checkpoint.tensors())
        if stated is None:
            _require_wide(checkpoint, set())
            return checkpoint
        config = {**config, "quantization_config": stated}
    found = stored_quantization(config)
    if found is None:
        return checkpoint
    view = StoredFormView(checkpoint, config, found)
    _require_wide(checkpoint, view.modules)
    return view


def _require_wide(checkpoint: Checkpoint, modules: Set[str]) -> None:
    """Refuse floats of 8 bits that no scheme gives a scale (GG0601)."""
    for name, info in checkpoint.tensors().items():
        if info.dtype.startswith("f8") and name.rpartition(".")[0] not in modules:
            raise GraphgenError(
                "GG0601",
                f"tensor '{name}' is {info.dtype}, and nothing says what its numbers are multiples "
                "of: config.json has no quantization_config about it, and it has no '.scale'",
                where=str(checkpoint.path),
                help=CONVERT,
            )


def _aws_config(tensors: Mapping[str, TensorInfo]) -> dict[str, object] | None:
    """The form of NxD Inference's tensors, by the first that has a scale."""
    for name, info in tensors.items():
        base, _, last = name.rpartition(".")
        values = tensors.get(f"{base}.weight")
        if last == "scale" and values is not None and values.dtype in ("s8", "f8e4m3fn", "f8e5m2"):
            several = prod(info.shape) > 1
            kind = "per_channel_symmetric" if several else "per_tensor_symmetric"
            return {
                "quant_method": "aws",
                "quantization_dtype": values.dtype,
                "quantization_type": kind,
            }
    return None


class StoredFormView:
    """A view of a checkpoint whose scales have the shapes of their scheme.

    Args:
        base: the checkpoint.
        config: its configuration, with a ``quantization_config``.
        found: what that states.

    Attributes:
        modules: those whose weight is quantized: ``X`` of ``X.weight``.
    """

    def __init__(
        self, base: Checkpoint, config: Mapping[str, object], found: StoredQuantization
    ) -> None:
        self.base: Final = base
        self._found: Final = found
        self.modules: Final = self._quantized()
        self._shapes: Final = self._reshaped()
        self.config: Final[Mapping[str, object]] = {
            **config,
            "quantization_config": self._stated(config),
        }

    @property
    def path(self) -> Path:
        """The file or the folder that was opened."""
        return self.base.path

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor that says something about a weight; reads no tensor data."""
        return {
            name: replace(info, shape=self._shapes.get(name, info.shape))
            for name, info in self.base.tensors().items()
            if not self._unread(name)
        }

    def read(self, name: str) -> Array:
        """The tensor ``name``; see :class:`Checkpoint`."""
        array = self.base.read(name)
        shape = self._shapes.get(name)
        return array if shape is None else array.reshape(shape)

    def fingerprint(self) -> str:
        """Identity of the contents; see :class:`Checkpoint`."""
        return self.base.fingerprint()

    def _quantized(self) -> set[str]:
        """The modules whose weight is stored by the scheme."""
        ending = self._found.scheme.tensor("", self._found.scheme.payload)
        return {name.removesuffix(ending) for name in self.base.tensors() if name.endswith(ending)}

    def _reshaped(self) -> dict[str, tuple[int, ...]]:
        """Scales of as many elements as there are blocks, in the shape of the blocks."""
        shapes: dict[str, tuple[int, ...]] = {}
        scheme, tensors = self._found.scheme, self.base.tensors()
        for base in self.modules:
            values = tensors.get(f"{base}.weight")
            if values is None or len(values.shape) not in scheme.ranks:
                continue
            counts = self._found.form.counts(values.shape)
            scale = tensors.get(scheme.tensor(base, INPUT_SCALE))
            if self._found.form.static and scale is not None and prod(scale.shape) == 1:
                shapes[scale.name] = (1,)
            for last in (scheme.scale, "weight_zero_point"):
                info = tensors.get(scheme.tensor(base, last))
                if info is not None and info.shape != counts and prod(info.shape) == prod(counts):
                    shapes[info.name] = counts
        return shapes

    def _unread(self, name: str) -> bool:
        base, last = self._found.scheme.split(name)
        if base.endswith("attn") and last in _CACHE_SCALES:
            return True
        read = last == "g_idx" and self._found.form.ordered
        return base in self.modules and last in self._found.scheme.unread and not read

    def _stated(self, config: Mapping[str, object]) -> dict[str, object]:
        """The quantization_config with the modules that are quantized, by patterns."""
        given = config.get("quantization_config", config.get("compression_config"))
        names = [name.removesuffix(".weight") for name in self.base.tensors()]
        stated = cast("Mapping[str, object]", given)
        return {**stated, **stated_modules(self.modules, names), SCALES: self._scales()}

    def _scales(self) -> str:
        """The type of all scales if that is one of 16 bits; ``f32`` otherwise."""
        scheme, tensors = self._found.scheme, self.base.tensors()
        names = [scheme.tensor(base, scheme.scale) for base in self.modules]
        types = {tensors[name].dtype for name in names if name in tensors}
        return types.pop() if len(types) == 1 and types <= {"f16", "bf16"} else "f32"
