"""The contract of a module given to neuronx-cc, a check a line, over protoc's reading of the bytes.

Each check yields what is wrong; none sees our own reader or writer. Evidence is what AWS's open
sources write and what its compiled dumps hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.oracles.protoc import unknown_fields

INT32_MAX = 2**31 - 1
MUST_ALIAS = 2
PRED, TUPLE = 1, 13
# The element types a Neuron runtime takes and gives: no tuples, tokens, complex or 64-bit floats.
ARRAYS = frozenset((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 19, 20, 28))
COLLECTIVES = frozenset(
    ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
)
# Instructions with no line of the user's: they stand for the interface.
INTERFACE = frozenset(("parameter", "tuple", "copy"))

Check = Callable[[Any], Iterator[str]]
CHECKS: dict[str, Check] = {}


def line(check: Check) -> Check:
    """Enter a check under its name."""
    CHECKS[check.__name__.replace("_", "-")] = check
    return check


def violations(module: Any) -> dict[str, list[str]]:
    """What each check finds, where it finds anything."""
    found = {name: list(check(module)) for name, check in CHECKS.items()}
    return {name: items for name, items in found.items() if items}


def every(module: Any) -> Iterator[Any]:
    """All instructions."""
    for computation in module.computations:
        yield from computation.instructions


def entry(module: Any) -> Any:
    """The entry computation, ``None`` where it is not there."""
    wanted = module.entry_computation_id
    return next((item for item in module.computations if item.id == wanted), None)


def root(computation: Any) -> Any:
    """The root instruction, ``None`` where it is not there."""
    wanted = computation.root_id
    return next((item for item in computation.instructions if item.id == wanted), None)


def parameters(module: Any) -> list[Any]:
    """The entry's parameters as they stand."""
    computation = entry(module)
    return [i for i in computation.instructions if i.opcode == "parameter"] if computation else []


def arrays(shape: Any) -> Iterator[Any]:
    """The arrays of a shape."""
    if shape.element_type == TUPLE:
        for member in shape.tuple_shapes:
            yield from arrays(member)
    else:
        yield shape


def outputs(module: Any) -> list[Any]:
    """The instructions whose values leave the program."""
    computation = entry(module)
    last = root(computation) if computation else None
    if last is None or last.opcode != "tuple":
        return [last] if last is not None else []
    by_id = {item.id: item for item in computation.instructions}
    return [by_id[number] for number in last.operand_ids if number in by_id]


def entries(module: Any) -> list[tuple[int, int]]:
    """Output and parameter of each alias."""
    return [
        (item.output_shape_index[0] if item.output_shape_index else 0, item.parameter_number)
        for item in module.input_output_alias.entries
    ]


def _plain(shape: Any) -> tuple[int, tuple[int, ...]]:
    return shape.element_type, tuple(shape.dimensions)


@line
def module_fields(module: Any) -> Iterator[str]:
    """Computations before their callers; nothing the schema does not know."""
    seen: set[int] = set()
    for computation in module.computations:
        for item in computation.instructions:
            if not seen.issuperset(item.called_computation_ids):
                yield f"{item.name} calls what comes behind it"
            if unknown_fields(item):
                yield f"{item.name} has fields of no known number"
        seen.add(computation.id)
    if unknown_fields(module):
        yield "the module has fields of no known number"


@line
def instruction_ids(module: Any) -> Iterator[str]:
    """Dense, unique in the module, in 32 bits."""
    ids = [item.id for item in every(module)]
    if any(not 0 < number <= INT32_MAX for number in ids):
        yield "an id does not fit into 31 bits, or is 0"
    if len(set(ids)) != len(ids):
        yield "an id is there twice"
    elif sorted(ids) != list(range(min(ids), min(ids) + len(ids))):
        yield "ids have gaps"


@line
def computation_ids(module: Any) -> Iterator[str]:
    """Unique, the entry's last; what is referred to is there, and operands come before."""
    ids = [item.id for item in module.computations]
    if len(set(ids)) != len(ids):
        yield "two computations have one id"
    if ids and module.entry_computation_id != ids[-1]:
        yield "the entry does not come last"
    for computation in module.computations:
        here: set[int] = set()
        if root(computation) is None:
            yield f"{computation.name} has no root"
        for item in computation.instructions:
            if not here.issuperset([*item.operand_ids, *item.control_predecessor_ids]):
                yield f"{item.name} reads what is not before it"
            if not set(ids).issuperset(item.called_computation_ids):
                yield f"{item.name} calls what is not there"
            here.add(item.id)


