"""Preserve attributes of a StableHLO module, its meshes and its functions in ``meta``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from graphgen.ir import Function, Module, attrs_of, tensor
from graphgen.ir.dtype import token
from graphgen.lowering.hlo.annotations import FRONTEND, frontend_map, frontend_text
from graphgen.lowering.hlo.module_annotations import PARTITIONS, REPLICAS
from graphgen.lowering.mlir.mlir_types import string
from graphgen.lowering.mlir.syntax_tree import DialectAttr, MlirAttrs, MlirOp
from graphgen.lowering.stablehlo import shardy
from graphgen.lowering.stablehlo.attribute_notes import MLIR, annotations_of, attribute_texts
from graphgen.lowering.stablehlo.shardy import ShardyMesh

_MESH = "mlir.mesh."
_HLO = "hlo."
# Counts, and what says nothing.
_ELSEWHERE = frozenset(("mhlo.num_partitions", "mhlo.num_replicas", "sym_name"))


def meshes_of(body: Sequence[MlirOp]) -> dict[str, ShardyMesh]:
    """Shardy's meshes by name."""
    found: dict[str, ShardyMesh] = {}
    for node in body:
        mesh = shardy.parse_mesh(node.attrs.text("mesh")) if node.name == "sdy.mesh" else None
        if mesh is not None:
            found[str(node.attrs.get("sym_name"))] = mesh
    return found


def module_notes(attrs: MlirAttrs, body: Sequence[MlirOp]) -> dict[str, str]:
    """The annotations of a module, for its ``meta``."""
    found: dict[str, str] = {}
    count = attrs.get("mhlo.num_partitions", 1)
    if isinstance(count, int) and count > 1:
        found[PARTITIONS] = str(count)
    for key in _ELSEWHERE:
        attrs.get(key)
    found |= annotations_of(attrs, {})
    meshes: list[str] = []
    for node in body:
        if node.name != "sdy.mesh":
            continue
        name = str(node.attrs.get("sym_name"))
        node.attrs.get("mesh")
        meshes.append(f"{name} = #sdy.mesh{node.attrs.text('mesh').removeprefix('#sdy.mesh')}")
        rest = node.attrs.unread()
        if rest:
            pairs = [f"{key} = {text}" for key, text in rest.items()]
            found[f"{_MESH}{name}"] = "{" + ", ".join(pairs) + "}"
    if meshes:
        entries = frontend_map(found) | {shardy.MESHES: "{" + ", ".join(meshes) + "}"}
        found[FRONTEND] = frontend_text(entries)
    return found


def annotate_program(
    function: Function,
    main: MlirOp,
    meshes: Mapping[str, ShardyMesh],
) -> None:
    """Annotate a function, its arguments and its results with their attributes.

    Args:
        function: the function.
        main: it in the text.
        meshes: Shardy's meshes by name.
    """  # fmt: skip
    arguments, results = attribute_dicts(main, "arg_attrs"), attribute_dicts(main, "res_attrs")
    for value, attrs in zip(function.args, arguments, strict=False):
        for key in ("tf.aliasing_output", "jax.buffer_donor"):
            attrs.get(key)
        # Bounds of sizes are noted already.
        value.annotations = attrs_of({**value.annotations, **annotations_of(attrs, meshes)})
    for key in ("sym_name", "sym_visibility", "function_type", "arg_attrs", "res_attrs"):
        main.attrs.get(key)
    found = annotations_of(main.attrs, meshes)
    for index, attrs in enumerate(results):
        attrs.get("jax.result_info")
        found |= _of_result(annotations_of(attrs, meshes), index)
    function.annotations = attrs_of(found)


def attribute_dicts(node: MlirOp, key: str) -> list[MlirAttrs]:
    """The attributes of each argument or result of a function."""
    value = node.attrs.get(key, ())
    items = value if isinstance(value, tuple) else ()
    return [item if isinstance(item, MlirAttrs) else MlirAttrs() for item in items]


def notes_of(node: MlirOp, meshes: Mapping[str, ShardyMesh]) -> Function:
    """The attributes of a function, as the annotations of one that has its arguments alone."""
    scratch = Function("scratch")
    for index in range(len(attribute_dicts(node, "arg_attrs"))):
        scratch.block.add_arg(tensor(token), f"arg{index}")
    annotate_program(scratch, node, meshes)
    return scratch


