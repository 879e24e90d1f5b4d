"""Published EAGLE drafts: tensors under the draft's names, completed by the target's.

A draft is a folder with ``config.json`` and weights, as ``yuhuili/EAGLE-LLaMA3-Instruct-8B`` or
``yuhuili/EAGLE3-LLaMA3.1-Instruct-8B``. Its embedding and head are the target's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.models import family_of
from graphgen.models.eagle import MODEL_TYPE, target_layers
from graphgen.models.first_layers import stated_layers
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Array, Checkpoint, TensorInfo
from graphgen.runtime.session.step_call import Ints
from graphgen.runtime.weights.aligned_safetensors import append_tensor, stream_header

_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"
# The target's token less the draft's, for each of the draft's; and which tokens the draft has.
_OFFSETS, _KNOWN = "d2t", "t2d"
# The key of the hidden states that a draft takes.
_LAYERS: Final = "eagle_aux_hidden_state_layer_ids"
# Families whose embedding and head a draft can share: neither scales or caps its numbers.
_PLAIN = ("llama", "mistral", "qwen2", "qwen3")


def _own_names(checkpoint: Checkpoint) -> dict[str, str]:
    """Stored name of every tensor by the draft's name of it."""
    plain = {name.removeprefix("model."): name for name in checkpoint.tensors()}
    if "layers.0.hidden_norm.weight" not in plain:
        return plain
    return {
        f"midlayer.{name.removeprefix('layers.0.')}" if name.startswith("layers.0.") else name: own
        for name, own in plain.items()
    }


def is_eagle(checkpoint: Checkpoint) -> bool:
    """True for a draft of EAGLE: it has a layer ``fc`` that takes features."""
    return "fc.weight" in _own_names(checkpoint)


def is_eagle3(checkpoint: Checkpoint) -> bool:
    """True for a draft of EAGLE-3."""
    return "midlayer.hidden_norm.weight" in _own_names(checkpoint)


