"""Registrations of ``--plugin`` files, and a check that the pipeline names one of their passes.

A pass that is registered does not run: a pipeline has to name it. A command that accepts a plugin
and runs none of its passes would report other passes only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.passes.core import Pass

# Most passes that an error lists.
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """A file of ``--plugin`` and what it registers.

    Attributes:
        file: as the user gave it.
        passes: names of passes.
        pipelines: names of pipelines.
        targets: names of targets.
        others: number of other entries: ops, their rules, kernels, families of models, facts.
    """

    file: str
    passes: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    others: int = 0

    @property
    def empty(self) -> bool:
        """True if the file registers nothing."""
        return not (self.passes or self.pipelines or self.targets or self.others)

    def is_named(self, text: str, passes: Sequence[Pass]) -> bool:
        """True if a pipeline has a pass of the file, or names its pipeline or target.

        Args:
            text: of the pipeline.
            passes: the pipeline, named pipelines expanded.
        """
        names = set(re.findall(r"[\w-]+", text))
        if names & {*self.pipelines, *self.targets}:
            return True
        return any(item.name in self.passes for item in passes)


# By resolved path, of this process.
_LOADED: dict[Path, LoadedPlugin] = {}


def load_plugin(file: str) -> LoadedPlugin:
    """Run a file that registers passes, or other things.

    Raises:
        GraphgenError: GG0705 when it is not there, fails, or registers nothing.
    """
    from graphgen.passes.core.registry import PASSES, load_file

    before = _registered()
    module = load_file(file)
    after = _registered()
    made = {
        kind: [name for name, entry in found.items() if before[kind].get(name) is not entry]
        for kind, found in after.items()
    }
    # A class that the file imports has perhaps been registered before.
    imported = [getattr(entry, "name", None) for entry in vars(module).values()]
    passes = [
        name
        for name in PASSES
        if name in imported and not PASSES[name].__module__.startswith("graphgen.")
    ]
    others = sum(len(found) for kind, found in made.items() if kind not in _NAMED)
    names = tuple(dict.fromkeys([*made["passes"], *passes]))
    found = LoadedPlugin(file, names, tuple(made["pipelines"]), tuple(made["targets"]), others)
    if found.empty:
        raise GraphgenError(
            "GG0705",
            f"the plugin '{file}' registers nothing",
            help="decorate the class of a pass with @register of graphgen.passes.core",
        )
    _LOADED[Path(file).resolve()] = found
    return found


# Kinds of entries whose names a pipeline may have.
_NAMED = ("passes", "pipelines", "targets")


def _registered() -> dict[str, Mapping[str, object]]:
    """Copies of the registries that a plugin may add to, by kind."""
    from graphgen.composites import DECOMPOSITIONS
    from graphgen.eval import COLLECTIVES, COMPOSITES, RULES, SEVERAL
    from graphgen.eval.native_kernels import NUMPY_RULES
    from graphgen.models import FAMILIES
    from graphgen.ops import OPS
    from graphgen.passes.core.invariants import FACTS
    from graphgen.passes.core.registry import PASSES, PIPELINES
    from graphgen.targets.target import registered_targets

    evaluation = (RULES, SEVERAL, COMPOSITES, COLLECTIVES, NUMPY_RULES)
    kinds: dict[str, Mapping[str, object]] = {
        "passes": dict(PASSES),
        "pipelines": dict(PIPELINES),
        "targets": registered_targets(),
        "ops": dict(OPS),
        "decompositions": dict(DECOMPOSITIONS),
        "families": dict(FAMILIES),
        "facts": dict(FACTS),
    }
    return kinds | {f"rules {number}": dict(table) for number, table in enumerate(evaluation)}


def check_plugins_named(
    plugins: Sequence[LoadedPlugin], text: str, passes: Sequence[Pass], option: str = "-p "
) -> None:
    """Refuse plugins with passes of which the pipeline names none.

    Args:
        plugins: the files of ``--plugin``.
        text: of the pipeline.
        passes: the pipeline, named pipelines expanded.
        option: what stands before a pipeline on the command line.

    Raises:
        GraphgenError: GG0705 with the passes of the first such plugin.
    """
    for plugin in plugins:
        if not plugin.passes or plugin.is_named(text, passes):
            continue
        shown = ", ".join(plugin.passes[:_SHOWN])
        more = len(plugin.passes) - _SHOWN
        shown += f" and {more} more" if more > 0 else ""
        several = len(plugin.passes) > 1
        written = ",".join(part for part in (text.strip(" ,"), plugin.passes[0]) if part)
        raise GraphgenError(
            "GG0705",
            f"the pipeline '{text}' runs no pass of the plugin '{plugin.file}', "
            f"which registers the pass{'es' if several else ''} {shown}",
            help=f"name {'one' if several else 'it'} where it is to run, such as "
            f"{option}'{written}'",
        )


def needed_for(item: Pass, files: Sequence[str]) -> list[str]:
    """The plugins that a pipeline of one pass takes: that of the pass, and those without passes."""
    found = [(file, _LOADED.get(Path(file).resolve())) for file in files]
    return [
        file
        for file, plugin in found
        if plugin is None or not plugin.passes or item.name in plugin.passes
    ]
