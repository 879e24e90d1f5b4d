"""An attribute of AWS's configurations: its type, its default, and its effect per target.

An effect is one of :class:`CompileSetting`, :class:`RunTimeSetting`, :class:`CompilerArgument`,
:class:`PartOf`, :class:`NoEffect` and :class:`Refused`: an attribute is never accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphgen.runtime.aws.attributes.value_kinds import AttributeType

# Read by name: the values of a configuration, those given and those derived.
Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CompileSetting:
    """The attribute sets a field of :class:`~graphgen.compile_config.CompileConfig`."""

    field: str


@dataclass(frozen=True, slots=True)
class RunTimeSetting:
    """The attribute changes loading or generation, not the programs; ``what`` is a noun phrase."""

    what: str


@dataclass(frozen=True, slots=True)
class CompilerArgument:
    """The attribute becomes a command-line argument of ``neuronx-cc``."""

    argument: str


@dataclass(frozen=True, slots=True)
class PartOf:
    """The attribute is read together with another one, ``attribute``, of the same class."""

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


Effect = CompileSetting | RunTimeSetting | CompilerArgument | PartOf | NoEffect | Refused


@dataclass(frozen=True, slots=True)
class Derived:
    """A default that follows from other attributes; ``text`` shows the rule."""

    text: str
    value: Callable[[Values], object]


def same_as(name: str) -> Derived:
    """The default is the value of another attribute."""
    return Derived(name, lambda values: values[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute of one class of configurations.

    Attributes:
        name: as Python code writes it; its hyphenated form is accepted too.
        owner: name of the class; transformers-neuronx's classes start with ``tnx.``.
        kind: the accepted values.
        default: the value where none is given, or a :class:`Derived`.
        doc: one sentence.
        source: rows of the feature table and of the seed documents, such as ``C03``.
        cpu: effect on the CPU.
        neuron: effect on Neuron targets; ``None`` for the same as on the CPU.
        decision: the reason for the default, where the documents of AWS contradict each other.
        inactive: values that request nothing, beside the default, ``None`` and ``False``.
        replaces: the name that this deprecated one stands for; empty for none.
    """

    name: str
    owner: str
    kind: AttributeType
    default: object
    doc: str
    source: str
    cpu: Effect
    neuron: Effect | None = None
    decision: str = ""
    inactive: tuple[object, ...] = ()
    replaces: str = ""

    def effect(self, target: str) -> Effect:
        """The effect for a target of :mod:`graphgen.targets`."""
        return self.cpu if target == "cpu" or self.neuron is None else self.neuron

    def requests_nothing(self, value: object, default: object) -> bool:
        """True for the default and for inactive values."""
        return value is None or value is False or value == default or value in self.inactive
