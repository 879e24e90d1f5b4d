"""InferenceConfig: a NeuronConfig and the attributes of a model, as in ``config.json``."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, Self, TypeVar, cast

from graphgen.atomic_write import read_regular
from graphgen.errors import GraphgenError
from graphgen.limits import JSON_BYTES
from graphgen.models import known_family
from graphgen.runtime.aws_config.config_json import (
    class_json,
    config_json,
    named_class,
    read_config,
    read_object,
    value_json,
)
from graphgen.runtime.aws_config.neuron_config import FusedSpecNeuronConfig, NeuronConfig
from graphgen.runtime.aws_config.size_rows import torch_name
from graphgen.runtime.aws_config.strict_config import CPU
from graphgen.runtime.checkpoint.dtype_policy import stated_dtype
from graphgen.runtime.checkpoint.model_config import model_config

CONFIG_FILE = "neuron_config.json"
# Attributes of the class itself; all others are the model's.
_OWN = ("neuron_config", "fused_spec_config", "attribute_map")
# The class of a draft's configuration in a file, where it is not the target's.
_CONFIG_CLS = "config_cls"


class InferenceConfig:
    """The configuration of an application: a NeuronConfig and the model's attributes.

    The model's attributes have Hugging Face's names. An attribute that is not set has the default
    of the model's family. The configuration can be changed until an application takes it; a copy
    by :func:`copy.deepcopy` can be changed again.

    Args:
        neuron_config: frozen from now on. Without a ``torch_dtype`` the attribute is a copy with
            the element type of the model, if that is stated.
        load_config: called with the new configuration to set the model's attributes, as made by
            :func:`~graphgen.runtime.aws_config.inference_config.load_pretrained_config`; without
            it the method :meth:`load_config` is called.
        fused_spec_config: the draft of fused speculation, or of EAGLE: a FusedSpecNeuronConfig, or
            a dictionary of its attributes.
        kwargs: attributes of the model; they replace loaded ones.

    Attributes:
        attribute_map: aliases of attributes, alias to name.
        only_for_code: attributes that the model's family does not read, such as derived ones.

    Raises:
        GraphgenError: GG0902 for a ``neuron_config`` or ``fused_spec_config`` of another class,
            GG0503 for a missing attribute, GG0903 for attributes that exclude each other.
    """

    attribute_map: Mapping[str, str] = {}
    only_for_code: ClassVar[frozenset[str]] = frozenset()
    neuron_config: NeuronConfig
    fused_spec_config: FusedSpecNeuronConfig | None

    def __init__(
        self,
        neuron_config: NeuronConfig,
        load_config: Callable[[Self], None] | None = None,
        *,
        fused_spec_config: object = None,
        **kwargs: object,
    ) -> None:
        vars(self)["_frozen_by"] = ""
        self.neuron_config = neuron_config
        setattr(self, "fused_spec_config", fused_spec_config)  # noqa: B010 - of any type until then
        if load_config is None:
            self.load_config()
        else:
            load_config(self)
        for name, value in kwargs.items():
            setattr(self, name.replace("-", "_"), value)
        self._take_model_dtype()
        self.add_derived_config()
        self.validate_config()
        neuron_config.freeze(type(self).__name__)

    def _take_model_dtype(self) -> None:
        """Replace a NeuronConfig without ``torch_dtype`` by a copy with the model's element type.

        ``overrides_torch_dtype`` decides; its default is whether ``torch_dtype`` is given.
        """
        stated = stated_dtype(self.to_hf())
        if stated is not None and not self.neuron_config.value("overrides_torch_dtype"):
            made = copy.deepcopy(self.neuron_config)
            made.torch_dtype = torch_name(stated)
            self.neuron_config = made

    def load_config(self) -> None:
        """Set the model's attributes; does nothing unless overridden."""

    def add_derived_config(self) -> None:
        """Set attributes that follow from others; does nothing unless overridden.

        It runs after attributes are loaded and before they are validated.
        """

    def get_required_attributes(self) -> list[str]:
        """The attributes that must be there; none unless overridden."""
        return []

    @classmethod
    def get_neuron_config_cls(cls) -> type[NeuronConfig]:
        """The class of :attr:`neuron_config`."""
        return NeuronConfig

    @classmethod
    def accepted_neuron_config(cls) -> type[NeuronConfig]:
        """The class that :attr:`neuron_config` has to be of, by default the one it is read as."""
        return cls.get_neuron_config_cls()

    def validate_config(self) -> None:
        """Refuse a configuration that lacks required attributes (GG0503)."""
        missing = [name for name in self.get_required_attributes() if not hasattr(self, name)]
        if missing:
            raise GraphgenError(
                "GG0503",
                f"{type(self).__name__} must define {', '.join(missing)}",
                help="load them: load_config=load_pretrained_config(MODEL_PATH)",
            )

    def with_neuron_config(self, neuron_config: NeuronConfig) -> Self:
        """A copy with another NeuronConfig."""
        made = copy.deepcopy(self)
        made.neuron_config = neuron_config
        return made

    def freeze(self, user: str) -> Self:
        """Refuse assignments from now on (GG0905).

        Args:
            user: what uses the configuration, for the error.
        """
        self.validate_config()
        self.neuron_config.freeze(user)
        vars(self)["_frozen_by"] = user
        return self

    def __setattr__(self, name: str, value: object) -> None:
        if vars(self)["_frozen_by"]:
            raise GraphgenError(
                "GG0905",
                f"{type(self).__name__}.{name} cannot be set: {vars(self)['_frozen_by']} uses "
                "this configuration",
                help="change a copy: copy.deepcopy(config)",
            )
        if name == "neuron_config" and not isinstance(value, self.accepted_neuron_config()):
            raise GraphgenError(
                "GG0902",
                f"neuron_config is a {type(value).__name__}, not a "
                f"{self.get_neuron_config_cls().__name__}",
            )
        if name == "fused_spec_config":
            value = _fused_spec(type(self), value)
        vars(self)[self._plain(name)] = value

    def __getattr__(self, name: str) -> object:
        # Called for names that are not set: aliases, and defaults of the family.
        if not name.startswith("__") and "_frozen_by" in vars(self):
            plain = self._plain(name)
            if plain in vars(self):
                return vars(self)[plain]
            defaults = self._family_defaults()
            if plain in defaults:
                return defaults[plain]
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def _plain(self, name: str) -> str:
        """The name that an alias stands for."""
        if name in self.attribute_map:
            return self.attribute_map[name]
        family = known_family(vars(self).get("model_type"))
        return name if family is None else family.aliases.get(name, name)

    def _family_defaults(self) -> Mapping[str, object]:
        """All attributes of the model's family, with its defaults for those not set."""
        return _read_by_family(self.to_hf())

    def to_hf(self) -> dict[str, object]:
        """The model's attributes as a ``config.json``."""
        hidden = (*_OWN, *self.only_for_code, "_frozen_by")
        values = {
            name: _plain_value(value) for name, value in vars(self).items() if name not in hidden
        }
        private = {name for name in values if name.startswith("_")}
        if private:
            # Most are transformers' own; a family reads some, as OPT _remove_final_layer_norm.
            private -= _read_by_family(values).keys()
        return {name: value for name, value in values.items() if name not in private}

    def save(self, model_path: str | Path) -> None:
        """Write ``neuron_config.json`` in the folder ``model_path``, which is made if missing."""
        from graphgen.atomic_write import write_inside

        folder = Path(model_path)
        folder.mkdir(parents=True, exist_ok=True)
        write_inside(folder, folder / CONFIG_FILE, self.to_json_string().encode() + b"\n")

    def to_json_file(self, json_file: str | Path) -> None:
        """Write :meth:`to_json_string` to a file (GG0704)."""
        from graphgen.atomic_write import write_whole

        write_whole(Path(json_file), self.to_json_string().encode() + b"\n")

    def to_json_string(self) -> str:
        """The configuration as AWS's ``neuron_config.json``: sorted keys, indented by 2."""

        return json.dumps(inference_config_json(self), indent=2, sort_keys=True)

    @classmethod
    def load(cls, model_path: str | Path, **kwargs: object) -> Self:
        """Read ``neuron_config.json`` of a folder; ``kwargs`` replace attributes (GG0906)."""
        return cls.from_json_file(Path(model_path) / CONFIG_FILE, **kwargs)

    @classmethod
    def from_json_file(cls, json_file: str | Path, **kwargs: object) -> Self:
        """Read :meth:`to_json_file`'s file; ``kwargs`` replace attributes (GG0906)."""
        try:
            text = read_regular(Path(json_file), JSON_BYTES).decode("utf-8")
        except (OSError, ValueError) as error:
            raise GraphgenError(
                "GG0906",
                f"cannot read the configuration: {error}",
                where=str(json_file),
                help=f"InferenceConfig.save and compile write {CONFIG_FILE}",
            ) from error
        try:
            return cls.from_json_string(text, **kwargs)
        except GraphgenError as error:
            error.where = error.where or str(json_file)
            raise

    @classmethod
    def from_json_string(cls, json_string: str, **kwargs: object) -> Self:
        """Read :meth:`to_json_string`'s text; ``kwargs`` replace attributes.

        Raises:
            GraphgenError: GG0906 for any other text, GG0901 to GG0904 for its
                attributes.
        """

        return read_inference_config(cls, json_string, kwargs)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """A copy that can be changed, and so can its ``neuron_config``."""
        made = type(self).__new__(type(self))
        vars(made).update(copy.deepcopy(vars(self), memo), _frozen_by="")
        return made

    def notes(self, target: str = CPU) -> tuple[str, ...]:
        """Remarks to print once: those of the NeuronConfig, and a draft that nothing uses."""
        made = self.neuron_config.notes(target)
        switches = ("enable_fused_speculation", "enable_eagle_speculation")
        if self.fused_spec_config is None or any(map(self.neuron_config.value, switches)):
            return made
        return (*made, f"fused_spec_config has no effect: {' and '.join(switches)} are False")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InferenceConfig) or type(self) is not type(other):
            return False
        return self._plain_values() == other._plain_values()

    def _plain_values(self) -> dict[str, object]:
        """All attributes, the model's in the form that a file gives back.

        Not private ones that no file has: a configuration is the one that is read from its file.
        """
        own = {name: value for name, value in vars(self).items() if name in _OWN}
        derived = {n: _plain_value(v) for n, v in vars(self).items() if n in self.only_for_code}
        return {**self.to_hf(), **derived, **own}

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.neuron_config!r}, {self.to_hf()!r})"


