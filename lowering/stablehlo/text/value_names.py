"""Names of values: those of the author, and those that printers generate."""

from __future__ import annotations

# Stems of the names that printers give to unnamed values.
_GENERATED = ("arg", "c", "cst", "iterArg", "values", "indices")


def author_name(name: str) -> str | None:
    """Return the author's name of ``%name``, or ``None`` where a printer generated it."""
    plain = name[1:]
    if plain.startswith("$") or "#" in plain or plain.isdigit():
        return None
    stem, _, number = plain.partition("_")
    if stem.rstrip("0123456789") in _GENERATED and (not number or number.isdigit()):
        return None
    return plain
