"""Configurations whose attributes are those of the table: checked when set, frozen when used.

An attribute is set by the constructor or by assignment. Both refuse unknown names (GG0901), values
of another kind (GG0902) and features that are not built (GG0904). Rules about several attributes
(GG0903) hold from the construction on, and are checked again when something takes the
configuration, which freezes it: a later assignment is refused (GG0905). A copy is not frozen.
"""

from __future__ import annotations

import copy
import difflib
import sys
from collections.abc import Iterator, Mapping
from typing import ClassVar, Self, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.attributes.attribute import Attribute, Derived, Refused
from graphgen.runtime.aws.attributes.attribute_table import attributes_of
from graphgen.runtime.aws.attributes.value_kinds import DTYPE


class StrictConfig:
    """A configuration with the attributes of the class ``owner`` in the table.

    Attributes:
        owner: name of the class in the table.
    """

    owner: ClassVar[str]

    def __init__(self, **values: object) -> None:
        fields = vars(self)
        fields["_given"] = {}
        fields["_frozen_by"] = ""
        for name, value in values.items():
            self._set(name, value)
        self.check()

    def __setattr__(self, name: str, value: object) -> None:
        if self._frozen_by:
            raise GraphgenError(
                "GG0905",
                f"{self.owner}.{name} cannot be set: {self._frozen_by} uses this configuration",
                help="change a copy: copy.deepcopy(config)",
            )
        self._set(name, value)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_") or name not in attributes_of(type(self).owner):
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")
        return _as_user_type(self.attribute(name), self.value(name))

    def _set(self, name: str, value: object) -> None:
        row = self.attribute(name)
        try:
            accepted = row.kind.accept(value)
        except (TypeError, ValueError):
            raise GraphgenError(
                "GG0902", f"{self.owner}.{row.name} is {value!r}, not {row.kind.text}"
            ) from None
        self._given[row.name] = accepted
        self._refuse(row, accepted)

    def _refuse(self, row: Attribute, value: object) -> None:
        """Refuse a request for a feature that is not built (GG0904)."""
        effect = row.cpu
        if isinstance(effect, Refused) and not row.requests_nothing(value, self._default(row)):
            raise GraphgenError(
                "GG0904",
                f"{self.owner}.{row.name} = {value!r}: {effect.feature} is not built yet",
                help=effect.remedy,
            )

    @classmethod
    def attribute(cls, name: str) -> Attribute:
        """The row of an attribute, by its name or its hyphenated form (GG0901)."""
        rows = attributes_of(cls.owner)
        plain = name.replace("-", "_")
        if plain in rows:
            return rows[plain]
        near = difflib.get_close_matches(plain, rows, 1)
        raise GraphgenError(
            "GG0901",
            f"{cls.owner} has no attribute '{name}'",
            help=f"did you mean {near[0]}?" if near else "see graphgen config --list",
        )

    def value(self, name: str) -> object:
        """The value of an attribute: given, or its default."""
        row = self.attribute(name)
        given = self._given
        return given[row.name] if row.name in given else self._default(row)

    def _default(self, row: Attribute) -> object:
        default = row.default
        return default.value(_Values(self)) if isinstance(default, Derived) else default

    @property
    def given(self) -> Mapping[str, object]:
        """The attributes that were set, in order, in their normal form."""
        return dict(self._given)

    def check(self) -> None:
        """Refuse impossible combinations (GG0903)."""

    def freeze(self, user: str) -> Self:
        """Check the rules, and refuse assignments from now on.

        Args:
            user: what uses the configuration, for the error.
        """
        self.check()
        vars(self)["_frozen_by"] = user
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """A copy that is not frozen."""
        made = type(self).__new__(type(self))
        vars(made).update(_given=copy.deepcopy(self._given, memo), _frozen_by="")
        return made

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self)["_given"] == vars(other)["_given"]

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self._given.items())
        return f"{type(self).__name__}({inside})"

    @property
    def _given(self) -> dict[str, object]:
        return cast("dict[str, object]", vars(self)["_given"])

    @property
    def _frozen_by(self) -> str:
        return cast(str, vars(self)["_frozen_by"])


class _Values(Mapping[str, object]):
    """The values of a configuration by name, for derived defaults."""

    def __init__(self, config: StrictConfig) -> None:
        self._config = config

    def __getitem__(self, name: str) -> object:
        return self._config.value(name)

    def __iter__(self) -> Iterator[str]:
        return iter(attributes_of(self._config.owner))

    def __len__(self) -> int:
        return len(attributes_of(self._config.owner))


def _as_user_type(row: Attribute, value: object) -> object:
    """A ``torch.dtype`` for element types once the user has imported torch, a list of a tuple."""
    torch = sys.modules.get("torch")
    if row.kind is DTYPE and torch is not None and isinstance(value, str):
        return getattr(torch, value)
    return list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value
