"""Flags for speculative decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.cli.flags import CommandFunction, named_flag, options, with_flags
from graphgen.config.bucket_ladder import powers
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_groups import SPECULATION
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.runtime.engine import Engine
    from graphgen.runtime.progress import Progress
    from graphgen.runtime.speculation.fused_model import FusedDraft
    from graphgen.runtime.speculation.medusa_tree import MedusaTree

_LENGTH = 5
_FLAGS = options(
    named_flag(
        str | None,
        "--draft-model-path",
        "--speculative-model",
        help="A smaller model with the same tokenizer, or a draft of EAGLE, to propose tokens.",
    ),
    named_flag(
        int | None, "--draft-layers", min=1, help="Propose by the model's own first layers."
    ),
    named_flag(
        int | None,
        "--prompt-lookup",
        min=1,
        metavar="N",
        help="Propose what followed the last N tokens, or fewer, where they were before.",
    ),
    named_flag(
        int | None,
        "--num-speculative-tokens",
        min=1,
        help="Tokens to propose, as in vLLM: --speculation-length less one.",
    ),
    named_flag(
        int | None,
        "--speculative-max-model-len",
        min=1,
        help="Longest sequence that a draft proposes tokens for, as in vLLM: the model's.",
    ),
    named_flag(
        bool,
        "--speculative-adaptive",
        default=False,
        help="Propose fewer tokens where recent acceptance and times of launches make it pay.",
    ),
    group=SPECULATION,
)
_FUSED = named_flag(
    bool,
    "--enable-fused-speculation",
    default=False,
    help="Compile model and draft into one program, which proposes, verifies and accepts.",
)


@dataclass(frozen=True, slots=True)
class SpeculationFlags:
    """The values of the flags."""

    draft: str = ""
    layers: int = 0
    lookup: int = 0
    proposed: int = 0
    max_len: int = 0
    adaptive: bool = False
    fused: bool = False

    @property
    def is_asked(self) -> bool:
        """True if a flag names what proposes tokens."""
        return bool(self.draft or self.layers or self.lookup)

    def needed(self, compiled: CompileConfig, model: str) -> Mapping[str, object]:
        """The options of the compilation: those of :meth:`requested`, and what EAGLE needs.

        Args:
            compiled: the options that are given.
            model: path or name of the model.

        Raises:
            GraphgenError: as for :meth:`requested`; GG05xx and GG06xx for a draft of EAGLE.
        """
        return {**self.requested(compiled), **self.features(model)}

    def features(self, model: str) -> Mapping[str, object]:
        """The option ``feature_layers`` of a model that a draft of EAGLE proposes for."""
        if not self.draft or self.fused:
            # Fused programs have no draft of EAGLE, which fused_draft refuses.
            return {}
        from graphgen.runtime.open_speculator import eagle_options

        return eagle_options(self.draft, model)

    def requested(self, compiled: CompileConfig) -> Mapping[str, object]:
        """The options of the compilation: how many tokens a step verifies.

        Args:
            compiled: the options that are given, perhaps with ``speculation_length``.

        Raises:
            GraphgenError: GG0705 for a length without what proposes tokens, for two different
                lengths, and for one that leaves no token to propose.
        """
        given = cast("int | None", compiled.asked.get("speculation_length"))
        if not self.is_asked:
            self._check_nothing_asked(given)
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
        # Fewer tokens have programs of their own: powers of two.
        fewer = {"verify_lengths": powers(length, 2)[:-1]} if self.adaptive else {}
        return {"speculation_length": length, **fewer}

    def _check_nothing_asked(self, length: int | None) -> None:
        """Refuse what has no effect where nothing proposes tokens (GG0705)."""
        given = {
            "--speculation-length": length,
            "--num-speculative-tokens": self.proposed,
            "--speculative-max-model-len": self.max_len,
            "--speculative-adaptive": self.adaptive,
            "--enable-fused-speculation": self.fused,
        }
        for name, value in given.items():
            if value:
                raise nothing_proposes(f"{name} has no effect: ")

    def give(self, engine: Engine, model: str, asked: CompileConfig, progress: Progress) -> None:
        """Attach a proposer to an engine, if a flag names one.

        Args:
            engine: opened with ``asked``.
            model: its path or name.
            asked: options of the compilation, with those of :meth:`requested`.
            progress: notified of long tasks.

        Raises:
            GraphgenError: as for :func:`~graphgen.runtime.open_speculator`.
        """
        if not self.is_asked:
            return
        from graphgen.runtime.engine import locate_checkpoint
        from graphgen.runtime.open_speculator import (
            SpeculationOptions,
            check_same_tokens,
            open_speculator,
        )
        from graphgen.runtime.tokenizer.tokenizer import load_tokenizer

        if self.fused:
            # The programs speculate: what is left is to see that both mean the same tokens.
            if self.draft:
                tokens = load_tokenizer(locate_checkpoint(self.draft).path)
                check_same_tokens(engine.tokenizer, tokens, self.draft)
            return
        options = SpeculationOptions(
            self.draft,
            self.layers,
            self.lookup,
            model,
            self.max_len,
            self.adaptive,
            length=asked.speculation_length,
        )
        engine.speculator = open_speculator(engine, options, progress)

    def fused_draft(self, model: str) -> FusedDraft | None:
        """The draft of fused programs; ``None`` without ``--enable-fused-speculation``."""
        if not self.fused:
            return None
        from graphgen.runtime.engine import locate_checkpoint
        from graphgen.runtime.open_speculator import of_first_layers
        from graphgen.runtime.speculation.eagle_checkpoint import is_eagle
        from graphgen.runtime.speculation.fused_model import FusedDraft

        checkpoint, layers = locate_checkpoint(self.draft or model), self.layers
        if is_eagle(checkpoint):
            raise GraphgenError(
                "GG0705",
                f"the draft {self.draft} is one of EAGLE, which no fused program has",
                help="leave --enable-fused-speculation out",
            )
        config = of_first_layers(checkpoint, layers) if layers else checkpoint.config
        return FusedDraft(checkpoint, config)


def nothing_proposes(effect: str = "") -> GraphgenError:
    """The error of flags without what proposes tokens; ``effect`` says which, if any."""
    return GraphgenError(
        "GG0705",
        f"{effect}nothing proposes tokens",
        help="add --draft-model-path MODEL, --draft-layers N or --prompt-lookup N",
    )


NO_SPECULATION = SpeculationFlags()


def with_speculation_flags(*, fused: bool = False) -> Callable[[CommandFunction], CommandFunction]:
    """Give a command these flags in place of its parameter ``speculation``.

    Args:
        fused: with ``--enable-fused-speculation``.
    """
    flags = {**_FLAGS, **options(_FUSED, group=SPECULATION)} if fused else _FLAGS
    return with_flags("speculation", flags, read_speculation)


def speculation_parameters() -> Mapping[str, Parameter]:
    """The parameters of these flags by name, for a command with other flags too."""
    return _FLAGS


def read_speculation(given: Mapping[str, object]) -> SpeculationFlags:
    """The values of :func:`speculation_parameters` (GG0705 for flags that exclude each other)."""
    names = ("draft_model_path", "draft_layers", "prompt_lookup")
    asked = [name for name in names if given[name]]
    if len(asked) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in asked)
        raise GraphgenError(
            "GG0705", f"{flags} exclude each other", help="give one that proposes tokens"
        )
    if given["prompt_lookup"] and given["speculative_max_model_len"]:
        raise GraphgenError(
            "GG0705",
            "--speculative-max-model-len has no effect on --prompt-lookup, which has no draft",
            help="leave it out",
        )
    _check_fused(given)
    draft, layers, lookup, proposed, most, adaptive = (given[name] for name in _FLAGS)
    return SpeculationFlags(
        cast("str | None", draft) or "",
        cast("int | None", layers) or 0,
        cast("int | None", lookup) or 0,
        cast("int | None", proposed) or 0,
        cast("int | None", most) or 0,
        bool(adaptive),
        bool(given.get(_FUSED.name)),
    )


def _check_fused(given: Mapping[str, object]) -> None:
    """Refuse what programs of a model and its draft do not do (GG0705)."""
    if not given.get(_FUSED.name):
        return
    for name in ("prompt_lookup", "speculative_max_model_len", "speculative_adaptive"):
        if given[name]:
            raise GraphgenError(
                "GG0705",
                f"--{name.replace('_', '-')} has no meaning with --enable-fused-speculation: its "
                "programs have a draft and one length",
                help="leave one of the two out",
            )


_MEDUSA_FLAGS = options(
    named_flag(
        str | None,
        "--medusa-heads",
        metavar="PATH",
        help="Heads of Medusa to propose tokens: a file, or a folder; or a model with heads.",
    ),
    named_flag(
        Path | None,
        "--medusa-tree",
        metavar="FILE",
        help="The tree of their guesses, a list of paths in JSON; by default the likely ones.",
    ),
    named_flag(int | None, "--num-medusa-heads", min=1, help="Heads to take; by default all."),
    group=SPECULATION,
)


@dataclass(frozen=True, slots=True)
class MedusaFlags:
    """The values of the flags."""

    heads: str = ""
    tree: Path | None = None
    count: int = 0

    @property
    def is_asked(self) -> bool:
        """True if a flag is given."""
        return bool(self.heads or self.tree or self.count)

    def requested(self, model: str) -> Mapping[str, object]:
        """The options of the compilation; none for an artifact, which has its own.

        Args:
            model: path or name of the model.

        Raises:
            GraphgenError: GG06xx for heads that cannot be read, GG0705 for a tree that is none, and
                for a tree or a number without heads.
        """
        if not self.is_asked:
            return {}
        from graphgen.runtime.artifact import is_artifact
        from graphgen.runtime.speculation.medusa_checkpoint import count_heads

        if not self.heads:
            if is_artifact(Path(model)) and not self.count:
                return {}
            name = "--medusa-tree" if self.tree else "--num-medusa-heads"
            raise GraphgenError(
                "GG0705", f"{name} has no effect without heads", help="add --medusa-heads PATH"
            )
        count = self.count or count_heads(self.heads)
        nodes = _tree(self.tree, count).nodes if count else 0
        return {"num_medusa_heads": count, "tree_nodes": nodes}

    def give(self, engine: Engine) -> None:
        """Let the heads of an engine's programs propose tokens, where a flag is given (GG0705)."""
        if not self.is_asked:
            return
        from graphgen.runtime.speculation.medusa_tree import MedusaProposer
        from graphgen.runtime.speculation.tree_speculator import TreeSpeculator, check_tree_programs

        heads = engine.model.settings.num_medusa_heads
        if not heads:
            raise GraphgenError(
                "GG0705",
                "the programs of this artifact have no heads of Medusa",
                help="give the checkpoint, and --medusa-heads PATH",
            )
        tree = _tree(self.tree, heads)
        check_tree_programs(engine.session, tree.nodes)
        engine.speculator = TreeSpeculator(MedusaProposer(tree), tree.nodes)