@line
def entry_is_named(module: Any) -> Iterator[str]:
    """Name, id and shape of the entry, and the shape of each computation, are set and agree."""
    computation = entry(module)
    if computation is None:
        yield "no computation has the entry's id"
        return
    if not module.entry_computation_name or module.entry_computation_name != computation.name:
        yield "the entry is called otherwise"
    for item, shape in [
        (computation, module.host_program_shape),
        *[(each, each.program_shape) for each in module.computations],
    ]:
        given = [i for i in item.instructions if i.opcode == "parameter"]
        given.sort(key=lambda i: i.parameter_number)
        if [_plain(i.shape) for i in given] != [_plain(part) for part in shape.parameters]:
            yield f"the shape of {item.name} has other parameters"
        if len(shape.parameter_names) != len(given):
            yield f"the shape of {item.name} names {len(shape.parameter_names)} parameters"
        last = root(item)
        result = list(map(_plain, arrays(shape.result)))
        if last is not None and list(map(_plain, arrays(last.shape))) != result:
            yield f"the shape of {item.name} has another result"


@line
def module_name(module: Any) -> Iterator[str]:
    """It shows in logs and cache folders."""
    if not module.name:
        yield "the module has no name"


@line
def layouts(module: Any) -> Iterator[str]:
    """Descending on every array of an instruction; none in program shapes."""
    for item in every(module):
        for array in arrays(item.shape):
            order = list(array.layout.minor_to_major)
            if order != list(reversed(range(len(array.dimensions)))):
                yield f"{item.name} has the layout {order}"
            if array.layout.tail_padding_alignment_in_elements != 1:
                yield f"{item.name} has no tail padding of 1"
    for shape in [module.host_program_shape, *[c.program_shape for c in module.computations]]:
        for part in [*shape.parameters, *arrays(shape.result)]:
            if part.HasField("layout"):
                yield "a program shape has a layout"


@line
def dynamic_dimensions(module: Any) -> Iterator[str]:
    """Said of each dimension, and false (NCC_EMOD025)."""
    for item in every(module):
        for array in arrays(item.shape):
            marks = list(array.is_dynamic_dimension)
            if any(marks) or len(marks) != len(array.dimensions):
                yield f"{item.name}: dynamic dimensions {marks}"


@line
def scalars(module: Any) -> Iterator[str]:
    """An element type, a layout of tail padding alone, no dimensions, no size below one."""
    for item in every(module):
        for array in arrays(item.shape):
            if array.element_type not in ARRAYS:
                yield f"{item.name} has element type {array.element_type}"
            if not array.HasField("layout"):
                yield f"{item.name} has no layout"
            if any(size < 0 for size in array.dimensions):
                yield f"{item.name} has a negative dimension"


@line
def parameter_numbers(module: Any) -> Iterator[str]:
    """From 0 on, each once, in order."""
    numbers = [item.parameter_number for item in parameters(module)]
    if numbers != list(range(len(numbers))):
        yield f"parameters are numbered {numbers}"


@line
def parameter_names(module: Any) -> Iterator[str]:
    """Each says what the runtime calls it; an aliased one that it must alias."""
    aliased = {parameter for _, parameter in entries(module)}
    names: list[str] = []
    for item in parameters(module):
        name = item.frontend_attributes.map.get("neff_input_names", "")
        if not name:
            yield f"{item.name} has no neff_input_names"
        if name.endswith(".must_alias_input") != (item.parameter_number in aliased):
            yield f"{name}: the suffix of an aliased parameter does not go with the alias"
        names.append(name)
    if len(set(names)) != len(names):
        yield "two parameters have one name"


@line
def root_of_outputs(module: Any) -> Iterator[str]:
    """A tuple where there are several; named; none is a bare parameter."""
    computation = entry(module)
    last = root(computation) if computation else None
    if last is None:
        yield "there is no root"
        return
    names = last.frontend_attributes.map.get("neff_output_names", "")
    found = outputs(module)
    if len(found) == 1 and last.opcode == "tuple":
        yield "one output stands in a tuple"
    if found and len(names.split(",")) != len(found):
        yield f"{len(found)} outputs are called {names!r}"
    if len(set(names.split(","))) != len(names.split(",")):
        yield "two outputs have one name"
    for item in found:
        if item.opcode == "parameter":
            yield f"the output {item.name} is a bare parameter"


