"""Open the files of a low-rank adapter without reading its tensors: PEFT's folders, NxD's files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard, TypeVar, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.limits import LAYERS
from graphgen.name_pattern import name_pattern
from graphgen.numbers import is_digits, is_finite, is_whole
from graphgen.read_file import is_folder, is_there
from graphgen.runtime.checkpoint.config_file import read_json_object
from graphgen.runtime.checkpoint.hub import is_own_file
from graphgen.runtime.checkpoint.interfaces import Array, TensorFile, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import unreadable
from graphgen.runtime.checkpoint.safetensors_file import SafetensorsFile
from graphgen.runtime.checkpoint.torch_file import TorchFile

Number = TypeVar("Number", int, float)

_READ: Final = frozenset(
    (
        *("peft_type", "r", "lora_rank", "lora_alpha", "use_rslora", "rank_pattern"),
        *("alpha_pattern", "target_modules", "exclude_modules", "layers_to_transform"),
        *("layers_pattern", "use_dora", "bias", "init_lora_weights"),
    )
)
# Of training, or of what the tensors say themselves.
_WITHOUT_EFFECT: Final = frozenset(
    (
        *("auto_mapping", "base_model_name_or_path", "revision", "task_type", "inference_mode"),
        *("peft_version", "lora_dropout", "fan_in_fan_out", "modules_to_save", "megatron_core"),
        *("megatron_config", "qalora_group_size", "ensure_weight_tying", "eva_config"),
        *("runtime_config", "enable_lora", "save_lora_base", "merge_lora"),
        "save_lora_config_adapter",
    )
)
# Values of init_lora_weights that leave the model's weights as they are.
_PLAIN_STARTS: Final = (None, True, False, "default", "gaussian", "eva", "orthogonal")
_MERGE: Final = "merge it with PEFT: merge_and_unload() and save_pretrained()"


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The configuration of an adapter.

    Attributes:
        rank: of modules that no pattern names.
        alpha: numerator of the scale, of modules that no pattern names.
        root: the scale is alpha / sqrt(rank) instead of alpha / rank (rank-stabilized LoRA).
        ranks, alphas: those of modules by pattern.
        targets: names of modules, or one regular expression of whole names.
        excluded: the same of modules that have no adapter although ``targets`` names them.
        layers: numbers of layers that names are of; empty for all.
        stacks: names of the list of layers, as a regular expression.
        dora: weights have magnitudes of their own.
    """

    rank: int
    alpha: float
    root: bool
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    targets: tuple[str, ...] | str
    excluded: tuple[str, ...] | str
    layers: tuple[int, ...]
    stacks: str
    dora: bool

    def rank_of(self, module: str) -> int:
        """The stated rank of a module's adapter."""
        return _by_pattern(self.ranks, module, self.rank)

    def scale_of(self, module: str) -> float:
        """The factor of B A in a module: alpha / rank, or alpha / sqrt(rank)."""
        rank, alpha = self.rank_of(module), _by_pattern(self.alphas, module, self.alpha)
        return alpha / math.sqrt(rank) if self.root else alpha / rank

    def names(self, module: str) -> bool:
        """True if the configuration says that a module has an adapter."""
        if _named(self.excluded, module) or not _named(self.targets, module):
            return False
        if isinstance(self.targets, str) or not self.layers:
            return True
        found = name_pattern(rf".*\.{self.stacks}\.([0-9]+)\.").match(module)
        return found is not None and is_digits(found[1]) and int(found[1]) in self.layers


def _named(names: tuple[str, ...] | str, module: str) -> bool:
    if isinstance(names, str):
        return names == "all-linear" or name_pattern(names).fullmatch(module) is not None
    return any(module == name or module.endswith(f".{name}") for name in names)


def _by_pattern(patterns: Mapping[str, Number], module: str, otherwise: Number) -> Number:
    """The value of the first pattern that the end of a module's name matches, as in PEFT."""
    for pattern, value in patterns.items():
        if name_pattern(rf"(.*\.)?({pattern})$").match(module):
            return value
    return otherwise