def _tree(path: Path | None, heads: int) -> MedusaTree:
    from graphgen.runtime.speculation.medusa_tree import default_tree, read_tree

    return default_tree(heads) if path is None else read_tree(path, heads)


NO_MEDUSA = MedusaFlags()


def needed_options(
    speculation: SpeculationFlags,
    medusa: MedusaFlags,
    compiled: CompileConfig,
    model: str,
) -> Mapping[str, object]:
    """The options of the compilation that proposals need.

    Args:
        speculation: the flags of other proposals.
        medusa: the flags of heads of Medusa.
        compiled: the options that are given.
        model: path or name of the model.

    Raises:
        GraphgenError: GG0705 for two kinds of proposals; as for :meth:`MedusaFlags.requested` and
            :meth:`SpeculationFlags.needed`.
    """
    if speculation.is_asked and medusa.is_asked:
        raise GraphgenError(
            "GG0705",
            "heads of Medusa and another kind of proposals exclude each other",
            help="leave out --medusa-heads, or the draft, layers or lookup",
        )
    return {**speculation.needed(compiled, model), **medusa.requested(model)}


def with_medusa_flags() -> Callable[[CommandFunction], CommandFunction]:
    """Give a command these flags in place of its parameter ``medusa``."""
    return with_flags("medusa", _MEDUSA_FLAGS, _medusa_flags)


def _medusa_flags(given: Mapping[str, object]) -> MedusaFlags:
    heads, tree, count = (given[name] for name in _MEDUSA_FLAGS)
    return MedusaFlags(
        cast("str | None", heads) or "", cast("Path | None", tree), cast("int | None", count) or 0
    )
