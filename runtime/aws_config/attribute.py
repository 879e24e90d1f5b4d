"""An attribute of AWS's configurations: its type, its default, and its effect per target.

An effect is one of :class:`CompileSetting`, :class:`RunTimeSetting`, :class:`CompilerArgument`,
:class:`DescribesModel`, :class:`PartOf`, :class:`NoEffect` and :class:`Refused`: an attribute is
never accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Final, Protocol

from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import ValueType
from graphgen.runtime.aws_config.value_kinds import ELEMENT


class Values(Protocol):
    """The values of a configuration, given and derived."""

    def __getitem__(self, name: str, /) -> object:
        """The value of an attribute."""
        ...

    def is_given(self, name: str) -> bool:
        """True for an attribute that somebody set."""
        ...


class CompileRequest(Values, Protocol):
    """The values of a configuration whose programs are compiled."""

    @property
    def target(self) -> str:
        """The target of :mod:`graphgen.targets`."""
        ...

    @property
    def model(self) -> Mapping[str, object]:
        """The model's ``config.json``; empty where no model is named."""
        ...


class _MustBeGiven:
    """The default of an attribute that must be given."""

    def __repr__(self) -> str:
        return "none: must be given"


REQUIRED: Final = _MustBeGiven()


@dataclass(frozen=True, slots=True)
class CompileSetting:
    """The attribute sets fields of :class:`~graphgen.config.compile_config.CompileConfig`.

    Attributes that set a field together name one object, which acts once, for the configuration
    that holds the others.

    Attributes:
        fields: that it sets.
        apply: the values of those that differ from the default; ``None`` for the attribute's own
            value in one field.
    """

    fields: tuple[str, ...]
    apply: Callable[[CompileRequest], Mapping[str, object]] | None = None


@dataclass(frozen=True, slots=True)
class RunTimeSetting:
    """The attribute changes loading or generation, not the programs; ``what`` is a noun phrase."""

    what: str


@dataclass(frozen=True, slots=True)
class CompilerArgument:
    """The attribute becomes a command-line argument of ``neuronx-cc``.

    Attributes:
        argument: without the value.
        also: another attribute that must be on for it.
    """

    argument: str
    also: str = ""


@dataclass(frozen=True, slots=True)
class DescribesModel:
    """The attribute describes the model's computation; ``what`` is a noun phrase.

    Modules that a program makes of the configuration follow it. The configuration of a family must
    say the same; an attribute that is not given states nothing, and neither does a default in a
    file, which has all attributes.
    """

    what: str


@dataclass(frozen=True, slots=True)
class PartOf:
    """The attribute is read with ``attribute``: of the same class, or ``CLASS.NAME`` of another."""

    attribute: str


@dataclass(frozen=True, slots=True)
class NoEffect:
    """The attribute changes nothing; ``because`` is a clause, printed once when it is used."""

    because: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The attribute is refused unless it has an inactive value.

    Attributes:
        feature: a noun phrase for the missing feature, such as ``speculative decoding``.
        remedy: what to do instead, an imperative.
    """

    feature: str
    remedy: str


Effect = (
    CompileSetting
    | RunTimeSetting
    | CompilerArgument
    | DescribesModel
    | PartOf
    | NoEffect
    | Refused
)


@dataclass(frozen=True, slots=True)
class Derived:
    """A default that follows from other attributes; ``text`` shows the rule."""

    text: str
    value: Callable[[Values], object]


def same_as(name: str) -> Derived:
    """The default is the value of another attribute."""
    return Derived(name, lambda values: values[name])


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of one class of configurations.

    Attributes:
        name: as Python code writes it; its hyphenated form is accepted too.
        kind: the accepted values.
        default: the value where none is given, a :class:`Derived`, or :data:`REQUIRED`.
        doc: a noun phrase.
        cpu: effect on the CPU.
        neuron: effect on Neuron targets; ``None`` for the same as on the CPU.
        owner: name of the class; transformers-neuronx's classes start with ``tnx.``.
        source: number of the attribute's row in the table of features, such as ``C03``; of one that
            only AWS's sources have ``source``, or ``tnx``, which :func:`owned_by` fills in.
        decision: the reason for the default, where the documents of AWS contradict each other.
        inactive: values that request nothing, beside the default, ``None`` and ``False``.
        unbuilt: values of an attribute that works otherwise, refused until they are built.
        beside: an argument of ``neuronx-cc`` that it gives beside its effect on Neuron targets.
        replaces: the name that this deprecated one stands for; empty for none.
        environment: the variable that overrides the value; empty for none.
        served: what ``graphgen serve`` does with it, a noun phrase, where it is the server's own;
            empty for the effect that it has on programs.
        described: the value that asks for the fields of a compilation, for ``neuron_config.json``;
            of an attribute with a configuration of its own, whether there is one.
    """

    name: str
    kind: ValueType[Any]
    default: object
    doc: str
    cpu: Effect
    neuron: Effect | None = None
    _: KW_ONLY
    owner: str = ""
    source: str = ""
    decision: str = ""
    inactive: tuple[object, ...] = ()
    unbuilt: Mapping[str, Refused] = field(default_factory=dict[str, Refused])
    beside: CompilerArgument | None = None
    replaces: str = ""
    environment: str = ""
    served: str = ""
    described: Callable[[CompileConfig], object] | None = None

    @property
    def nested(self) -> str:
        """The class of configurations that values are of; empty for plain values."""
        return "" if self.kind.tag == ELEMENT else self.kind.tag

    def effect(self, target: str) -> Effect:
        """The effect for a target of :mod:`graphgen.targets`."""
        return self.cpu if target == "cpu" or self.neuron is None else self.neuron

    def requests_nothing(self, value: object, default: object) -> bool:
        """True for the default, for ``None``, for inactive values, and for a ``False`` that is not
        the opposite of the default."""
        if value is None or value == default or value in self.inactive:
            return True
        return value is False and default is not True


def sets(field: str, value: Callable[[CompileRequest], object] | None = None) -> CompileSetting:
    """The setting of one field: to a value, or to that of the attribute itself."""
    return CompileSetting((field,), value and (lambda request: {field: value(request)}))


def owned_by(owner: str, *rows: Attribute) -> tuple[Attribute, ...]:
    """Rows of the class ``owner``."""
    unnumbered = "tnx" if owner.startswith("tnx.") else "source"
    return tuple(replace(row, owner=owner, source=row.source or unnumbered) for row in rows)


def effect_text(effect: Effect) -> str:
    """An effect in a few words."""
    match effect:
        case CompileSetting(fields=names):
            return f"compile setting {', '.join(names)}"
        case RunTimeSetting(what=what):
            return f"at run time: {what}"
        case CompilerArgument(argument=argument):
            return f"neuronx-cc {argument}"
        case DescribesModel(what=what):
            return f"describes the model: {what}"
        case PartOf(attribute=name):
            return f"read with {name}"
        case NoEffect(because=because):
            return f"no effect: {because}"
        case Refused(feature=feature):
            return f"refused: {feature}"