def read_adapter_config(fields: Mapping[str, object], where: str) -> AdapterConfig:
    """The configuration that ``fields`` state.

    Args:
        fields: an ``adapter_config.json`` of PEFT or of NxD.
        where: its file, for errors.

    Raises:
        GraphgenError: GG0502 for a kind of adapter or an option that is not built; GG0503 for a
            value that cannot be.
    """
    reader = _Fields(fields, where)
    reader.refuse_unbuilt()
    key = "lora_rank" if "lora_rank" in fields else "r"
    rank = reader.number(key, 8)
    if rank < 1 or rank != int(rank):
        raise reader.bad(key, "is not a rank: an integer >= 1")
    ranks = reader.patterns("rank_pattern")
    for pattern, value in ranks.items():
        if value < 1 or value != int(value):
            raise reader.bad("rank_pattern", f"has {value} for '{pattern}', which is not a rank")
    return AdapterConfig(
        rank=int(rank),
        alpha=reader.number("lora_alpha", 8),
        root=reader.truth("use_rslora"),
        ranks={pattern: int(value) for pattern, value in ranks.items()},
        alphas=reader.patterns("alpha_pattern"),
        targets=reader.names("target_modules"),
        excluded=reader.names("exclude_modules"),
        layers=reader.layers(),
        stacks=reader.stacks(),
        dora=reader.truth("use_dora"),
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    """True for a finite number."""
    return is_finite(value)


@dataclass(frozen=True, slots=True)
class _Fields:
    """Typed access to the fields of a configuration; errors name the field and the file."""

    fields: Mapping[str, object]
    where: str

    def bad(self, key: str, what: str) -> GraphgenError:
        shown = f"{key} = {self.fields.get(key)!r}"
        return GraphgenError("GG0503", f"{shown} {what}", where=self.where)

    def unbuilt(self, what: str) -> GraphgenError:
        return GraphgenError("GG0502", what, where=self.where, help=_MERGE)

    def refuse_unbuilt(self) -> None:
        """Refuse other kinds of adapters, and options that change what is computed (GG0502)."""
        kind = self.fields.get("peft_type", "LORA")
        if kind != "LORA":
            raise self.unbuilt(f"peft_type = {kind!r} is not built: adapters are LORA")
        start = self.fields.get("init_lora_weights")
        if start not in _PLAIN_STARTS:
            raise self.unbuilt(
                f"init_lora_weights = {start!r} changes the weights of the model itself"
            )
        for key, value in self.fields.items():
            known = key in _READ or key in _WITHOUT_EFFECT
            if not known and value not in (None, False, 0, "", [], {}):
                raise self.unbuilt(f"{key} = {value!r} is not built for adapters")

    def number(self, key: str, default: float) -> float:
        value = self.fields.get(key, default)
        if not _is_number(value):
            raise self.bad(key, "is not a number")
        return value

    def truth(self, key: str) -> bool:
        value = self.fields.get(key, False)
        if not isinstance(value, bool):
            raise self.bad(key, "is neither true nor false")
        return value

    def names(self, key: str) -> tuple[str, ...] | str:
        """Names of modules, or a regular expression."""
        value = self.fields.get(key)
        if isinstance(value, str):
            self.compiled(key, value)
            return value
        if value is None:
            return ()
        if not isinstance(value, list | tuple | set | frozenset):
            raise self.bad(key, "is neither a list of names nor a regular expression")
        items = list(cast("list[object]", value))
        if not all(isinstance(item, str) for item in items):
            raise self.bad(key, "is neither a list of names nor a regular expression")
        return tuple(cast("list[str]", items))

    def patterns(self, key: str) -> dict[str, float]:
        """Numbers by pattern of modules' names."""
        value = self.fields.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.bad(key, "is not an object of patterns and numbers")
        found: dict[str, float] = {}
        for pattern, number in cast("dict[str, object]", value).items():
            if not _is_number(number):
                raise self.bad(key, f"has {number!r} for '{pattern}', which is not a number")
            self.compiled(key, pattern)
            found[pattern] = number
        return found

    def compiled(self, key: str, pattern: str) -> None:
        try:
            name_pattern(pattern)
        except ValueError as error:
            raise self.bad(key, f"is not a regular expression: {error}") from error

    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers with adapters."""
        key = "layers_to_transform"
        value = self.fields.get(key)
        if value is None:
            return ()
        items = cast("list[object]", value if isinstance(value, list) else [value])
        if not all(is_whole(item, LAYERS.most) for item in items):
            raise self.bad(key, "is not a list of layers")
        return tuple(cast("list[int]", items))

    def stacks(self) -> str:
        """The names of lists of layers, as one regular expression."""
        names = self.names("layers_pattern")
        given = (names,) if isinstance(names, str) else names
        joined = f"(?:{'|'.join(given)})"
        self.compiled("layers_pattern", joined)
        return joined if any(given) else r"[^.]*"


CONFIG: Final = "adapter_config.json"
_WEIGHTS: Final = (
    ("adapter_model.safetensors", SafetensorsFile),
    ("adapter_model.bin", TorchFile),
    ("adapter_model.pt", TorchFile),
)
# Of NxD's files, the name of the configuration among the tensors.
NXD_CONFIG: Final = "lora_config"
_FLOATS: Final = ("f32", "bf16", "f16", "f64")
_NAME: Final = re.compile(
    r"(?:base_model\.model\.)?(?P<module>.+?)\.(?:"
    r"lora_(?P<side>[AB])(?:\.default)?\.weight(?P<part>_[qkv])?"
    r"|lora_embedding_(?P<table>[AB])(?:\.default)?"
    r"|(?P<magnitude>lora_magnitude_vector(?:\.default)?(?:\.weight)?)"
    r"|base_layer\.(?P<copy>weight|bias)"
    r"|(?:modules_to_save(?:\.default)?\.)?(?P<whole>weight|bias))"
)
_MODULES: Final = {"_q": "q_proj", "_k": "k_proj", "_v": "v_proj"}


@dataclass(frozen=True, slots=True)
class LowRankPair:
    """The two factors of what an adapter adds to the weight [out,in] of one module: scale * B A.

    Attributes:
        module: name in the model, such as ``model.layers.0.self_attn.q_proj``.
        a: the stored A [r,in]; of an embedding [r,vocabulary].
        b: the stored B [out,r]; of an embedding [width,r].
        scale: the factor.
        embedding: the module is an embedding, whose weight [vocabulary,width] is [in,out].
        magnitude: name of the stored vector of DoRA; empty without one.
    """

    module: str
    a: TensorInfo
    b: TensorInfo
    scale: float
    embedding: bool = False
    magnitude: str = ""

    @property
    def rank(self) -> int:
        """r, the number of rows of A."""
        return self.a.shape[0]


@dataclass(frozen=True, slots=True)
class Adapter:
    """An opened adapter.

    Attributes:
        path: the folder or file.
        config: its configuration.
        pairs: by module.
        copies: stored names of tensors that are copies of the model's own, by their name there.
        whole: stored names of tensors that take the place of the model's own, by their name there.
    """

    path: Path
    config: AdapterConfig
    pairs: Mapping[str, LowRankPair]
    copies: Mapping[str, str]
    whole: Mapping[str, str]
    _file: TensorFile

    @property
    def rank(self) -> int:
        """The largest rank of a module."""
        return max(pair.rank for pair in self.pairs.values())

    def tensor(self, stored: str) -> TensorInfo:
        """Shape and type of a stored tensor."""
        return self._file.tensors()[stored]

    def read(self, stored: str) -> Array:
        """A stored tensor: a read-only view of the file."""
        return self._file.read(stored)

    def factors(self, module: str) -> tuple[Array, Array]:
        """A [r,in] as it is stored, and scale * B [out,r] f32: the scale is applied here only.

        The product of both is what the adapter adds to the weight.
        """
        pair = self.pairs[module]
        scaled = self.read(pair.b.name).astype(np.float32) * np.float32(pair.scale)
        return self.read(pair.a.name), scaled

    def fingerprint(self) -> str:
        """Identity of the contents, cheap to compute: see :meth:`Checkpoint.fingerprint`."""
        return self._file.digest(repr(self.config).encode())


def open_adapter(path: str | Path) -> Adapter:
    """Open a folder of PEFT (``adapter_config.json`` and its tensors), or a file of NxD.

    Args:
        path: a folder with ``adapter_config.json`` and ``adapter_model.safetensors``, ``.bin`` or
            ``.pt``, or a ``.pt`` file that holds the configuration too.

    Raises:
        GraphgenError: GG0601 for files that are missing or damaged; GG0502 and GG0503 for the
            configuration; GG0602 for tensors that contradict it, each by its name; GG0604 for a
            pickle that calls a function.
    """
    path = Path(path)
    fields, file = _opened(path)
    config = read_adapter_config(fields, str(path / CONFIG if is_folder(path) else path))
    return _sorted(path, config, file)


def _opened(path: Path) -> tuple[Mapping[str, object], TensorFile]:
    """The fields of the configuration, and the file of tensors."""
    if is_folder(path):
        weights = _weights_of(path)
        _require_own(path, CONFIG)
        if is_there(path / CONFIG):
            return read_json_object(path / CONFIG), weights
        fields = _config_inside(weights)
        if fields is None:
            raise unreadable(path, f"{CONFIG} is missing", help="an adapter needs rank and alpha")
        return fields, weights
    if not is_there(path):
        raise unreadable(path, "there is no such adapter", help=_LOOKED_FOR)
    if path.suffix not in (".pt", ".bin"):
        raise unreadable(path, "an adapter is a folder, or a .pt file of NxD", help=_LOOKED_FOR)
    file = TorchFile(path, (NXD_CONFIG,))
    fields = _config_inside(file)
    if fields is None:
        raise unreadable(path, f"the file holds no {NXD_CONFIG}", help=_LOOKED_FOR)
    return fields, file


_LOOKED_FOR: Final = (
    f"give a folder with {CONFIG} and {_WEIGHTS[0][0]}, or a .pt file that NxD saved with its "
    "configuration"
)


def _weights_of(folder: Path) -> TensorFile:
    for name, opener in _WEIGHTS:
        _require_own(folder, name)
        if is_there(folder / name):
            if opener is TorchFile:
                return TorchFile(folder / name, (NXD_CONFIG,))
            return opener(folder / name)
    names = ", ".join(name for name, _ in _WEIGHTS)
    raise unreadable(folder, f"the folder has none of {names}", help=_LOOKED_FOR)


def _require_own(folder: Path, name: str) -> None:
    """Refuse a link out of an adapter's folder, which may come from elsewhere (GG0601)."""
    if not is_own_file(folder, name):
        what = f"{name} is a symbolic link out of the folder"
        raise unreadable(folder, what, help="put a copy in its place")


def _config_inside(file: TensorFile) -> Mapping[str, object] | None:
    found = file.beside.get(NXD_CONFIG) if isinstance(file, TorchFile) else None
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else None


def _sorted(path: Path, config: AdapterConfig, file: TensorFile) -> Adapter:
    """The adapter with its tensors by module (GG0602)."""
    sides: dict[tuple[str, bool], dict[str, TensorInfo]] = {}
    copies: dict[str, str] = {}
    whole: dict[str, str] = {}
    problems: list[str] = []
    for name, info in file.tensors().items():
        found = _NAME.fullmatch(name)
        # lora_B.bias, and what else of an adapter is not known.
        if found is None or "lora_" in found["module"]:
            problems.append(f"'{name}' is not a tensor of a LoRA adapter")
        elif found["copy"]:
            copies[f"{found['module']}.{found['copy']}"] = name
        elif found["whole"]:
            whole[f"{found['module']}.{found['whole']}"] = name
        else:
            side = "magnitude" if found["magnitude"] else found["side"] or found["table"]
            key = found["module"], found["table"] is not None
            sides.setdefault(key, {})[side + (found["part"] or "")] = info
    pairs = dict(_pairs(config, sides, problems))
    if not problems and not pairs:
        problems.append("there is no lora_A and no lora_B")
    require_none(problems, path)
    return Adapter(path, config, pairs, copies, whole, file)


def _pairs(
    config: AdapterConfig,
    sides: Mapping[tuple[str, bool], Mapping[str, TensorInfo]],
    problems: list[str],
) -> Iterable[tuple[str, LowRankPair]]:
    """Module and factors; what is wrong is added to ``problems``."""
    for (module, embedding), found in sides.items():
        a = found.get("A")
        parts = {key.removeprefix("B"): info for key, info in found.items() if key[0] == "B"}
        if a is None or not parts:
            there = next(iter(found.values())).name
            problems.append(f"'{there}' is without its lora_{'A' if a is None else 'B'}")
            continue
        magnitude = found.get("magnitude")
        if config.dora != (magnitude is not None):
            problems.append(
                f"'{a.name}' is {'without' if config.dora else 'with'} DoRA's magnitude"
            )
            continue
        for part, b in parts.items():
            # NxD has q, k and v in one module, with one A for the three.
            name = module.rpartition(".")[0] + "." + _MODULES[part] if part else module
            problem = _problem(config, module, a, b)
            if problem:
                problems.append(problem)
                continue
            scale = config.scale_of(module)
            stored = magnitude.name if magnitude else ""
            yield name, LowRankPair(name, a, b, scale, embedding, stored)


def _problem(config: AdapterConfig, module: str, a: TensorInfo, b: TensorInfo) -> str:
    """The contradiction between the factors of a module and the configuration; empty without."""
    for info in (a, b):
        if info.dtype not in _FLOATS:
            return f"'{info.name}' is {info.dtype}; adapters are {', '.join(_FLOATS)}"
        if len(info.shape) != 2 or not all(info.shape):
            return f"'{info.name}' has shape {list(info.shape)}, a factor has two dimensions"
    rank = config.rank_of(module)
    if a.shape[0] != rank:
        return f"'{a.name}' has {a.shape[0]} rows, the configuration says rank {rank}"
    if b.shape[1] != rank:
        return f"'{b.name}' has {b.shape[1]} columns, the configuration says rank {rank}"
    if config.targets and not config.names(module):
        return f"'{a.name}' is of a module that target_modules does not name"
    return ""


def require_none(problems: list[str], path: Path, model: str = "") -> None:
    """Raise one GG0602 that lists all problems of an adapter, if there are any.

    Args:
        problems: each names its tensor.
        path: of the adapter.
        model: the model that it does not fit, where that is at fault.
    """
    if not problems:
        return
    shown = problems[:20]
    if len(problems) > 20:
        shown.append(f"and {len(problems) - 20} more")
    what = f"the adapter does not fit {model}" if model else "the adapter's tensors cannot be used"
    help = "was it made for this model?" if model else "get the adapter again from where it is from"
    raise GraphgenError("GG0602", what, where=str(path), note="\n".join(shown), help=help)
