"""All attributes by class, and the classes that inherit those of others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from graphgen.runtime.aws.attributes.attribute import Attribute
from graphgen.runtime.aws.attributes.size_rows import SIZES

ATTRIBUTES: tuple[Attribute, ...] = (*SIZES,)

# The class whose attributes a class has too.
BASES: Mapping[str, str] = {"MoENeuronConfig": "NeuronConfig"}


@cache
def attributes_of(owner: str) -> Mapping[str, Attribute]:
    """The attributes of a class and of the class it extends, by name."""
    inherited = dict(attributes_of(BASES[owner])) if owner in BASES else {}
    return inherited | {row.name: row for row in ATTRIBUTES if row.owner == owner}
