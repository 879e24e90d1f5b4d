"""Compile options for ranks: their number, and the division of the model over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, cast

from graphgen.config import option_groups as groups
from graphgen.config.fields import boolean, integer, list_of, option, text, words
from graphgen.config.option_words import (
    BALANCE_AUTO,
    BALANCE_OFF,
    BALANCE_ON,
    CP_AUTO,
    CP_FORMS,
    HEAD_STRATEGIES,
)
from graphgen.errors import GraphgenError
from graphgen.limits import DEVICES
from graphgen.numbers import MOST_COUNT
from graphgen.targets import target_names

# Values of ``parallelism``: options of the mesh as they are given, or chosen by predicted time.
MANUAL, AUTO = "manual", "auto"
# The fields that ``auto`` chooses, beside ``rules``.
CHOSEN_FIELDS = (
    *("flash_decoding", "flash_decoding_ranks", "cp_degree", "cp_form", "mlp_cp_degree"),
    *("attention_dp_degree", "weight_gather_length"),
)


@dataclass(frozen=True, kw_only=True)
class RankConfig:
    """The target, its ranks, and what they divide; a part of :class:`CompileConfig`."""

    GROUP: ClassVar[str] = groups.RANKS

    target: str = option(
        words(target_names), "cpu", "device that programs are legalized for.", flag=None
    )
    tp: int = option(
        integer(1),
        1,
        "ranks the model is split over; 1 leaves out the sharding phase.",
        flag="Ranks to split the model over.",
        served=("--tensor-parallel-size", "-tp"),
        requested=True,
        group="",
    )
    parallelism: str = option(
        words(MANUAL, AUTO),
        MANUAL,
        "``auto``: the mesh of the ranks, and the layout on it, with which requests are predicted "
        "to take the least time, in place of the options below.",
        flag="auto: choose flash decoding, ranks that share prompts or sequences, and their kind, "
        "by predicted time.",
        pipeline=False,
    )
    pp_degree: int = option(
        integer(1),
        1,
        "stages of layers, each of tp ranks.",
        flag="Stages of layers, each of --tp ranks; by default 1.",
        served=("--pipeline-parallel-size", "-pp"),
    )
    nodes: int = option(
        integer(1),
        1,
        "machines that the ranks of a stage fill in order: collectives over them become one inside "
        "of each and one between them, where that takes less.",
        flag="Machines that --tp ranks fill in order: sums over them are made in stages where that "
        "takes less; by default 1.",
    )
    cp_degree: int = option(
        integer(1),
        1,
        "ranks that share the tokens of a prompt, each with the heads of all of them; the others "
        "divide heads.",
        flag="Ranks that share the tokens of a prompt, a divisor of --tp; by default 1.",
    )
    cp_form: str = option(
        words(*CP_FORMS),
        CP_AUTO,
        "form of attention over ranks that share a prompt: it gathers keys, exchanges "
        "tokens for heads, or passes blocks of keys on in a ring.",
        flag="Form of attention over ranks that share a prompt; by default the one that costs "
        "least.",
    )
    cp_balance: str = option(
        words(BALANCE_AUTO, BALANCE_ON, BALANCE_OFF),
        BALANCE_AUTO,
        "whether rank i of a ring of n has blocks i and 2n - 1 - i of the tokens, so that causal "
        "masks leave all ranks as much to do.",
        flag="Balance the tokens of a prompt, so that all ranks of a ring do equal work; by "
        "default where that costs less.",
    )
    mlp_cp_degree: int = option(
        integer(1),
        1,
        "ranks that share the tokens of a prompt in the MLP too: 1 or cp_degree.",
        flag="Ranks that share the tokens of a prompt in the MLP too: --cp-degree; by default 1.",
    )
    weight_gather_length: int = option(
        integer(0),
        1024,
        "least tokens a row of prefill and chunk programs that may gather weights where they use "
        "them, if that sends less than tokens do; 0 for none.",
        flag="Least tokens of prompts that may gather weights; by default 1024, 0 for none.",
    )
    attention_dp_degree: int = option(
        integer(1),
        1,
        "groups of the ranks with attention and caches for rows of their own.",
        flag="Groups of the ranks with attention and caches for sequences of their own, a divisor "
        "of --tp; by default 1.",
    )
    heads: str = option(
        words(*HEAD_STRATEGIES),
        "auto",
        "the strategy of the pass ``heads``.",
        flag="Distribution of key-value heads over ranks; by default auto.",
        flag_name="--group-query-attention",
    )
    flash_decoding: bool = option(
        boolean(),
        False,
        "whether ranks that share a key-value head divide the slots of its cache, where each would "
        "hold a copy.",
        flag="Divide caches over the ranks that share a key-value head, in place of copies.",
    )
    flash_decoding_ranks: int = option(
        integer(0),
        0,
        "ranks that divide the slots of a cache under ``flash_decoding``; 0 for the fewest that "
        "hold each key-value head once.",
        flag="Ranks that divide the slots of a cache with --flash-decoding; by default the fewest "
        "that hold each head once.",
    )
    rules: tuple[str, ...] = option(
        list_of(text()),
        (),
        "layouts of weights, inputs and outputs over the ranks, as in ``rules=[*.w1:{tp,-,-}]``.",
        flag=None,
    )

    def __post_init__(self) -> None:
        """Refuse numbers that fit no index, and more ranks than there are devices anywhere."""
        for field in fields(self):
            value: object = getattr(self, field.name)
            items = cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,))
            if any(isinstance(item, int) and item > MOST_COUNT for item in items):
                what = f"{field.name} is too large: at most {MOST_COUNT}"
                raise GraphgenError("GG0705", what, help="give a smaller number")
        if self.tp * self.pp_degree > DEVICES.most:
            what = f"{self.tp} ranks in {self.pp_degree} stages; {DEVICES} are built"
            raise GraphgenError("GG0705", what, help="give fewer ranks")


# Options without an effect on one rank: the flag of each field, and the value that asks nothing.
_OF_RANKS = {
    "parallelism": ("--parallelism", MANUAL),
    "heads": ("--group-query-attention", HEAD_STRATEGIES[0]),
    "rpl_reduce_dtype": ("--rpl-reduce-dtype", None),
}


def check_one_rank(given: Mapping[str, object], tp: object) -> None:
    """Refuse options that have no effect on one rank, where ``tp`` is 1 (GG0705).

    Args:
        given: values by field; ``None`` for what is not given.
        tp: ranks; ``None`` where they are not known.
    """
    for name, (flag, plain) in _OF_RANKS.items():
        value = given.get(name)
        if tp == 1 and value not in (None, plain):
            raise GraphgenError(
                "GG0705",
                f"{flag} {value} has no effect on one rank",
                help="give --tp N too, or leave it out",
            )
