"""Flags for heads of Medusa."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.cli.flag_group import Command, option, options, takes_flags
from graphgen.cli.speculation.speculation_options import SpeculationFlags
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.runtime.engine import Engine
    from graphgen.runtime.speculation.medusa.medusa_tree import MedusaTree

_FLAGS = options(
    option(
        str | None,
        "--medusa-heads",
        metavar="PATH",
        help="Heads of Medusa to propose tokens: a file, or a folder; or a model with heads.",
    ),
    option(
        Path | None,
        "--medusa-tree",
        metavar="FILE",
        help="The tree of their guesses, a list of paths in JSON; by default the likely ones.",
    ),
    option(int | None, "--num-medusa-heads", min=1, help="Heads to take; by default all."),
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
        from graphgen.runtime.speculation.medusa.medusa_checkpoint import count_heads

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
        from graphgen.runtime.speculation.medusa.medusa_proposer import MedusaProposer
        from graphgen.runtime.speculation.tree.tree_speculator import (
            TreeSpeculator,
            check_tree_programs,
        )

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
    from graphgen.runtime.speculation.medusa.medusa_tree import default_tree, read_tree

    return default_tree(heads) if path is None else read_tree(path, heads)


NO_MEDUSA = MedusaFlags()


def needed_options(
    speculation: SpeculationFlags,
    medusa: MedusaFlags,
    compiled: Mapping[str, object],
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


def takes_medusa() -> Callable[[Command], Command]:
    """Give a command these flags in place of its parameter ``medusa``."""
    return takes_flags("medusa", _FLAGS, _read)


def _read(given: Mapping[str, object]) -> MedusaFlags:
    heads, tree, count = (given[name] for name in _FLAGS)
    return MedusaFlags(
        cast("str | None", heads) or "", cast("Path | None", tree), cast("int | None", count) or 0
    )
