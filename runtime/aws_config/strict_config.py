"""Strict configurations from the attribute table: checked on assignment, frozen on use.

An attribute is set by the constructor or by assignment. Both refuse unknown names (GG0901), values
of another kind (GG0902) and features that are not built (GG0904). Rules about several attributes
(GG0903) hold from the construction on, and are checked again when something takes the
configuration, which freezes it: a later assignment is refused (GG0905). A copy is not frozen.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import ClassVar, Self, cast

from graphgen.errors import GraphgenError, did_you_mean
from graphgen.runtime.aws_config.attribute import REQUIRED, Attribute, Derived, NoEffect, Refused
from graphgen.runtime.aws_config.attribute_table import BASES, attributes_of
from graphgen.runtime.aws_config.combination_rules import NOTES, RULES, CombinationRule, Reader
from graphgen.runtime.aws_config.value_kinds import ELEMENT

CPU = "cpu"
# The modules that define the classes of the table.
_HOMES = tuple(f"graphgen.runtime.aws_config.{name}" for name in ("neuron_config", "expert_config"))
# Classes by their name in the table.
_CLASSES: dict[str, type[StrictConfig]] = {}


class StrictConfig:
    """A configuration with the attributes of the class ``owner`` in the table.

    Attributes:
        owner: name of the class in the table.
        positional: names of the attributes that the constructor takes without their names.

    Raises:
        GraphgenError: GG0901 to GG0904.
    """

    owner: ClassVar[str] = ""
    positional: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Let dictionaries become the class where the table nests it; subclasses do not count."""
        if "owner" in vars(cls):
            _CLASSES[cls.owner] = cls

    def __init__(self, *arguments: object, **values: object) -> None:
        self._begin()
        named = dict(zip(self.positional, arguments, strict=False))
        names = ", ".join(self.positional) or "no value"
        if len(arguments) > len(self.positional) or named.keys() & values.keys():
            raise TypeError(f"{type(self).__name__} takes {names} without a name")
        self._set_all(named | values)
        self.check()

    def _begin(self) -> None:
        read = {
            row.environment: os.environ[row.environment]
            for row in attributes_of(self.owner).values()
            if os.environ.get(row.environment)
        }
        vars(self).update(_given={}, _renamed={}, _environment=read, _frozen_by="")

    @classmethod
    def inspect(cls, values: Mapping[str, object]) -> tuple[Self, list[GraphgenError]]:
        """A configuration with all values that can be set, and the errors of a constructor call.

        Nested dictionaries are inspected too.
        """
        made = cls.__new__(cls)
        made._begin()
        problems: list[GraphgenError] = []
        made._set_all(values, problems)
        return made, [*problems, *made.problems()]

    def _set_all(
        self, values: Mapping[str, object], problems: list[GraphgenError] | None = None
    ) -> None:
        """Set attributes, each once; errors are raised, or added to ``problems``."""
        names: dict[str, str] = {}
        for name, value in values.items():
            try:
                before = self.given
                row = self._set(name, value, problems)
                if row.name in names:
                    self._same(row.name, before[row.name], (names[row.name], name))
                names[row.name] = name
            except GraphgenError as error:
                if problems is None:
                    raise
                problems.append(error)

    def _same(self, name: str, before: object, spellings: tuple[str, str]) -> None:
        """Refuse two values of one attribute under two names (GG0903)."""
        after = self._given[name]
        if after != before:
            raise GraphgenError(
                "GG0903",
                f"{self.owner}.{spellings[0]} = {_shown(before)} and {spellings[1]} = "
                f"{_shown(after)} are one attribute with two values",
                help=f"give {name} alone",
            )

    def __setattr__(self, name: str, value: object) -> None:
        if self._frozen_by:
            raise GraphgenError(
                "GG0905",
                f"{self.owner}.{name} cannot be set: {self._frozen_by} uses this configuration",
                help="change a copy: copy.deepcopy(config)",
            )
        row = self._set(name, value)
        for error in self._refused([row], CPU):
            raise error

    def __getattr__(self, name: str) -> object:
        if name.startswith("_") or name not in attributes_of(type(self).owner):
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
        return _as_user_type(self.attribute(name), self.value(name))

    def _set(
        self, name: str, value: object, problems: list[GraphgenError] | None = None
    ) -> Attribute:
        """Set an attribute; with ``problems``, a nested dictionary's errors are added to them."""
        try:
            row = self.attribute(name)
        except GraphgenError as error:
            error.what = f"{self.owner}.{name} = {value!r}: {error.what}"
            raise
        try:
            accepted = row.kind.read(value)
        except ValueError:
            raise GraphgenError(
                "GG0902",
                f"{self.owner}.{row.name} = {value!r}: it must be {row.kind.noun}",
                help=f"the default is {default_text(row)}",
            ) from None
        if row.nested and isinstance(accepted, Mapping):
            accepted = _nested(row, cast("Mapping[str, object]", accepted), problems)
        if row.replaces:
            self._renamed[row.name] = row.replaces
            row = self.attribute(row.replaces)
        self._given[row.name] = accepted
        return row

    @classmethod
    def attribute(cls, name: str) -> Attribute:
        """The row of an attribute, by its name or its hyphenated form (GG0901)."""
        rows = attributes_of(cls.owner)
        plain = name.replace("-", "_")
        if plain in rows:
            return rows[plain]
        raise GraphgenError(
            "GG0901",
            f"{cls.owner} has no attribute '{name}'",
            help=did_you_mean(plain, rows) or "see graphgen config --list",
        )

    def value(self, name: str) -> object:
        """The value of an attribute: of its variable, given, or its default, in normal form."""
        row = self.attribute(name)
        if row.environment in self._environment:
            return self._of_environment(row)
        return self._given[row.name] if row.name in self._given else self.default(row.name)

    def _of_environment(self, row: Attribute) -> object:
        text = self._environment[row.environment]
        try:
            return row.kind.read(int(text))
        except (TypeError, ValueError):
            raise GraphgenError(
                "GG0902",
                f"{row.environment} = {text!r}: it must be {row.kind.noun}",
                help=f"unset {row.environment}, or set it to {default_text(row)}",
            ) from None

    def default(self, name: str) -> object:
        """The value of an attribute where it is not given."""
        default = self.attribute(name).default
        return default.value(self) if isinstance(default, Derived) else default

    def __getitem__(self, name: str, /) -> object:
        """:meth:`value`, for the functions of the table."""
        return self.value(name)

    def is_given(self, name: str) -> bool:
        """True for an attribute that somebody set."""
        return name in self._given

    def origin(self, name: str) -> str:
        """The place a value comes from: ``given``, ``default``, ``derived from ...`` or a name of
        an environment variable."""
        row = self.attribute(name)
        if row.environment in self._environment:
            return row.environment
        if row.name in self._given:
            return "given"
        return f"derived: {row.default.text}" if isinstance(row.default, Derived) else "default"

    def leave_derived(self, name: str) -> None:
        """Forget the given value of an attribute if it is the one that follows from others."""
        if name in self._given:
            value = self._given.pop(name)
            if self.default(name) != value:
                self._given[name] = value

    @property
    def given(self) -> Mapping[str, object]:
        """The attributes that were set, in order, in their normal form."""
        return dict(self._given)

    @property
    def frozen(self) -> bool:
        """True once something uses the configuration."""
        return bool(self._frozen_by)

    def rules(self) -> Iterator[GraphgenError]:
        """Impossible combinations beside those of the table (GG0903); for subclasses."""
        return iter(())

    def remarks(self) -> Iterator[str]:
        """Notes beside those of the table; for subclasses."""
        return iter(())

    def _broken(self) -> Iterator[GraphgenError]:
        """The impossible combinations of this configuration (GG0903)."""
        read = Reader(self)
        for rule in _of(RULES, self.owner):
            if rule.broken(read):
                shown = [f"{name} = {_shown(self.value(name))}" for name in rule.attributes]
                others = f" with {' and '.join(shown[1:])}" if shown[1:] else ""
                yield GraphgenError(
                    "GG0903",
                    f"{self.owner}.{shown[0]}{others}: {rule.rule}",
                    help=rule.remedy,
                )

    def _remarks(self) -> Iterator[str]:
        """Attributes that have no effect because of others."""
        read = Reader(self)
        for note in _of(NOTES, self.owner):
            name = note.attributes[0]
            if name in self._given and note.broken(read):
                row, value = self.attribute(name), self.value(name)
                if not row.requests_nothing(value, self.default(name)):
                    yield (
                        f"{self.owner}.{name} = {_shown(value)} has no effect, or not all of it: "
                        f"{note.rule}"
                    )

    def problems(self, target: str = CPU) -> list[GraphgenError]:
        """All that makes this configuration impossible for a target, in the order of the table."""
        rows = attributes_of(self.owner).values()
        missing = [
            GraphgenError(
                "GG0902",
                f"{self.owner}.{row.name} must be given: {row.kind.noun}",
                help=f"give {row.name}, {row.doc}",
            )
            for row in rows
            if row.default is REQUIRED and row.name not in self._given
        ]
        if missing:
            return [*self._refused(rows, target), *missing]
        # Refusals come first: rules about what is refused ask for attributes that do not help.
        return [*self._refused(rows, target), *self._broken(), *self.rules()]

    def check(self, target: str = CPU) -> None:
        """Refuse missing attributes (GG0902), features (GG0904) and combinations (GG0903)."""
        for error in self.problems(target):
            raise error
        for nested in self.nested_configs():
            nested.check(target)

    def _refused(self, rows: Iterable[Attribute], target: str) -> Iterator[GraphgenError]:
        """Requests for features that are not built for a target (GG0904)."""
        for row in rows:
            if row.name not in self._given:
                continue
            value, effect = self.value(row.name), row.effect(target)
            refused = row.unbuilt.get(value, effect) if isinstance(value, str) else effect
            default = self.default(row.name)
            if isinstance(refused, Refused) and not row.requests_nothing(value, default):
                where = "" if target == CPU else f" for {target}"
                yield GraphgenError(
                    "GG0904",
                    f"{self.owner}.{row.name} = {_shown(value)}: "
                    f"{refused.feature} is not built yet{where}",
                    help=refused.remedy,
                )

    def notes(self, target: str = CPU) -> tuple[str, ...]:
        """Remarks to print once: old names, and attributes that have no effect."""
        found = [
            f"{self.owner}.{old} is an old name of {new}" for old, new in self._renamed.items()
        ]
        for name, value in self._given.items():
            row = self.attribute(name)
            effect = row.effect(target)
            if row.environment in self._environment and self.value(name) != value:
                found.append(
                    f"{row.environment}={self._environment[row.environment]} replaces "
                    f"{self.owner}.{name} = {_shown(value)}"
                )
            if isinstance(effect, NoEffect) and not row.requests_nothing(value, self.default(name)):
                found.append(
                    f"{self.owner}.{name} = {_shown(value)} has no effect: {effect.because}"
                )
        found.extend([*self._remarks(), *self.remarks()])
        for nested in self.nested_configs():
            found.extend(nested.notes(target))
        return tuple(found)

    def nested_configs(self) -> list[StrictConfig]:
        """The configurations inside this one."""
        return [value for value in self._given.values() if isinstance(value, StrictConfig)]

    def freeze(self, user: str) -> Self:
        """Check everything, and refuse assignments from now on, to nested configurations too.

        Args:
            user: what uses the configuration, for the error.
        """
        self.check()
        vars(self)["_frozen_by"] = user
        for nested in self.nested_configs():
            nested.freeze(user)
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """A copy that is not frozen."""
        made = type(self).__new__(type(self))
        vars(made).update(copy.deepcopy(vars(self), memo), _frozen_by="")
        return made

    def __copy__(self) -> Self:
        return copy.deepcopy(self)

    def __eq__(self, other: object) -> bool:
        """True for the same attributes: one that only a wider class has counts by its default."""
        if not isinstance(other, StrictConfig):
            return False
        few, all_ = sorted((self, other), key=lambda each: len(attributes_of(each.owner)))
        own = attributes_of(few.owner)
        return own.keys() <= attributes_of(all_.owner).keys() and all(
            all_.value(name) == (few.value(name) if name in own else all_.default(name))
            for name in attributes_of(all_.owner)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self._given.items())
        return f"{type(self).__name__}({inside})"

    @property
    def _given(self) -> dict[str, object]:
        return cast("dict[str, object]", vars(self)["_given"])

    @property
    def _renamed(self) -> dict[str, str]:
        return cast("dict[str, str]", vars(self)["_renamed"])

    @property
    def _environment(self) -> dict[str, str]:
        return cast("dict[str, str]", vars(self)["_environment"])

    @property
    def _frozen_by(self) -> str:
        return cast(str, vars(self)["_frozen_by"])


