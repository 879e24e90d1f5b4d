"""Flags of ``graphgen plan`` for rows and lengths: given, or advised for a file of requests."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.cli.flag_group import flag_field
from graphgen.cli.machine.node_options import OF_EACH_NODE, check_instance
from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.rank_config import AUTO, CHOSEN_FIELDS


@dataclass(frozen=True, slots=True)
class PlanSizes:
    """The values of the flags; ``None`` for one that is not given."""

    batch: int | None = flag_field(
        None, "Rows of a call; by default 1, advised with --lengths.", min=1
    )
    seq: int | None = flag_field(None, "Positions of a sequence; by default 2048.", min=1)
    context: int | None = flag_field(None, "Tokens of a prompt; by default --seq.", min=0)
    lengths: str | None = flag_field(
        None,
        "Advise buckets and rows for these requests: prompt,answer[,count] in tokens.",
        metavar="FILE",
    )
    executable_bytes: int | None = flag_field(
        None,
        "With --lengths: device memory of a program; by default the device's figure of code.",
        metavar="N",
        min=1,
    )
    lora_rank: int | None = flag_field(
        None, "Count adapters (LoRA) of this rank: --max-loras, or 1.", min=1
    )
    lora_reserve: int | None = flag_field(
        None,
        "With --lora-rank: say how many adapters these bytes of a core hold.",
        metavar="BYTES",
        min=1,
    )
    search: bool = flag_field(
        False, "Compare all meshes of --tp ranks: seconds of a request, and memory."
    )
    answer_tokens: int | None = flag_field(
        None,
        "With --search: tokens of an answer; by default what --context leaves of --seq.",
        metavar="N",
        min=1,
    )
    nodes: int = flag_field(
        1,
        "Compare layouts on 1, 2, 4, ... N nodes; --tp is then the ranks of each.",
        metavar="N",
        min=1,
    )
    instance: str = flag_field("", OF_EACH_NODE, metavar="TYPE")

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
