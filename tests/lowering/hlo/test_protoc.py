"""Our bytes through protoc: the contract line by line, and damage to it that must be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphgen.build import Builder
from graphgen.ir import Function, Module, Role, entry, loc, tensor
from graphgen.ir.dtype import bf16, f32, pred, s32
from graphgen.lowering.hlo import emit_hlo
from tests.oracles import hlo_contract as contract
from tests.oracles.hlo_contract import CHECKS, violations
from tests.oracles.protoc import read


def program() -> tuple[Module, Function]:
    """A rank of two: inputs, a rank, two states, a weight; a truth value and a state leave."""
    module = Module("contract", "target", {"tp": 2})
    rows = (
        (Role.INPUT, "x", tensor(f32, (2, 3))),
        (Role.INPUT, "rank", tensor(s32, (1,))),
        (Role.STATE, "k", tensor(f32, (2, 3))),
        (Role.STATE, "v", tensor(bf16, (4, 3))),
        (Role.PARAM, "w", tensor(f32, (3, 3))),
        (Role.OUTPUT, "y", tensor(f32, (2, 3))),
        (Role.OUTPUT, "same", tensor(pred, (2, 3))),
        (Role.OUTPUT, "given", tensor(f32, (2, 3))),
    )
    module.interface = {name: entry(role, name, type_) for role, name, type_ in rows}
    function = module.add(Function("decode", "decode"))
    x, rank, k, v, w = [
        function.block.add_arg(type_, name) for role, name, type_ in rows if role != Role.OUTPUT
    ]
    with Builder(function, loc=loc("model.py", 7, "layers.0.mlp", ("legalize",))) as b:
        y = b.all_reduce(b.dot_general(x, w, ([1], [0])), [[0, 1]], "add")
        same = b.compare(y, x, "EQ")
        row = b.broadcast_in_dim(b.convert(b.reduce(y, [0], "maximum"), bf16), (1, 3), [1])
        new_v = b.op(
            "scatter", v, b.reshape(rank, (1, 1)), row,
            update_window_dims=(1,), inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
        )  # fmt: skip
        pairs = [("y", y), ("same", same), ("given", x), ("k", k + y), ("v", new_v)]
    function.outputs = pairs
    return module, function


def emitted() -> Any:
    """What protoc reads of it."""
    return read(emit_hlo(*program()))


def test_every_line_of_the_contract_is_checked():
    assert len(CHECKS) == 21


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_emitted_keeps_the_contract(name: str):
    assert list(CHECKS[name](emitted())) == []


def test_one_output_and_its_alias():
    module, function = program()
    function.outputs = list(function.outputs)[3:4]
    found = read(emit_hlo(module, function))
    assert violations(found) == {}
    assert list(found.input_output_alias.entries[0].output_shape_index) == []


Mutation = Callable[[Any], None]


def instruction(module: Any, opcode: str, where: int = 0) -> Any:
    return [item for item in contract.every(module) if item.opcode == opcode][where]


def swap(module: Any, first: int, second: int) -> None:
    """Exchange two computations."""
    items = list(module.computations)
    items[first], items[second] = items[second], items[first]
    copies = [type(item).FromString(item.SerializeToString()) for item in items]
    del module.computations[:]
    module.computations.extend(copies)


def last(module: Any) -> Any:
    return contract.root(contract.entry(module))


def set_(of: Callable[[Any], Any], **values: object) -> Mutation:
    """A mutation that sets fields of one message."""

    def mutate(module: Any) -> None:
        for key, value in values.items():
            setattr(of(module), key, value)

    return mutate


def bare_parameter(module: Any) -> None:
    copied = instruction(module, "copy", -1)
    root = last(module)
    root.operand_ids[list(root.operand_ids).index(copied.id)] = copied.operand_ids[0]


def wide_ids(module: Any) -> None:
    for computation in module.computations:
        for item in computation.instructions:
            item.id |= computation.id << 32
            item.operand_ids[:] = [number | computation.id << 32 for number in item.operand_ids]
        computation.root_id |= computation.id << 32


def unread_state(module: Any) -> None:
    given = contract.parameters(module)
    for item in contract.every(module):
        if item.opcode == "add" and given[2].id in item.operand_ids:
            item.operand_ids[:] = [given[0].id if i == given[2].id else i for i in item.operand_ids]


def groups_in_87(module: Any) -> None:
    item = instruction(module, "all-reduce")
    item.collective_device_list.replica_groups.add().replica_ids.extend([0, 1])
    del item.replica_groups[:]


def states_first(module: Any) -> None:
    root = last(module)
    root.operand_ids[:] = [*root.operand_ids[3:], *root.operand_ids[:3]]
    for index, item in enumerate(module.input_output_alias.entries):
        item.output_shape_index[:] = [index]


def states_crossed(module: Any) -> None:
    first, second = module.input_output_alias.entries
    first.parameter_number, second.parameter_number = 3, 2


def reversed_parameters(module: Any) -> None:
    for item in contract.parameters(module):
        item.parameter_number = 4 - item.parameter_number


def entry_of(module: Any) -> Any:
    return contract.entry(module)


def dot(module: Any) -> Any:
    return instruction(module, "dot")


def all_reduce(module: Any) -> Any:
    return instruction(module, "all-reduce")


def first_entry(module: Any) -> Any:
    return module.input_output_alias.entries[0]


# What is done to the module, and the line of the contract that must notice.
MUTATIONS: dict[str, tuple[Mutation, str]] = {
    "the entry before its reducers": (lambda m: swap(m, 0, -1), "module-fields"),
    "64-bit ids, as newer jaxlibs write them": (wide_ids, "instruction-ids"),
    "an id twice": (set_(dot, id=1), "instruction-ids"),
    "a gap in the ids": (lambda m: m.computations[-1].instructions.add(id=4000), "instruction-ids"),
    "no root": (set_(entry_of, root_id=4000), "computation-ids"),
    "an operand that is not there": (
        lambda m: dot(m).operand_ids.append(4000), "computation-ids"
    ),
    "a computation that is not there": (
        lambda m: all_reduce(m).called_computation_ids.append(77), "computation-ids"
    ),
    "an entry of another name": (
        lambda m: setattr(m, "entry_computation_name", "main"), "entry-is-named"
    ),
    "no entry id": (lambda m: m.ClearField("entry_computation_id"), "entry-is-named"),
    "no host program shape": (lambda m: m.ClearField("host_program_shape"), "entry-is-named"),
    "no parameter names in a program shape": (
        lambda m: entry_of(m).program_shape.ClearField("parameter_names"), "entry-is-named"
    ),
    "a module without a name": (lambda m: m.ClearField("name"), "module-name"),
    "a column-major layout": (
        lambda m: dot(m).shape.layout.minor_to_major.reverse(), "layouts"
    ),
    "no tail padding": (
        lambda m: dot(m).shape.layout.ClearField("tail_padding_alignment_in_elements"), "layouts"
    ),
    "a layout in the program shape": (
        lambda m: m.host_program_shape.parameters[0].layout.minor_to_major.extend([1, 0]),
        "layouts",
    ),
    "a dynamic dimension": (
        lambda m: dot(m).shape.is_dynamic_dimension.__setitem__(0, True), "dynamic-dimensions"
    ),
    "an element type of no device": (
        lambda m: setattr(dot(m).shape, "element_type", 12), "scalars"
    ),
    "parameters out of order": (reversed_parameters, "parameter-numbers"),
    "a parameter without its name": (
        lambda m: contract.parameters(m)[0].ClearField("frontend_attributes"), "parameter-names"
    ),
    "outputs without names": (
        lambda m: last(m).ClearField("frontend_attributes"), "root-of-outputs"
    ),
    "an output that is a parameter": (bare_parameter, "root-of-outputs"),
    "an output of a type the runtime has not": (
        lambda m: setattr(instruction(m, "compare").shape, "element_type", 17), "output-types"
    ),
    "an alias that need not be": (set_(first_entry, kind=1), "aliases"),
    "an alias of another shape": (set_(first_entry, parameter_number=4), "aliases"),
    "states before the user's outputs": (states_first, "alias-order"),
    "states in another order": (states_crossed, "alias-order"),
    "a state nobody reads": (unread_state, "aliased-is-read"),
    "an op without metadata": (lambda m: dot(m).ClearField("metadata"), "metadata"),
    "an op without a line": (lambda m: dot(m).metadata.ClearField("source_line"), "metadata"),
    "a path of one machine": (
        lambda m: setattr(dot(m).metadata, "source_file", f"/{m.name}/model.py"), "metadata"
    ),
    "a sharding": (lambda m: setattr(dot(m).sharding, "type", 1), "no-sharding"),
    "a channel": (set_(all_reduce, channel_id=1), "collectives"),
    "global device ids": (set_(all_reduce, use_global_device_ids=True), "collectives"),
    "no replica groups": (lambda m: all_reduce(m).ClearField("replica_groups"), "collectives"),
    "groups of several sizes": (
        lambda m: all_reduce(m).replica_groups.add().replica_ids.append(2), "collectives"
    ),
    "groups in field 87": (groups_in_87, "group-encoding"),
    "an API version": (set_(dot, custom_call_api_version=2), "custom-call-version"),
    "a schedule": (
        lambda m: m.schedule.sequences[1].instruction_ids.append(1), "no-schedule"
    ),
    "a fusion": (set_(dot, fusion_kind="kLoop"), "no-schedule"),
    "something asynchronous": (set_(all_reduce, opcode="all-reduce-start"), "no-schedule"),
}  # fmt: skip


def test_there_is_damage_to_every_line():
    assert len(MUTATIONS) >= 30
    assert {name for _, name in MUTATIONS.values()} == set(CHECKS)


@pytest.mark.parametrize("what", MUTATIONS)
def test_damage_is_seen(what: str):
    mutate, name = MUTATIONS[what]
    module = emitted()
    before = module.SerializeToString()
    mutate(module)
    assert module.SerializeToString() != before
    assert name in violations(module)
