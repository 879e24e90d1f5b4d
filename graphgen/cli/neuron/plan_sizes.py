"""Flags of ``graphgen plan`` for rows and lengths: given, or advised for a file of requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from graphgen.cli.flag_group import Command, flag, takes_flags
from graphgen.cli.machine.node_options import InstanceName, check_instance
from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.rank_config import AUTO, CHOSEN_FIELDS

Batch = Annotated[
    int | None,
    typer.Option("--batch", min=1, help="Rows of a call; by default 1, advised with --lengths."),
]
Seq = Annotated[
    int | None, typer.Option("--seq", min=1, help="Positions of a sequence; by default 2048.")
]
Context = Annotated[
    int | None, typer.Option("--context", min=0, help="Tokens of a prompt; by default --seq.")
]
Lengths = Annotated[
    str | None,
    typer.Option(
        "--lengths",
        metavar="FILE",
        help="Advise buckets and rows for these requests: prompt,answer[,count] in tokens.",
    ),
]
ExecutableBytes = Annotated[
    int | None,
    typer.Option(
        "--executable-bytes",
        metavar="N",
        min=1,
        help="With --lengths: device memory of a program; by default the device's figure of code.",
    ),
]
LoraRank = Annotated[
    int | None,
    typer.Option(
        "--lora-rank", min=1, help="Count adapters (LoRA) of this rank: --max-loras, or 1."
    ),
]
LoraReserve = Annotated[
    int | None,
    typer.Option(
        "--lora-reserve",
        metavar="BYTES",
        min=1,
        help="With --lora-rank: say how many adapters these bytes of a core hold.",
    ),
]
Search = Annotated[
    bool,
    typer.Option(
        "--search", help="Compare all meshes of --tp ranks: seconds of a request, and memory."
    ),
]
AnswerTokens = Annotated[
    int | None,
    typer.Option(
        "--answer-tokens",
        metavar="N",
        min=1,
        help="With --search: tokens of an answer; by default what --context leaves of --seq.",
    ),
]
NodeCount = Annotated[
    int,
    typer.Option(
        "--nodes",
        metavar="N",
        min=1,
        help="Compare layouts on 1, 2, 4, ... N nodes; --tp is then the ranks of each.",
    ),
]


@dataclass(frozen=True, slots=True)
class PlanSizes:
    """The values of the flags; ``None`` for one that is not given."""

    batch: int | None = None
    seq: int | None = None
    context: int | None = None
    lengths: str | None = None
    executable_bytes: int | None = None
    lora_rank: int | None = None
    lora_reserve: int | None = None
    search: bool = False
    answer_tokens: int | None = None
    nodes: int = 1
    instance: str = ""

    def adapters(self, demand: CompileConfig) -> CompileConfig:
        """The configuration with slots for adapters, if they are counted (GG0705)."""
        if self.lora_rank is None:
            given = "--lora-reserve" if self.lora_reserve is not None else "--max-loras"
            if demand.max_loras or self.lora_reserve is not None:
                what = f"{given} has no meaning without --lora-rank"
                raise GraphgenError("GG0705", what, help="give --lora-rank N too")
            return demand
        slots = demand.max_loras or 1
        return demand.updated({"max_loras": slots, "max_lora_rank": self.lora_rank})

    def demand(self, dtype: str) -> CompileConfig:
        """The configuration with the sizes given; those of ``lengths`` are still open."""
        if self.lengths is not None:
            return CompileConfig(dtype=dtype)
        seq, batch = self.seq or 2048, self.batch or 1
        context = self.context or seq
        return CompileConfig(
            dtype=dtype, batch=(batch,), context=(context,), tokens=(seq,), slots=seq
        )

    def checked(self, demand: CompileConfig, rules: str, tp: int, plot: object) -> CompileConfig:
        """The configuration with adapters, where no options exclude each other (GG0705).

        Args:
            demand: of :meth:`demand`, with the options of the compilation.
            rules, tp, plot: the values of the flags.
        """
        self.check(rules)
        demand = self.adapters(demand)
        self.check_search(demand, rules, tp, plot)
        self.check_nodes(demand, rules, plot)
        return demand

    def check(self, rules: str) -> None:
        """Refuse options that exclude each other (GG0705).

        Args:
            rules: the value of ``--rules``.
        """
        if self.lengths is None:
            if self.executable_bytes is not None:
                what = "--executable-bytes has no meaning without --lengths"
                raise GraphgenError("GG0705", what, help="give --lengths FILE too")
            return
        given = {"--seq": self.seq, "--context": self.context}
        names = [name for name, value in given.items() if value is not None]
        for name in [*names, *(["--rules aws"] if rules == "aws" else [])]:
            raise GraphgenError(
                "GG0705", f"{name} has no meaning with --lengths", help=f"leave out {name}"
            )

    def check_search(self, demand: CompileConfig, rules: str, tp: int, plot: object) -> None:
        """Refuse --search with what it chooses itself, or has no use for (GG0705)."""
        if demand.parallelism == AUTO:
            if tp < 2:
                what = "--parallelism auto needs ranks"
                raise GraphgenError("GG0705", what, help="give --tp N, at least 2")
            if self.lengths is not None:
                what = "--parallelism auto has no meaning with --lengths"
                raise GraphgenError("GG0705", what, help="leave out one of them")
        if not self.search:
            if self.answer_tokens is not None:
                what = "--answer-tokens has no meaning without --search"
                raise GraphgenError("GG0705", what, help="give --search too")
            return
        if tp < 2:
            raise GraphgenError("GG0705", "--search needs ranks", help="give --tp N, at least 2")
        given = {
            "--lengths": self.lengths is not None,
            "--rules aws": rules == "aws",
            "--plot": plot is not None,
            "--parallelism auto": demand.parallelism == AUTO,
        }
        usual = CompileConfig()
        for name in CHOSEN_FIELDS:
            given[f"--{name.replace('_', '-')}"] = getattr(demand, name) != getattr(usual, name)
        for name in [name for name, is_given in given.items() if is_given]:
            raise GraphgenError(
                "GG0705", f"{name} has no meaning with --search", help=f"leave out {name}"
            )

    def check_nodes(self, demand: CompileConfig, rules: str, plot: object) -> None:
        """Refuse --nodes with what it compares itself, or has no use for (GG0705)."""
        check_instance(self.nodes, self.instance)
        given = {
            "--search": self.search,
            "--lengths": self.lengths is not None,
            "--lora-rank": self.lora_rank is not None,
            "--rules aws": rules == "aws",
            "--plot": plot is not None,
            "--parallelism auto": demand.parallelism == AUTO,
        }
        for name in [name for name, is_given in given.items() if is_given and self.nodes > 1]:
            raise GraphgenError(
                "GG0705", f"{name} has no meaning with --nodes", help=f"leave out {name}"
            )


NO_SIZES = PlanSizes()


def takes_plan_sizes() -> Callable[[Command], Command]:
    """Give a command these flags in place of its parameter ``sizes``, a :class:`PlanSizes`."""
    kinds = {
        "batch": Batch,
        "seq": Seq,
        "context": Context,
        "lengths": Lengths,
        "executable_bytes": ExecutableBytes,
        "lora_rank": LoraRank,
        "lora_reserve": LoraReserve,
        "search": Search,
        "answer_tokens": AnswerTokens,
        "nodes": NodeCount,
        "instance": InstanceName,
    }
    defaults = {"search": False, "nodes": 1, "instance": ""}
    flags = {name: flag(name, kind, defaults.get(name)) for name, kind in kinds.items()}
    return takes_flags("sizes", flags, _collected)


def _collected(given: Mapping[str, object]) -> PlanSizes:
    return PlanSizes(**given)  # pyright: ignore[reportArgumentType]