class EagleCheckpoint:
    """The tensors and the configuration of a draft, completed by its target.

    Args:
        own: the draft.
        target: the model that it drafts for; ``None`` for a draft of :meth:`save`, which has all.

    Raises:
        GraphgenError: GG0602 for a draft without a target that lacks tensors, GG0705 for a draft
            of another width or vocabulary than the target's, and for one without embedding or head
            whose target has none that fit.
    """

    def __init__(self, own: Checkpoint, target: Checkpoint | None) -> None:
        self._own, self._target = own, target
        self._stored: Final = _own_names(own)
        self.path: Final[Path] = own.path
        offsets = self._stored.get(_OFFSETS)
        self.token_ids: Final[Ints | None] = None if offsets is None else _ids(own.read(offsets))
        self._others: Final = self._of_target()
        self.config: Final[Mapping[str, object]] = self._config()
        self._check()

    def _config(self) -> dict[str, object]:
        given, names = self._own.config, self._stored
        tensors = self._own.tensors()
        version = 3 if is_eagle3(self._own) else 1
        columns = tensors[names["fc.weight"]].shape[1]
        hidden = cast(int, given.get("hidden_size", columns // 2))
        rows = None if self.token_ids is None else len(self.token_ids)
        made: dict[str, object] = {
            "num_hidden_layers": 1,
            "vocab_size": self.tensors()[_EMBEDDING].shape[0],
            **{key: value for key, value in given.items() if key not in _ABOUT_TARGET},
            "model_type": MODEL_TYPE,
            "eagle_version": version,
            "fc_bias": "fc.bias" in names,
            "input_norm": "layers.0.input_layernorm.weight" in names,
            "draft_vocab_size": rows,
            "feature_size": columns if version == 3 else columns - hidden,
        }
        return made

    def _of_target(self) -> dict[str, str]:
        """The target's tensors that take the place of those the draft has not, by its names."""
        missing = [name for name in (_EMBEDDING, _HEAD) if name not in self._stored]
        if not missing:
            return {}
        if self._target is None:
            raise GraphgenError("GG0602", f"the draft {self.path} has no tensor {missing[0]}")
        family = family_of(self._target.config)
        if family.model_type not in _PLAIN:
            raise GraphgenError(
                "GG0705",
                f"the draft {self.path} has no {missing[0]}, and that of a {family.model_type} "
                "model has other numbers than a draft takes",
                help=f"give a draft with embedding and head, or a target of {', '.join(_PLAIN)}",
            )
        head = _HEAD if _HEAD in self._target.tensors() else family.embedding
        return {_EMBEDDING: family.embedding, _HEAD: head}

    def feature_layers(self) -> tuple[int, ...]:
        """Numbers of the target's hidden states that the draft takes, in order."""
        stated = _stated_layers(self._own.config)
        if stated or self._target is None:
            return stated
        return target_layers(cast(int, self.config["eagle_version"]), layers_of(self._target))

    def tensors(self) -> Mapping[str, TensorInfo]:
        """The tensors of the draft by its names; reads no data."""
        own = self._own.tensors()
        target: Mapping[str, TensorInfo] = {}
        if self._target is not None:
            target = self._target.tensors()
        found = {name: own[stored] for name, stored in self._stored.items()}
        for name, stored in self._others.items():
            info = target[stored]
            rows = self.token_ids if name == _HEAD else None
            shape = info.shape if rows is None else (len(rows), *info.shape[1:])
            found.setdefault(name, TensorInfo(name, shape, info.dtype))
        return found

    def read(self, name: str) -> Array:
        """The tensor ``name`` of the draft (GG0602 if there is none)."""
        if name in self._stored:
            return self._own.read(self._stored[name])
        array = (self._target or self._own).read(self._others.get(name, name))
        return array[self.token_ids] if name == _HEAD and self.token_ids is not None else array

    def fingerprint(self) -> str:
        """See :class:`~graphgen.runtime.checkpoint.interfaces.Checkpoint`."""
        return self._own.fingerprint()

    def ignorable(self, name: str) -> bool:
        """True for tensors that the draft's graph does not read."""
        return name in (_OFFSETS, _KNOWN)

    def save(self, folder: Path) -> None:
        """Write a folder with everything that the draft takes, its target's tensors included.

        Args:
            folder: not there yet.
        """
        folder.mkdir()
        stated = {**self._own.config, _LAYERS: list(self.feature_layers())}
        (folder / "config.json").write_text(json.dumps(stated), encoding="utf-8")
        tensors = self.tensors()
        rows = [(name, NUMPY_DTYPES[row.dtype], row.shape) for name, row in tensors.items()]
        with (folder / "model.safetensors").open("wb") as file:
            file.write(stream_header(rows))
            for name in tensors:
                append_tensor(file, self.read(name))

    def _check(self) -> None:
        if self._target is None:
            return
        layers, columns = len(self.feature_layers()), cast(int, self.config["feature_size"])
        family = family_of(self._target.config)
        words, width = self._target.tensors()[family.embedding].shape
        if layers * width != columns:
            raise GraphgenError(
                "GG0705",
                f"the draft {self.path} takes {columns} numbers of each of the target's tokens, "
                f"and {layers} hidden state{'s' if layers > 1 else ''} of this model "
                f"ha{'ve' if layers > 1 else 's'} {layers * width}",
                help="give the draft that was trained for this model",
            )
        if self.config["vocab_size"] != words:
            raise GraphgenError(
                "GG0705",
                f"the draft {self.path} has {self.config['vocab_size']} tokens, the model {words}",
                help="give the draft that was trained for this model",
            )


# Keys of published drafts that say what the tensors, or the target, say too.
_ABOUT_TARGET = (
    *("bias", "target_hidden_size", "eagle_config", "draft_vocab_size", "auto_map"),
    _LAYERS,
)


def layers_of(target: Checkpoint) -> int:
    """The number of layers of a model."""
    key, layers = stated_layers(family_of(target.config), target.config)
    if layers is None:
        raise GraphgenError("GG0503", f"the configuration of {target.path} states no {key}")
    return layers


def _stated_layers(config: Mapping[str, object]) -> tuple[int, ...]:
    """The hidden states that a draft's configuration names, as vLLM's speculators do."""
    inner = config.get("eagle_config")
    places = [config, cast("Mapping[str, object]", inner)] if isinstance(inner, dict) else [config]
    for place in places:
        given = place.get(_LAYERS)
        if isinstance(given, list):
            return tuple(cast("list[int]", given))
    return ()


def _ids(offsets: Array) -> Ints:
    """s32 [Vd], the target's token of each of the draft's, from their differences."""
    return (np.arange(len(offsets)) + offsets.astype(np.int64)).astype(np.int32)
