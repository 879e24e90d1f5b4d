"""The attributes of ``--override-neuron-config``: of the programs, and of the server itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.attribute import Attribute, RunTimeSetting
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.config_json import read_object
from graphgen.runtime.aws_config.neuron_config import ChunkedPrefillConfig, NeuronConfig
from graphgen.runtime.distributed.process_group import LaunchPlace


@dataclass(frozen=True, slots=True)
class StatedRanks:
    """Ranks as a NeuronConfig of one machine states them; ``None`` for what it leaves out.

    Attributes:
        world: ``world_size``, the ranks of all stages.
        first: ``start_rank_id``.
        count: ``local_ranks_size``.
    """

    world: int | None = None
    first: int | None = None
    count: int | None = None

    def check(self, ranks: int, place: LaunchPlace | None) -> None:
        """Refuse values that are not true (GG0705).

        In a launch they are those of the machine, or of the process where they are the same in all
        processes of a machine. Without one they are all ranks.

        Args:
            ranks: of all stages.
            place: of this process in a launch.
        """
        if self.world not in (None, ranks):
            raise GraphgenError(
                "GG0705",
                f"world_size = {self.world}, but the ranks of all stages are {ranks}",
                help="leave it out, or change the number of ranks or of stages",
            )
        if place is None:
            fitting, where, remedy = [(0, ranks)], "the only process", _LAUNCH
        elif ranks % place.count:
            # Refused where the processes divide the ranks.
            return
        else:
            of_machine, of_process = ranks // place.nodes, ranks // place.count
            first = place.node * of_machine
            fitting = [(first, of_machine), (place.index * of_process, of_process)]
            where = f"machine {place.node} of {place.nodes}"
            remedy = f"leave them out, or give {first} and {of_machine} there"
        if any(self._is(*pair) for pair in fitting):
            return
        first, count = fitting[0]
        raise GraphgenError(
            "GG0705",
            f"{self._text}, but {where} has {count} of {ranks} ranks, from {first} on",
            help=remedy,
        )

    def _is(self, first: int, count: int) -> bool:
        return self.first in (None, first) and self.count in (None, count)

    @property
    def _text(self) -> str:
        given = {"start_rank_id": self.first, "local_ranks_size": self.count}
        return " and ".join(
            f"{name} = {value}" for name, value in given.items() if value is not None
        )


_LAUNCH = (
    "leave them out, or start a process on each machine: graphgen launch --nnodes N --node-rank I "
    "--master-addr HOST --master-port PORT -- serve ..."
)


# Attributes of the server itself that programs are compiled by, too.
_BOTH = ("async_mode",)
# Attributes that the server has no use for without what proposes tokens.
_FUSED = "enable_fused_speculation"
_SPECULATION = ("speculation_length", _FUSED)


@dataclass(frozen=True, slots=True)
class ServedOverride:
    """The attributes of an override, by what they change.

    Attributes:
        programs: attributes of a NeuronConfig that programs are compiled by, by name.
        async_mode: steps start before the tokens of the step before are read.
        chunked: whether long prompts are processed in parts; ``None`` where it is not given.
        prompts: largest number of prompts of a launch; 0 where it is not given.
        paged: whether the cache is in blocks; ``None`` where it is not given.
        block_size: slots of a block; ``None`` where it is not given.
        num_blocks: number of blocks; ``None`` where it is not given.
        prefix_sharing: what prompts have in common is processed once.
        ranks: those of the machine, as they are stated.
        notes: remarks to print.
    """

    programs: Mapping[str, object]
    async_mode: bool = False
    chunked: bool | None = None
    prompts: int = 0
    paged: bool | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    prefix_sharing: bool = True
    ranks: StatedRanks = field(default_factory=StatedRanks)
    notes: Sequence[str] = ()


def read_override(text: str, *, speculates: bool = False) -> ServedOverride:
    """Read the JSON object of the flag.

    Args:
        text: the object.
        speculates: something proposes tokens.

    Raises:
        GraphgenError: GG0906 for another text; otherwise one error of all attributes: GG0901 for an
            unknown name with the nearest one, GG0902 for a value of another kind, GG0904 for an
            attribute that changes what the server does not have.
    """
    try:
        values = read_object(text)
    except GraphgenError as error:
        error.help = "give a JSON object: --override-neuron-config '{\"quantized\": true}'"
        raise
    programs: dict[str, object] = {}
    served: dict[str, object] = {}
    problems: list[GraphgenError] = []
    for name, value in values.items():
        try:
            row = NeuronConfig.attribute(name)
            _check(row, value, speculates=speculates)
        except GraphgenError as error:
            problems.append(error)
            continue
        if row.served:
            served[row.name] = value
        if row.name != _FUSED and (not row.served or row.name in _BOTH):
            programs[row.name] = value
    if problems:
        raise _joined(problems)
    fused = bool(values.get(_FUSED) or values.get(_FUSED.replace("_", "-")))
    prompts = _prompts(served.get("chunked_prefill_config"))
    given = served.get("chunked_prefill_config") is not None or None
    return ServedOverride(
        programs,
        bool(served.get("async_mode")),
        cast("bool | None", served.get("is_chunked_prefill", given)),
        prompts,
        cast("bool | None", served.get("is_block_kv_layout")),
        cast("int | None", served.get("pa_block_size")),
        cast("int | None", served.get("pa_num_blocks")),
        served.get("is_prefix_caching") is not False,
        _ranks(served),
        (_UNFUSED,) if fused else (),
    )


_UNFUSED = (
    f"NeuronConfig.{_FUSED} = True has no effect on the server: draft and model have programs of "
    "their own, which give the same tokens"
)


def _check(row: Attribute, value: object, *, speculates: bool) -> None:
    """Refuse a value of another kind (GG0902), or one that the server has no use for (GG0904)."""
    effect = row.effect("cpu")
    if row.served:
        _accepted(row.name, value)
    elif row.requests_nothing(value, row.default):
        return
    elif row.name in _SPECULATION:
        if not speculates:
            raise _refused("NeuronConfig", row.name, value, "nothing proposes tokens, and")
    elif isinstance(effect, RunTimeSetting):
        raise _refused("NeuronConfig", row.name, value, f"it is about {effect.what}, and")


def _joined(problems: Sequence[GraphgenError]) -> GraphgenError:
    """All errors as one."""
    first = problems[0]
    if len(problems) == 1:
        return first
    helps = dict.fromkeys(f"{error.help}" for error in problems if error.help)
    return GraphgenError(
        first.code, "; ".join(error.what for error in problems), help="; ".join(helps)
    )


def _ranks(served: Mapping[str, object]) -> StatedRanks:
    names = ("world_size", "start_rank_id", "local_ranks_size")
    return StatedRanks(*(cast("int | None", served.get(name)) for name in names))


def _accepted(name: str, value: object) -> object:
    """A value of its kind (GG0902)."""
    row = attributes_of("NeuronConfig")[name]
    try:
        return row.kind.read(value)
    except (TypeError, ValueError):
        raise GraphgenError(
            "GG0902", f"NeuronConfig.{name} = {value!r}: it must be {row.kind.noun}"
        ) from None


def _prompts(config: object) -> int:
    """``max_num_seqs`` of a ChunkedPrefillConfig; its other attributes are about kernels."""
    if config is None:
        return 0
    values = cast("Mapping[str, object]", config)
    made = ChunkedPrefillConfig(**values)
    for name, row in attributes_of(made.owner).items():
        if name != "max_num_seqs" and made.value(name) != row.default:
            raise _refused(made.owner, name, made.value(name))
    return cast(int, made.value("max_num_seqs"))


def _refused(owner: str, name: str, value: object, about: str = "") -> GraphgenError:
    about = f"{about} " if about else ""
    return GraphgenError(
        "GG0904",
        f"{owner}.{name} = {value!r}: {about}the server has no such setting",
        help="leave it out",
    )
