"""Normalization of two modules before they are compared.

A protobuf writes defaults out that a text leaves away, a sharding is a list of devices or a
formula, Shardy's sharding of a result is an attribute in StableHLO and a custom call in HLO, and
each form has facts that another cannot carry. None of these is a difference of the programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Final, cast

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, AttrValue, Function, Module, Op, attrs_of
from graphgen.ir.attrs import EMPTY
from graphgen.json_value import Json, parse_json
from graphgen.lowering.hlo.annotations import (
    FRONTEND,
    PREFIX,
    SHAPE,
    SHARDING,
    decoded_field,
    frontend_map,
    frontend_text,
)
from graphgen.lowering.hlo.module_annotations import MAY_ALIAS, PARTITIONS, REPLICAS
from graphgen.lowering.hlo.subcomputations import in_order_of_use
from graphgen.lowering.hlo_proto.fields import InstructionField as F
from graphgen.lowering.hlo_proto.fields import ModuleField
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.lowering.hlo_text.hlo_sharding import HloSharding, parse_sharding
from graphgen.lowering.in_place import ops_after, replace_op
from graphgen.lowering.manual_sharding import RESULT_SHARDING
from graphgen.lowering.stablehlo.shardy import SHARDING as SHARDY
from graphgen.lowering.stablehlo.shardy import hlo_sharding, meshes_of_module
from graphgen.ops import make_attrs

# Values of an instruction's fields that say nothing, beside 0 and the empty one.
_DEFAULTS: Final = {F.FEATURE_GROUP_COUNT: 1, F.BATCH_GROUP_COUNT: 1, F.CUSTOM_CALL_API_VERSION: 1}
# Facts of a module that some forms have no place for, or fill in by themselves.
_OF_SOME_FORMS: Final = (PARTITIONS, REPLICAS, MAY_ALIAS, "mlir.mesh.")
# Facts of a module that HLO has in one of its forms only, in words: XLA's text leaves away some of
# a protobuf, and a protobuf has no place for the configuration.
_OF_ONE_FORM: Final = {
    PARTITIONS: "num_partitions",
    REPLICAS: "replica_count",
    f"hlo.field_{ModuleField.OUTPUT_SHARDING}": "shardings of results",
    f"hlo.field_{ModuleField.PARAMETER_SHARDINGS}": "shardings of parameters",
    f"hlo.field_{ModuleField.DEVICE_ASSIGNMENT}": "the devices that run it",
}
# graphgen's own copy of attributes that HLO text has and the protobuf has not.
BACKEND_CONFIG: Final = "backend_config"
_TEXT_ATTRIBUTES: Final = "hlo.field_1001"
_FIELD = re.compile(r"hlo\.(?:.*\.)?field_(\d+)$")


def make_comparable(first: Module, second: Module) -> list[str]:
    """Change two modules that were read, so that only their differences differ.

    Returns:
        Facts of one of them that the form of the other does not carry, in words.
    """
    for module in (first, second):
        _normalize(module)
    notes: list[str] = []
    for key, words in _OF_ONE_FORM.items():
        if (key in first.meta) != (key in second.meta):
            text = first.meta.pop(key, "") or second.meta.pop(key, "")
            notes.append(f"{words} {text}" if key in _OF_SOME_FORMS else words)
    if first.meta.get("format") != second.meta.get("format"):
        for key in sorted({*first.meta, *second.meta}):
            if (key in first.meta) != (key in second.meta) and key.startswith(_OF_SOME_FORMS):
                text = first.meta.pop(key, "") or second.meta.pop(key, "")
                notes.append(f"{key.removeprefix(PREFIX)} {text:.60}")
        layouts = sum(_drop_layouts(op) for module in (first, second) for op in _ops(module))
        if layouts:
            notes.append(f"layouts of {layouts} ops")
        notes += _uncarried_results(first, second)
    return notes


def _uncarried_results(first: Module, second: Module) -> list[str]:
    """Leave out what one file says of results where the other says nothing of any.

    HLO without Shardy's custom calls has no place for it but the tuple of the results.
    """
    found: list[str] = []
    sides = [module.programs() for module in (first, second)]
    said = [any(_of_results(each) for each in programs) for programs in sides]
    if said[0] == said[1]:
        return found
    for each in sides[0] if said[0] else sides[1]:
        keys = _of_results(each)
        found += [f"{key.removeprefix(PREFIX)} {each.annotations[key]}" for key in keys]
        kept = {key: text for key, text in each.annotations.items() if key not in keys}
        each.annotations = attrs_of(kept) if kept else EMPTY
    return found


def _of_results(function: Function) -> list[str]:
    return [key for key in function.annotations if re.match(r"hlo\.result\d+\.", key)]


def _ops(module: Module) -> list[Op]:
    return [op for function in module.functions.values() for op in function.block]


def _drop_layouts(op: Op) -> bool:
    """Leave out the layouts of results, which StableHLO has not; sizes that are bounded stay."""
    kept = {
        key: text
        for key, text in op.annotations.items()
        if not key.endswith(SHAPE.removeprefix(PREFIX)) or "<=" in str(text)
    }
    if len(kept) == len(op.annotations):
        return False
    op.annotations = attrs_of(kept) if kept else EMPTY
    return True


def _normalize(module: Module) -> None:
    meshes = meshes_of_module(module)

    def as_hlo(text: str) -> str:
        return hlo_sharding(text, meshes)

    module.meta.pop(_TEXT_ATTRIBUTES, None)
    _count_arguments(module)
    for function in module.functions.values():
        _move_result_shardings(function)
        for value in function.args:
            value.annotations = _plain(value.annotations, as_hlo)
        for op in list(function.block):
            op.annotations = _plain(op.annotations, as_hlo)
            if op.name in ("custom_call", "hlo.opaque"):
                _drop_defaults(op)
            elif op.name == "broadcast_in_dim":
                _split_broadcast(function, op)
            elif op.name == "iota" and op.result.type.rank > 1:
                _split_iota(function, op)
            elif op.name == "convert" and op.operands[0].dtype is op.result.dtype:
                replace_op(function, op, list(op.operands))
        function.annotations = _plain(function.annotations, as_hlo)
        _merge_reshapes(function)


def _count_arguments(module: Module) -> None:
    """Name arguments in what the file says of the whole module by their places."""
    programs = module.programs()
    if MAY_ALIAS not in module.meta or len(programs) != 1:
        return
    places = {value.name: str(place) for place, value in enumerate(programs[0].args)}
    names = module.meta[MAY_ALIAS].split(", ")
    module.meta[MAY_ALIAS] = "arguments " + ", ".join([places.get(name, name) for name in names])


def _plain(annotations: Attrs, as_hlo: Callable[[str], str]) -> Attrs:
    """Annotations with fields decoded, and shardings as lists of devices."""
    if not annotations:
        return annotations
    found: dict[str, str] = {}
    for key, value in annotations.items():
        field = _FIELD.match(key)
        head = key.rpartition(".")[0] + "."
        shown = decoded_field(int(field[1]), bytes.fromhex(str(value))) if field else None
        if shown is None:
            found[key] = str(value)
        else:
            found |= {f"{head}{name}": text for name, text in shown.items()}
    for key in [key for key in found if key.endswith(FRONTEND.removeprefix(PREFIX))]:
        _shardy_as_hlo(found, key, as_hlo)
    for key in [key for key in found if key.endswith(SHARDING.removeprefix(PREFIX))]:
        text = _canonical(found[key])
        found[key] = text
        if text == "{replicated}":
            del found[key]
    for key in [key for key in found if key.endswith(BACKEND_CONFIG)]:
        found[key] = _sorted_json(found[key])
    return attrs_of(dict(sorted(found.items()))) if found else EMPTY


def _sorted_json(text: str) -> str:
    """A JSON object with its keys in order, without what is empty; any other text as it is."""
    try:
        filled = _filled(cast(Json, parse_json(text)))
    except GraphgenError:
        return text
    return json.dumps(filled, sort_keys=True) if isinstance(filled, dict) else text


def _filled(value: Json) -> Json:
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {key: _filled(item) for key, item in value.items()}
    return {key: item for key, item in inner.items() if item not in ([], {}, None)}


def _shardy_as_hlo(found: dict[str, str], key: str, as_hlo: Callable[[str], str]) -> None:
    """Replace Shardy's sharding of a value by HLO's, where one says the same."""
    entries = frontend_map({FRONTEND: found[key]})
    said = as_hlo(entries.get(SHARDY, ""))
    if not said:
        return
    place = key.removesuffix(FRONTEND.removeprefix(PREFIX)) + SHARDING.removeprefix(PREFIX)
    if _canonical(found.get(place, said)) != _canonical(said):
        return
    found[place] = said
    del entries[SHARDY]
    if entries:
        found[key] = frontend_text(entries)
    else:
        del found[key]


def _canonical(text: str) -> str:
    """One spelling of each sharding: the device of each part, and copies counted last."""
    try:
        return _listed(parse_sharding(text)).text
    except GraphgenError:
        return text


def _listed(found: HloSharding) -> HloSharding:
    if found.members:
        return replace(found, members=tuple([_listed(member) for member in found.members]))
    if found.kind == "maximal" and found.order == (0,):
        return replace(found, kind="maximal", devices=(0,), iota=None)
    if found.kind != "devices":
        return found
    copies = found.last_replicated or set(found.last_dims) == {"replicated"}
    if found.last_dims and not copies:
        return replace(found, devices=found.order, iota=None)
    parts = found.parts
    if prod(parts) == 1:
        return HloSharding("replicated", group=found.group)
    each, order = len(found.order) // prod(parts), found.order
    # Copies of a part are a set.
    groups = [sorted(order[n : n + each]) for n in range(0, len(order), each)]
    devices = tuple([device for group in groups for device in group])
    dims = (*parts, each) if each > 1 else parts
    return HloSharding("devices", dims, devices, None, each > 1, (), (), found.group)


def _move_result_shardings(function: Function) -> None:
    """Write shardings of results as annotations of the function."""
    outputs = {value: index for index, (_, value) in enumerate(function.outputs)}
    found: dict[str, AttrValue] = dict(function.annotations.items())
    for op in list(function.block):
        if op.name != "custom_call" or op.attrs.text("target") != RESULT_SHARDING:
            continue
        for key, text in op.annotations.items():
            if op.results[0] in outputs:
                place = outputs[op.results[0]]
                found[f"{PREFIX}result{place}.{key.removeprefix(PREFIX)}"] = text
        replace_op(function, op, list(op.operands))
    if found:
        function.annotations = attrs_of(found)


def _drop_defaults(op: Op) -> None:
    """Leave out the fields of a call that hold their default."""
    attrs: dict[str, AttrValue] = dict(op.attrs.items())
    for key in ("fields", "more"):
        message = Message(bytes.fromhex(op.attrs.text(key)))
        kept = [data for number, data in message.pieces() if not _is_default(message, number)]
        attrs[key] = b"".join(kept).hex()
    if op.name == "hlo.opaque":
        parts = op.attrs.text("regions").split(",")
        attrs["regions"] = ",".join([in_order_of_use(part) for part in parts])
    op.attrs = make_attrs(op.name, attrs)


def _is_default(message: Message, number: int) -> bool:
    value = message.fields[number][-1]
    if isinstance(value, int):
        return value in (0, _DEFAULTS.get(number, 0))
    if number != F.PRECISION:
        return False
    config = message.message(number)
    return config is None or not any(any(config.integers(inner)) for inner in config.fields)


def _split_broadcast(function: Function, op: Op) -> None:
    """Drop dimensions of size 1 before a broadcast, and repeat nothing of size 1 by it.

    XLA's converter writes a reshape where a dimension of size 1 is repeated or added.
    """
    operand, dims, shape = op.operands[0], op.attrs.integers("dimensions"), op.result.shape
    kept = [n for n, size in enumerate(operand.shape) if size != 1]
    if all(shape[dims[n]] == operand.shape[n] for n in kept) and operand.type.rank:
        repeated = [d for d, size in enumerate(shape) if size != 1 and d not in dims]
        repeated += [dims[n] for n in range(len(dims)) if n not in kept and shape[dims[n]] != 1]
        if not repeated and list(dims) == sorted(dims):
            op.name = "reshape"
            op.attrs = make_attrs("reshape", {"shape": shape})
            return
    if len(kept) == len(dims):
        return
    with ops_after(function, op) as b:
        flat = b.emit("reshape", [operand], {"shape": tuple([operand.shape[n] for n in kept])})
    op.set_operands((flat.result,))
    chosen = tuple([dims[n] for n in kept])
    op.attrs = make_attrs(op.name, {"shape": shape, "dimensions": chosen})
    function.block.move_after(op, flat)


def _split_iota(function: Function, op: Op) -> None:
    """Write an iota of several dimensions as a broadcast of one of a single dimension."""
    dim, shape = op.attrs.integer("dimension"), op.result.shape
    with ops_after(function, op) as b:
        line = b.emit(
            "iota", [], {"dtype": op.result.dtype, "shape": (shape[dim],), "dimension": 0}
        )
    op.name = "broadcast_in_dim"
    op.attrs = make_attrs(op.name, {"shape": shape, "dimensions": (dim,)})
    op.set_operands((line.result,))
    function.block.move_after(op, line)


def _merge_reshapes(function: Function) -> None:
    """Have a reshape read what an earlier one read; one to the same shape is its operand."""
    for op in list(function.block):
        if op.name != "reshape":
            continue
        while (source := op.operands[0].producer("reshape")) is not None:
            op.set_operands(source.operands)
        if op.operands[0].type is op.result.type and not op.annotations:
            replace_op(function, op, list(op.operands))
