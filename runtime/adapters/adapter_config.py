"""Read the configuration of a low-rank adapter: PEFT's ``adapter_config.json`` or NxD's.

PEFT: https://huggingface.co/docs/peft/package_reference/lora. NxD's has other names of the rank and
fewer fields, and may be inside of the file with the tensors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard, TypeVar, cast

from graphgen.errors import GraphgenError

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
        found = re.match(rf".*\.{self.stacks}\.(\d+)\.", module)
        return found is not None and int(found[1]) in self.layers


def _named(names: tuple[str, ...] | str, module: str) -> bool:
    if isinstance(names, str):
        return names == "all-linear" or re.fullmatch(names, module) is not None
    return any(module == name or module.endswith(f".{name}") for name in names)


def _by_pattern(patterns: Mapping[str, Number], module: str, otherwise: Number) -> Number:
    """The value of the first pattern that the end of a module's name matches, as in PEFT."""
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
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
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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
            re.compile(pattern)
        except re.error as error:
            raise self.bad(key, f"is not a regular expression: {error}") from error

    def layers(self) -> tuple[int, ...]:
        """The numbers of the layers with adapters."""
        key = "layers_to_transform"
        value = self.fields.get(key)
        if value is None:
            return ()
        items = cast("list[object]", value if isinstance(value, list) else [value])
        if not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            raise self.bad(key, "is not a list of layers")
        return tuple(cast("list[int]", items))

    def stacks(self) -> str:
        """The names of lists of layers, as one regular expression."""
        names = self.names("layers_pattern")
        given = (names,) if isinstance(names, str) else names
        return f"(?:{'|'.join(given)})" if any(given) else r"[^.]*"
