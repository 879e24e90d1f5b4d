"""Options with which XLA compiled a program: its debug options as text, and compile options."""

from __future__ import annotations

from graphgen.json_value import Json
from graphgen.lowering.hlo_proto.wire import Message, Source


class OptionField:
    """CompileOptionsProto and ExecutableBuildOptionsProto."""

    BUILD = 3
    DEBUG = 3
    REPLICAS = 4
    PARTITIONS = 5
    SPMD = 6
    AUTO_SPMD = 7
    DEDUPLICATE = 8
    DEVICES = 9
    ALIAS_PASSTHROUGH = 10
    BACKEND_ONLY = 11
    MEMORY = 15
    SHARDY = 19


_NUMBERS = {
    "num_replicas": OptionField.REPLICAS,
    "num_partitions": OptionField.PARTITIONS,
    "device_memory_size": OptionField.MEMORY,
}
_SWITCHES = {
    "use_spmd_partitioning": OptionField.SPMD,
    "use_auto_spmd_partitioning": OptionField.AUTO_SPMD,
    "deduplicate_hlo": OptionField.DEDUPLICATE,
    "alias_passthrough_params": OptionField.ALIAS_PASSTHROUGH,
    "run_backend_only": OptionField.BACKEND_ONLY,
    "use_shardy_partitioner": OptionField.SHARDY,
}
_MOST_DEVICES = 64


def read_compile_options(source: Source) -> dict[str, Json]:
    """The options that say how a program is partitioned, and the number of debug options set.

    Raises:
        GraphgenError: GG0801 for what is not a protobuf.
    """
    build = Message(source).message(OptionField.BUILD) or Message(b"")
    found: dict[str, Json] = {
        **{name: build.integer(number) for name, number in _NUMBERS.items() if build.has(number)},
        **{name: build.boolean(number) for name, number in _SWITCHES.items() if build.has(number)},
    }
    devices = build.message(OptionField.DEVICES)
    if devices is not None:
        # DeviceAssignmentProto: counts, then the devices of each computation.
        rows = [item.integers(1) for item in devices.messages(3)]
        found["devices"] = [[*row[:_MOST_DEVICES]] for row in rows[:_MOST_DEVICES]]
    debug = build.message(OptionField.DEBUG)
    found["debug_options"] = len(debug.fields) if debug is not None else 0
    return found


def read_debug_options(text: str) -> dict[str, str]:
    """The options of a ``.debug_options`` file, ``name: value`` a line; those not by default."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().startswith("xla_"):
            key = name.strip()
            shown = value.strip().strip('"')
            found[key] = f"{found[key]}, {shown}" if key in found else shown
    return found