def _read_by_family(values: Mapping[str, object]) -> Mapping[str, object]:
    """All attributes that the model's family reads; none where it does not take the values."""
    family = known_family(values.get("model_type"))
    try:
        return {} if family is None else family.read(values).to_hf()
    except GraphgenError:
        return {}


def _plain_value(value: object) -> object:
    """A value as JSON has it: element types of torch as their names, tuples as lists."""
    if isinstance(value, str | int | float | None):
        return value
    text = str(value)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {key: _plain_value(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in cast("Sequence[object]", value)]
    return value


Config = TypeVar("Config", bound=InferenceConfig)


def inference_config_json(config: InferenceConfig) -> dict[str, object]:
    """The object of ``neuron_config.json``: nested configurations, and the model's attributes.

    Raises:
        GraphgenError: GG0902 for an attribute of the model that JSON has no form for.
    """
    fused = config.fused_spec_config
    made = {name: _model_value(name, value) for name, value in config.to_hf().items()}
    if config.attribute_map != type(config).attribute_map:
        made["attribute_map"] = dict(config.attribute_map)
    return {
        **made,
        "neuron_config": config_json(config.neuron_config),
        "fused_spec_config": None if fused is None else _fused_json(config, fused),
    }


def _model_value(name: str, value: object) -> object:
    made = value_json(value)
    try:
        json.dumps(made)
    except (TypeError, ValueError) as error:
        raise GraphgenError(
            "GG0902",
            f"the attribute {name} is a {type(value).__name__}, which {CONFIG_FILE} cannot hold",
            help=f"set it to a number, a string, a list or a dictionary, or list {name!r} in "
            "only_for_code of the configuration's class",
        ) from error
    return made


def _fused_json(config: InferenceConfig, fused: FusedSpecNeuronConfig) -> dict[str, object]:
    """AWS's object of a draft, with the class of its configuration if it is not the target's."""
    made = config_json(fused)
    draft = fused.value("draft_config")
    if isinstance(draft, InferenceConfig) and type(draft) is not type(config):
        made["draft_config"] = {
            **inference_config_json(draft),
            _CONFIG_CLS: class_json(type(draft)),
        }
    return made


def read_inference_config(kind: type[Config], text: str, changes: Mapping[str, object]) -> Config:
    """The configuration of a JSON text, with other values for some attributes.

    Raises:
        GraphgenError: GG0906 for a text without a JSON object, or without ``neuron_config``.
    """
    return _config_of(kind, {**read_object(text), **changes})


def _config_of(kind: type[Config], given: Mapping[str, object]) -> Config:
    values = dict(given)
    neuron_config = values.pop("neuron_config", None)
    if isinstance(neuron_config, Mapping):
        attributes = cast("Mapping[str, object]", neuron_config)
        neuron_config = read_config(kind.get_neuron_config_cls(), attributes)
    if not isinstance(neuron_config, NeuronConfig):
        raise _unreadable("has no neuron_config")
    fused = values.pop("fused_spec_config", None)
    return kind(neuron_config, None, fused_spec_config=fused, **values)


def _fused_spec(kind: type[InferenceConfig], value: object) -> FusedSpecNeuronConfig | None:
    """A ``fused_spec_config`` with configurations in place of dictionaries (GG0902 for others).

    Args:
        kind: the target's class, which a draft's configuration has unless its file says another.
        value: as it was set.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = read_config(FusedSpecNeuronConfig, cast("Mapping[str, object]", value))
    if not isinstance(value, FusedSpecNeuronConfig):
        raise GraphgenError(
            "GG0902",
            f"fused_spec_config is a {type(value).__name__}, not a FusedSpecNeuronConfig",
            help="give FusedSpecNeuronConfig(WORKER_CLS, draft_config=..., draft_model_path=...)",
        )
    draft = value.value("draft_config")
    if isinstance(draft, Mapping):
        own = dict(cast("Mapping[str, object]", draft))
        stated = named_class(own.pop(_CONFIG_CLS, None))
        if isinstance(stated, type) and issubclass(stated, InferenceConfig):
            kind = stated
        value = copy.deepcopy(value)
        value.draft_config = _config_of(kind, own)
    return value


def _unreadable(what: str) -> GraphgenError:
    return GraphgenError(
        "GG0906", f"the configuration {what}", help="InferenceConfig.save writes one"
    )


class HuggingFaceConfig(Protocol):
    """The part of transformers' ``PretrainedConfig`` that is read."""

    def to_dict(self) -> dict[str, object]:
        """The attributes by name."""
        ...


def load_pretrained_config(
    model_path: str | Path | None = None, *, hf_config: HuggingFaceConfig | None = None
) -> Callable[[InferenceConfig], None]:
    """A ``load_config`` hook that sets the attributes of a ``config.json``.

    The element type of the checkpoint does not change ``neuron_config.torch_dtype``.

    Args:
        model_path: a checkpoint: a folder, a GGUF file, a known name, or a name of the hub, with
            an organization or without (``gpt2``).
        hf_config: a ``PretrainedConfig`` to take the attributes from instead; its
            ``attribute_map`` is inherited.

    Raises:
        GraphgenError: GG0705 unless one of both is given; the hook raises GG0601 for a checkpoint
            that cannot be read.
    """
    if (model_path is None) == (hf_config is None):
        raise GraphgenError(
            "GG0705",
            "load_pretrained_config takes a model path or hf_config, one of both",
            help="load_pretrained_config(MODEL_PATH)",
        )

    def load_config(config: InferenceConfig) -> None:
        if hf_config is None:
            values: Mapping[str, object] = model_config(str(model_path), plain_names=True)
        else:
            values = hf_config.to_dict()
            config.attribute_map = dict(getattr(hf_config, "attribute_map", {}))
        for name, value in values.items():
            setattr(config, name, value)

    return load_config