@line
def output_types(module: Any) -> Iterator[str]:
    """Arrays of what the runtime can hand back; PRED, which it hands back as bytes, included."""
    for item in outputs(module):
        if item.shape.element_type not in ARRAYS:
            yield f"the output {item.name} has element type {item.shape.element_type}"


@line
def aliases(module: Any) -> Iterator[str]:
    """A state's output index (none where the root is not a tuple), its parameter, MUST_ALIAS."""
    found, given = outputs(module), parameters(module)
    single = len(found) == 1
    for item in module.input_output_alias.entries:
        index, number = list(item.output_shape_index), item.parameter_number
        if item.kind != MUST_ALIAS:
            yield f"parameter {number} may alias, but need not"
        if len(index) != (0 if single else 1) or item.parameter_shape_index:
            yield f"parameter {number} aliases output {index}"
            continue
        output = index[0] if index else 0
        if not 0 <= output < len(found) or not 0 <= number < len(given):
            yield f"output {output} or parameter {number} is not there"
        elif _plain(found[output].shape) != _plain(given[number].shape):
            yield f"output {output} and parameter {number} are of different shapes"
    for side in zip(*entries(module), strict=True):
        if len(set(side)) != len(side):
            yield "an output or a parameter is aliased twice"


@line
def alias_order(module: Any) -> Iterator[str]:
    """The user's outputs come first, then the states, in the order of their parameters."""
    found = entries(module)
    count = len(outputs(module))
    if [output for output, _ in found] != list(range(count - len(found), count)):
        yield f"states are the outputs {[output for output, _ in found]} of {count}"
    numbers = [parameter for _, parameter in found]
    if numbers != sorted(numbers):
        yield "states leave in another order than they come"


@line
def aliased_is_read(module: Any) -> Iterator[str]:
    """A parameter nobody reads vanishes, and the numbers of the aliases are wrong then."""
    read = {number for item in every(module) for number in item.operand_ids}
    given = {item.parameter_number: item for item in parameters(module)}
    for _, number in entries(module):
        if number in given and given[number].id not in read:
            yield f"{given[number].name} is aliased and not read"


@line
def metadata(module: Any) -> Iterator[str]:
    """Type and name on every op; file and line too, except on what stands for the interface."""
    computation = entry(module)
    for item in every(module):
        if not item.metadata.op_type or not item.metadata.op_name:
            yield f"{item.name} says not what it is"
    for item in computation.instructions if computation else []:
        if item.opcode in INTERFACE:
            continue
        if not item.metadata.source_file or item.metadata.source_line < 1:
            yield f"{item.name} says not where it comes from"
        if item.metadata.source_file.startswith("/"):
            yield f"{item.name} names a path of one machine"


@line
def no_sharding(module: Any) -> Iterator[str]:
    """Programs are those of one rank."""
    for item in every(module):
        if item.HasField("sharding"):
            yield f"{item.name} has a sharding"


@line
def collectives(module: Any) -> Iterator[str]:
    """Every group listed, of one size, covering all ranks; no channel, no global ids."""
    for item in every(module):
        if item.opcode in COLLECTIVES and (item.channel_id or item.use_global_device_ids):
            yield f"{item.name} has a channel or global ids"
        if item.opcode not in COLLECTIVES or item.opcode == "collective-permute":
            continue
        groups = [list(group.replica_ids) for group in item.replica_groups]
        ranks = [rank for group in groups for rank in group]
        if not groups or len({len(group) for group in groups}) > 1:
            yield f"{item.name} has the groups {groups}"
        elif sorted(ranks) != list(range(len(ranks))):
            yield f"{item.name} has not every rank once"


@line
def group_encoding(module: Any) -> Iterator[str]:
    """Field 49, which the oldest reader knows."""
    for item in every(module):
        if item.HasField("collective_device_list"):
            yield f"{item.name} has its groups in field 87"


@line
def custom_call_version(module: Any) -> Iterator[str]:
    """Unset."""
    for item in every(module):
        if item.custom_call_api_version:
            yield f"{item.name} has an API version"


@line
def no_schedule(module: Any) -> Iterator[str]:
    """No schedule, no fusions, nothing asynchronous."""
    if module.HasField("schedule"):
        yield "there is a schedule"
    for item in every(module):
        if item.fusion_kind or re.search(r"fusion|-start$|-done$|^async", item.opcode):
            yield f"{item.name} is {item.opcode}"