def config_class(owner: str) -> type[StrictConfig]:
    """The class of configurations with the attributes of ``owner``."""
    if owner not in _CLASSES:
        for module in _HOMES:
            import_module(module)
    return _CLASSES[owner]


def _of(rules: Iterable[CombinationRule], owner: str) -> list[CombinationRule]:
    """The rules of a class and of the class it extends."""
    return [rule for rule in rules if rule.owner in (owner, BASES.get(owner))]


def _nested(
    row: Attribute, values: Mapping[str, object], problems: list[GraphgenError] | None
) -> StrictConfig:
    """A nested configuration of a dictionary; its errors are raised, or added to ``problems``."""
    made_of = config_class(row.nested)
    if problems is None:
        return made_of(**values)
    made, found = made_of.inspect(values)
    problems.extend(found)
    return made


def _as_user_type(row: Attribute, value: object) -> object:
    """A ``torch.dtype`` for element types once the user has imported torch, a list of a tuple."""
    torch = sys.modules.get("torch")
    if row.kind.tag == ELEMENT and torch is not None and isinstance(value, str):
        return getattr(torch, value)
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    """A value for messages: lists as users write them, nested configurations by their name."""
    if isinstance(value, StrictConfig):
        return f"{type(value).__name__}(...)"
    return repr(list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value)


def default_text(row: Attribute) -> str:
    """The default of an attribute in words: a value, or the rule that it follows from."""
    return row.default.text if isinstance(row.default, Derived) else _shown(row.default)
