"""Which names of values somebody chose, and which a printer made up."""

from __future__ import annotations

# What printers call values that nobody has named.
_GENERATED = ("arg", "c", "cst", "iterArg", "values", "indices")


def given_name(name: str) -> str | None:
    """The name of ``%name`` if somebody chose it, ``None`` where a printer did."""
    plain = name[1:]
    if plain.startswith("$") or "#" in plain or plain.isdigit():
        return None
    stem, _, number = plain.partition("_")
    if stem.rstrip("0123456789") in _GENERATED and (not number or number.isdigit()):
        return None
    return plain
