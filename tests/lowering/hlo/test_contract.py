"""What an emitted HloModuleProto looks like, point by point of what neuronx-cc is given by AWS."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Function, Module, Role, dtype, entry, loc, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.hlo_proto.fields import (
    AliasField,
    ComputationField,
    InstructionField,
    LayoutField,
    ModuleField,
    ProgramShapeField,
    ShapeField,
)
from graphgen.lowering.hlo_proto.wire import Message
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from tests.oracles import xla_hlo


def step(outputs: int = 2) -> tuple[Module, Function]:
    """A program of one rank of two, with a state, a rank and a weight."""
    module = Module("two ranks", "target", {"tp": 2})
    rows = (
        (Role.INPUT, "x", tensor(f32, (2, 3))),
        (Role.INPUT, "rank", tensor(s32, (1,))),
        (Role.PARAM, "w", tensor(f32, (3, 3))),
        (Role.STATE, "cache", tensor(f32, (2, 3))),
        (Role.OUTPUT, "y", tensor(f32, (2, 3))),
        (Role.OUTPUT, "seen", tensor(f32, (2, 3))),
    )
    module.interface = {name: entry(role, name, type_) for role, name, type_ in rows}
    function = module.add(Function("decode", "decode"))
    values = [
        function.block.add_arg(type_, name) for role, name, type_ in rows if role != Role.OUTPUT
    ]
    x, _, w, cache = values
    with Builder(function, loc=loc("model.py", 7, "layers.0.mlp", ("legalize",))) as b:
        y = b.all_reduce(b.dot_general(x, w, ([1], [0])), [[0, 1]], "add")
        new = cache + y
    pairs = [("y", y), ("cache", new), ("seen", cache)]
    function.outputs = pairs[: outputs or 3] if outputs != 1 else pairs[1:2]
    return module, function


def instructions(proto: bytes) -> list[Message]:
    """Every instruction of the module, in the order of the file."""
    return [
        instruction
        for computation in Message(proto).messages(ModuleField.COMPUTATIONS)
        for instruction in computation.messages(ComputationField.INSTRUCTIONS)
    ]


def entry_of(proto: bytes) -> Message:
    module = Message(proto)
    wanted = module.integer(ModuleField.ENTRY_ID)
    (found,) = [
        c for c in module.messages(ModuleField.COMPUTATIONS)
        if c.integer(ComputationField.ID) == wanted
    ]  # fmt: skip
    return found


def test_the_whole_text(golden: Callable[[str, str], None]):
    golden("lowering/step.hlo.txt", xla_hlo.parsed(emit_hlo(*step())))


def test_ids_are_dense_unique_and_fit_in_32_bits():
    ids = [item.integer(InstructionField.ID) for item in instructions(emit_hlo(*step()))]
    assert ids == list(range(1, len(ids) + 1))


def test_callees_come_first_and_references_point_at_what_is_there():
    module = Message(emit_hlo(*step()))
    seen: set[int] = set()
    for computation in module.messages(ModuleField.COMPUTATIONS):
        body = computation.messages(ComputationField.INSTRUCTIONS)
        known: set[int] = set()
        for item in body:
            assert known.issuperset(item.integers(InstructionField.OPERAND_IDS))
            assert seen.issuperset(item.integers(InstructionField.CALLED_IDS))
            known.add(item.integer(InstructionField.ID))
        assert computation.integer(ComputationField.ROOT_ID) in known
        seen.add(computation.integer(ComputationField.ID))
    assert module.integer(ModuleField.ENTRY_ID) == max(seen)


def test_the_module_says_what_it_is_from_outside():
    module = Message(emit_hlo(*step()))
    assert module.text(ModuleField.NAME) == "two ranks"
    assert module.text(ModuleField.ENTRY_NAME) == "decode"
    shapes = [module.message(ModuleField.PROGRAM_SHAPE)] + [
        computation.message(ComputationField.PROGRAM_SHAPE)
        for computation in module.messages(ModuleField.COMPUTATIONS)
    ]
    for shape in shapes:
        assert shape is not None
        parameters = shape.messages(ProgramShapeField.PARAMETERS)
        assert len(shape.texts(ProgramShapeField.PARAMETER_NAMES)) == len(parameters)
        for type_ in [*parameters, *shape.messages(ProgramShapeField.RESULT)]:
            assert not type_.has(ShapeField.LAYOUT)


def test_every_array_has_its_layout_and_no_dynamic_dimension():
    proto = emit_hlo(*step())
    arrays: list[Message] = []
    for item in instructions(proto):
        shape = item.message(InstructionField.SHAPE)
        assert shape is not None
        arrays += shape.messages(ShapeField.TUPLE_SHAPES) or [shape]
    for array in arrays:
        dims = array.integers(ShapeField.DIMENSIONS)
        layout = array.message(ShapeField.LAYOUT)
        assert layout is not None
        order = layout.integers(LayoutField.MINOR_TO_MAJOR)
        assert all(a > b for a, b in pairwise(order))
        assert len(order) == len(dims)
        assert layout.integer(LayoutField.TAIL_PADDING) == 1
        assert array.integers(ShapeField.IS_DYNAMIC) == (0,) * len(dims)


def test_parameters_are_numbered_and_named():
    body = entry_of(emit_hlo(*step())).messages(ComputationField.INSTRUCTIONS)
    parameters = [p for p in body if p.text(InstructionField.OPCODE) == "parameter"]
    numbers = [p.integer(InstructionField.PARAMETER_NUMBER) for p in parameters]
    assert numbers == [0, 1, 2, 3]


def test_one_output_is_no_tuple_and_its_alias_names_no_index():
    proto = emit_hlo(*step(1))
    text = xla_hlo.parsed(proto)
    assert "input_output_alias={ {}: (3, {}, must-alias) }" in text
    assert "ROOT %add.2 = f32[2,3]{1,0} add(%cache, %all-reduce.1), frontend_attributes={" in text
    assert 'neff_output_names="cache"' in text


def test_an_output_that_is_a_parameter_is_copied():
    text = xla_hlo.parsed(emit_hlo(*step(3)))
    assert "%seen.out = f32[2,3]{1,0} copy(%cache)" in text
    assert "tuple(%all-reduce.1, %add.2, %seen.out)" in text


def test_a_single_output_that_is_a_parameter_is_copied():
    module = Module("m", "target")
    function = module.add(Function("f"))
    function.outputs = [("y", function.block.add_arg(tensor(f32, (2,)), "x"))]
    (root,) = [
        line for line in xla_hlo.parsed(emit_hlo(module, function)).splitlines() if "ROOT" in line
    ]
    assert 'copy(%x), frontend_attributes={neff_output_names="y"}' in root


def test_a_program_that_gives_nothing_has_an_empty_tuple():
    module = Module("m", "target")
    function = module.add(Function("f"))
    function.block.add_arg(tensor(f32, (2,)), "x")
    assert "ROOT %outputs = () tuple()" in xla_hlo.parsed(emit_hlo(module, function))


def test_aliases_must_be():
    alias = Message(emit_hlo(*step())).message(ModuleField.ALIAS)
    assert alias is not None
    (only,) = alias.messages(AliasField.ENTRIES)
    assert only.integers(AliasField.OUTPUT_INDEX) == (1,)
    assert only.integer(AliasField.PARAMETER) == 3
    assert only.integer(AliasField.KIND) == 2


def test_collectives_list_their_groups_and_have_no_channel():
    found = [
        item for item in instructions(emit_hlo(*step()))
        if item.text(InstructionField.OPCODE) == "all-reduce"
    ]  # fmt: skip
    (all_reduce,) = found
    groups = all_reduce.messages(InstructionField.REPLICA_GROUPS)
    assert [group.integers(1) for group in groups] == [(0, 1)]
    for number in (
        InstructionField.COLLECTIVE_DEVICE_LIST,
        InstructionField.CHANNEL_ID,
        InstructionField.USE_GLOBAL_DEVICE_IDS,
    ):
        assert not all_reduce.has(number)


def test_every_instruction_says_where_it_comes_from():
    for item in instructions(emit_hlo(*step())):
        metadata = item.message(InstructionField.METADATA)
        assert metadata is not None
        assert metadata.text(1)
        assert metadata.text(2)


def test_nothing_of_a_machine_or_a_moment_is_in_the_bytes():
    assert emit_hlo(*step()) == emit_hlo(*step())


@pytest.mark.parametrize("tp", [1, 2])
def test_a_mini_model_on_its_ranks(tp: int):
    module = build(known_shape("smollm2-135m"), dtype("f32"), mini=True)
    run_pipeline(module, default(CompileConfig(batch=(1,), context=(16,), tokens=(8,), tp=tp)))
    for function in module.programs():
        text = xla_hlo.parsed(emit_hlo(module, function))
        assert len(re.findall("must-alias\\)", text)) == len(module.entries(Role.STATE))
        assert ("all-reduce" in text) == (tp > 1)
        assert np.all([f'"{value.name}' in text for value in function.args])
