"""Relations as people write them: ``logits=take{dim=1,map=[0,0,1]}|shard{-,tp}``.

=================================  ==============================================================
``equal``                          the same value, on every rank
``take{dim=1,map=[2,0,-1]}``       along dim 1 element i is the other's element map[i]; -1 is zero
``shard{-,tp}``                    each rank has its part; an axis or ``-`` a dimension
``partial{tp}``                    the other's value is the sum over the axis
``quantized{scale=0.5}``           the other's value is about this one times the scale: a number,
                                   a list, FILE.npz:NAME, or the name of an input or output, with
                                   ``dims=[0]``, the dimensions those of the scale are
``dont_care{mask=[0,0,1]}``        equal where the mask is 0; a list, or FILE.npz:NAME
=================================  ==============================================================

``A|B`` is one after the other, from the first program's value to the second's. ``@`` stands for the
only axis of the mesh.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Literal, dtype
from graphgen.ir.sharding import parse_sharding
from graphgen.json_value import parse_json
from graphgen.passes.core.relation import (
    EQUAL,
    Chain,
    DontCare,
    Partial,
    Quantized,
    Relation,
    Sharded,
    Take,
)

# Gives the array that FILE.npz:NAME names.
Load = Callable[[str, str], Array]

_STEP = re.compile(r"\s*(\w+)\s*(?:\{([^{}]*)\})?\s*")
_KEY = re.compile(r"\s*(\w+)\s*=\s*(\[.*?\](?=\s*(?:,\s*\w+\s*=|$))|[^,\[\]]+?)\s*(?:,|$)")
_HELP = "write e.g. take{dim=1,map=[0,0,1]}, shard{-,tp}, partial{tp}, quantized{scale=0.5}"


def parse_relation(text: str, load: Load) -> tuple[str, Relation]:
    """The name and the relation in ``NAME=RELATION``.

    Args:
        text: as on the command line.
        load: reads the array of a file.

    Raises:
        GraphgenError: GG0302 for what it cannot read, and what ``load`` raises.
    """
    name, found, rest = text.partition("=")
    if not found or not name.strip():
        raise _unread(text, "write NAME=RELATION")
    steps = [_step(item, load) for item in rest.split("|")]
    return name.strip(), steps[0] if len(steps) == 1 else Chain(tuple(steps))


def _unread(text: str, help: str = _HELP) -> GraphgenError:
    return GraphgenError("GG0302", f"cannot read the relation '{text.strip()}'", help=help)


def _step(text: str, load: Load) -> Relation:
    found = _STEP.fullmatch(text)
    if not found:
        raise _unread(text)
    kind, inner = found[1], (found[2] or "").strip()
    if kind == "equal" and not inner:
        return EQUAL
    if kind == "shard" and inner:
        return Sharded(parse_sharding("{" + re.sub(r"\s", "", inner) + "}"))
    if kind == "partial" and re.fullmatch(r"\w+|@", inner):
        return Partial(inner)
    if kind in ("take", "quantized", "dont_care"):
        return _with_options(kind, _options(text, inner), text, load)
    raise _unread(text)


def _options(text: str, inner: str) -> dict[str, str]:
    options: dict[str, str] = {}
    at = 0
    while at < len(inner):
        found = _KEY.match(inner, at)
        if not found or found[1] in options:
            raise _unread(text)
        options[found[1]] = found[2]
        at = found.end()
    return options


_WANTED = {"take": {"dim", "map"}, "quantized": {"scale", "dims"}, "dont_care": {"mask"}}


def _with_options(kind: str, options: dict[str, str], text: str, load: Load) -> Relation:
    needed = _WANTED[kind] - {"dims"}
    if not needed <= options.keys() <= _WANTED[kind]:
        raise _unread(text, f"{kind} takes {', '.join(sorted(_WANTED[kind]))}")
    if kind == "take":
        return Take(_integers(text, f"[{options['dim']}]")[0], _integers(text, options["map"]))
    if kind == "quantized":
        dims = _integers(text, options.get("dims", "[]"))
        return Quantized(_scale(text, options["scale"], load), dims)
    mask = _array(text, options["mask"], load)
    if mask is None:
        raise _unread(text, "a mask is a list of 0 and 1, or FILE.npz:NAME")
    return DontCare(_literal(mask != 0, "pred"), options["mask"])


def _integers(text: str, value: str) -> tuple[int, ...]:
    found = re.fullmatch(r"\[\s*(-?\d+(?:\s*,\s*-?\d+)*)?\s*\]", value)
    if not found:
        raise _unread(text)
    return tuple(int(item) for item in (found[1] or "").split(",") if item.strip())


def _scale(text: str, value: str, load: Load) -> float | str | Literal:
    array = _array(text, value, load)
    if array is not None:
        return _literal(array, "f64")
    try:
        return float(value)
    except ValueError:
        return value


def _array(text: str, value: str, load: Load) -> Array | None:
    """A list of numbers, or an array of a file; ``None`` for anything else."""
    if value.startswith("["):
        try:
            return np.asarray(parse_json(value), np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise _unread(text) from error
    file, found, name = value.rpartition(":")
    return load(file, name) if found else None


def _literal(array: Array, kind: str) -> Literal:
    element = dtype(kind)
    stored = array.astype(np.bool_ if kind == "pred" else np.float64)
    return Literal(element, array.shape, stored.tobytes())
