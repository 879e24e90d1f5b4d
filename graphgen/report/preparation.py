"""Differences of two modules beside their programs: interface rows, and the functions they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphgen.ir import Entry, Function, Module, Role

_WEIGHTS = "weights."
# Functions of a row, by the name of its field.
_FIELDS = ("pack", "unpack")


def weight_functions(module: Module) -> list[str]:
    """Names of the functions that prepare weights."""
    return [name for name in module.functions if name.startswith(_WEIGHTS)]


def paired(first: Module, second: Module) -> tuple[list[tuple[Function, Function]], list[str]]:
    """The functions that prepare weights and states in both modules, and those of one alone."""
    mine, theirs = weight_functions(first), weight_functions(second)
    names = [(name, name) for name in mine if name in theirs]
    alone = [name for name in (*mine, *theirs) if not (name in mine and name in theirs)]
    for one, other in paired_rows(first, second):
        if one is None or other is None:
            continue
        pairs = [(one.pack, other.pack), (one.unpack, other.unpack)]
        names += [pair for pair in pairs if all(pair)]
    found = [(first.function(a), second.function(b)) for a, b in dict.fromkeys(names)]
    return found, alone


def paired_rows(first: Module, second: Module) -> list[tuple[Entry | None, Entry | None]]:
    """Rows of one role that go together: by name, the rest in order."""
    found: list[tuple[Entry | None, Entry | None]] = []
    for role in Role:
        mine = {row.name: row for row in first.entries(role)}
        theirs = {row.name: row for row in second.entries(role)}
        found += [(row, theirs[name]) for name, row in mine.items() if name in theirs]
        left = [row for name, row in mine.items() if name not in theirs]
        right = [row for name, row in theirs.items() if name not in mine]
        found += zip(left, right, strict=False)
        found += [(row, None) for row in left[len(right) :]]
        found += [(None, row) for row in right[len(left) :]]
    return found


def interface_differences(first: Module, second: Module) -> list[str]:
    """The differences of the interfaces of two modules and of their meshes, in words.

    A domain that one module alone states is not a difference: dumps cannot hold any.
    """
    found = _of_roles(first.interface, second.interface)
    for one, other in paired_rows(first, second):
        if one is None or other is None:
            row, side = (one, "first") if one is not None else (other, "second")
            if row is not None and not _has_other_role(row, first, second):
                found.append(f"{row.role.value} {row.name} is in the {side} only")
            continue
        changed = [
            (what, a, b)
            for (what, a), (_, b) in zip(_facts(one), _facts(other), strict=True)
            if a != b and not (what == "domain" and "none" in (a, b))
        ]
        name = f"{one.role.value} {one.name}"
        found += [f"{name}: {what} {a} / {b}" for what, a, b in changed]
    if first.mesh != second.mesh:
        found.append(f"mesh {_mesh(first)} / {_mesh(second)}")
    return found


def _of_roles(first: Mapping[str, Entry], second: Mapping[str, Entry]) -> list[str]:
    """Rows of one name and two roles."""
    return [
        f"{name}: {row.role.value} / {second[name].role.value}"
        for name, row in first.items()
        if name in second and second[name].role is not row.role
    ]


def _has_other_role(row: Entry, *modules: Module) -> bool:
    return all(row.name in module.interface for module in modules)


def _facts(row: Entry) -> Sequence[tuple[str, str]]:
    """The fields of a row that are compared; functions are compared as functions."""
    keeps = f"the last {row.last}" if row.last else "all"
    named = [(name, "by a function" if getattr(row, name) else "none") for name in _FIELDS]
    return (
        ("logical", row.logical.text),
        ("physical", row.physical.text),
        *named,
        ("sharding", "none" if row.sharding is None else str(row.sharding)),
        ("positions", keeps),
        ("domain", "none" if row.domain is None else row.domain.text),
    )


def _mesh(module: Module) -> str:
    axes: Iterable[tuple[str, int]] = module.mesh.items()
    return "x".join(f"{name}={size}" for name, size in axes) or "none"
