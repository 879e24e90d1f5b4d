"""Flags for speculative decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, cast

import typer

from graphgen.cli.flag_group import Command, flag, takes_flags
from graphgen.errors import GraphgenError

DraftModelPath = Annotated[
    str | None,
    typer.Option(
        "--draft-model-path",
        "--speculative-model",
        help="A smaller model with the same tokenizer that proposes tokens.",
    ),
]
DraftLayers = Annotated[
    int | None,
    typer.Option("--draft-layers", min=1, help="Propose by the model's own first layers."),
]
PromptLookupTokens = Annotated[
    int | None,
    typer.Option(
        "--prompt-lookup",
        min=1,
        metavar="N",
        help="Propose what followed the last N tokens, or fewer, where they were before.",
    ),
]
NumSpeculativeTokens = Annotated[
    int | None,
    typer.Option(
        "--num-speculative-tokens",
        min=1,
        help="Tokens to propose, as in vLLM: --speculation-length less one.",
    ),
]
_LENGTH = 5


@dataclass(frozen=True, slots=True)
class SpeculationFlags:
    """The values of the flags."""

    draft: str = ""
    layers: int = 0
    lookup: int = 0
    proposed: int = 0

    @property
    def is_asked(self) -> bool:
        """True if a flag names what proposes tokens."""
        return bool(self.draft or self.layers or self.lookup)

    def requested(self, compiled: Mapping[str, object]) -> Mapping[str, object]:
        """The option of the compilation: how many tokens a step verifies.

        Args:
            compiled: the options that are given, perhaps with ``speculation_length``.

        Raises:
            GraphgenError: GG0705 for a length without what proposes tokens, for two different
                lengths, and for one that leaves no token to propose.
        """
        given = cast("int | None", compiled.get("speculation_length"))
        if not self.is_asked:
            if given or self.proposed:
                name = "--speculation-length" if given else "--num-speculative-tokens"
                raise nothing_proposes(f"{name} has no effect: ")
            return {}
        length = self.proposed + 1 if self.proposed else given or _LENGTH
        if given not in (None, length):
            raise GraphgenError(
                "GG0705",
                f"--speculation-length {given} and --num-speculative-tokens {self.proposed}: the "
                "length counts the last token too",
                help="give one of them",
            )
        if length < 2:
            raise GraphgenError(
                "GG0705",
                f"--speculation-length {length} leaves no token to propose",
                help="it counts the last token of a sequence and those proposed: 2 or more",
            )
        return {"speculation_length": length}


def nothing_proposes(effect: str = "") -> GraphgenError:
    """The error of flags without what proposes tokens; ``effect`` says which, if any."""
    return GraphgenError(
        "GG0705",
        f"{effect}nothing proposes tokens",
        help="add --draft-model-path MODEL, --draft-layers N or --prompt-lookup N",
    )


NO_SPECULATION = SpeculationFlags()


def takes_speculation() -> Callable[[Command], Command]:
    """Give a command these flags in place of its parameter ``speculation``."""
    kinds = {
        "draft_model_path": DraftModelPath,
        "draft_layers": DraftLayers,
        "prompt_lookup": PromptLookupTokens,
        "num_speculative_tokens": NumSpeculativeTokens,
    }
    flags = {name: flag(name, kind, None) for name, kind in kinds.items()}
    return takes_flags("speculation", flags, _collected)


def _collected(given: Mapping[str, object]) -> SpeculationFlags:
    names = ("draft_model_path", "draft_layers", "prompt_lookup")
    asked = [name for name in names if given[name]]
    if len(asked) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in asked)
        raise GraphgenError(
            "GG0705", f"{flags} exclude each other", help="give one that proposes tokens"
        )
    draft, layers, lookup, proposed = (given[name] for name in (*names, "num_speculative_tokens"))
    return SpeculationFlags(
        cast("str | None", draft) or "",
        cast("int | None", layers) or 0,
        cast("int | None", lookup) or 0,
        cast("int | None", proposed) or 0,
    )