def is_noted(function: Function) -> bool:
    """True for a function that has annotations, or has them of its arguments."""
    return bool(function.annotations) or any(value.annotations for value in function.args)


def _of_result(annotations: Mapping[str, str], index: int) -> dict[str, str]:
    """The annotations of a result under their names in the function: ``hlo.result0.sharding``."""
    out: dict[str, str] = {}
    for key, text in annotations.items():
        head = MLIR if key.startswith(MLIR) else _HLO
        out[f"{head}result{index}.{key.removeprefix(head)}"] = text
    return out


def result_texts(function: Function, index: int) -> list[tuple[str, str]]:
    """The attributes that a result is written with (GG0401)."""
    found: dict[str, str] = {}
    for head in (MLIR, _HLO):
        start = f"{head}result{index}."
        for key, text in function.annotations.items():
            if key.startswith(start):
                found[head + key.removeprefix(start)] = str(text)
    return attribute_texts(found)


def function_texts(function: Function) -> list[tuple[str, str]]:
    """The attributes of a written program, without its results' attributes."""
    own = {
        key: text
        for key, text in function.annotations.items()
        if not re.match(r"(?:mlir|hlo)\.(?:result\d+|root|parameter)\.", key)
    }
    return attribute_texts(own)


def module_texts(module: Module) -> list[tuple[str, str]]:
    """The attributes that a module is written with.

    Raises:
        GraphgenError: GG0401 for annotations of HLO that StableHLO has no words for.
    """
    meta = module.meta
    partitions = module.stated_number(PARTITIONS, 1)
    ranks = module.stated_number(REPLICAS, 1) if partitions > 1 else module.ranks
    entries = frontend_map(meta)
    entries.pop(shardy.MESHES, None)
    own = {
        key: text
        for key, text in meta.items()
        if key.startswith(MLIR) and not key.startswith(_MESH)
    }
    if entries:
        own[FRONTEND] = frontend_text(entries)
    found = [
        (key, f"{count} : i32")
        for key, count in (("mhlo.num_partitions", partitions), ("mhlo.num_replicas", ranks))
        if count > 1 or key == "mhlo.num_replicas"
    ]
    return found + attribute_texts(own)


def mesh_lines(module: Module) -> list[str]:
    """Shardy's meshes as ops."""
    text = frontend_map(module.meta).get(shardy.MESHES, "")
    found: list[str] = []
    for name, mesh in shardy.named_meshes(text).items():
        attrs = module.meta.get(f"{_MESH}{name}", "")
        shown = name if re.fullmatch(r"[A-Za-z_][\w$.]*", name) else string(name)
        found.append(f"  sdy.mesh @{shown} = {mesh}{' ' + attrs if attrs else ''}")
    return found


_CHANNEL = "hlo.channel_id"
_GLOBAL = "hlo.use_global_device_ids"
# A channel between devices; any other type is kept as it was written.
_HANDLE, _PLAIN_TYPE = "mlir.channel_handle", 1


def channel_notes(attrs: MlirAttrs) -> dict[str, str]:
    """The channel of a collective, and whether its groups name devices of all partitions."""
    found: dict[str, str] = {}
    handle = attrs.get("channel_handle")
    number = handle.fields.get("handle", 0) if isinstance(handle, DialectAttr) else 0
    if isinstance(number, int) and number:
        found[_CHANNEL] = str(number)
        kind = handle.fields.get("type", 0) if isinstance(handle, DialectAttr) else 0
        if kind != _PLAIN_TYPE:
            # HLO has no types of channels.
            found[_HANDLE] = f"#stablehlo.channel_handle<handle = {number}, type = {kind}>"
    if attrs.get("use_global_device_ids") is True:
        found[_GLOBAL] = "true"
    return found


def channel_texts(annotations: Mapping[str, object]) -> list[tuple[str, str]]:
    """The attributes of the channel of a collective among partitions."""
    found: list[tuple[str, str]] = []
    if _CHANNEL in annotations and _HANDLE not in annotations:
        handle = f"handle = {annotations[_CHANNEL]}, type = 1"
        found.append(("channel_handle", f"#stablehlo.channel_handle<{handle}>"))
    if annotations.get(_GLOBAL) == "true":
        found.append(("use_global_device_ids", "unit"))
    return found
