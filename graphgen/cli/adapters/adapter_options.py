"""Flags for adapters: the files of each by name, and which one each prompt is answered with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.cli.flag_group import Command, option, options, takes_flags
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.runtime.engine import Engine, EngineOptions

_FLAGS = options(
    option(
        list[str] | None,
        "--lora",
        metavar="NAME=PATH",
        help="An adapter: a folder of PEFT or a file of NxD; give it several times.",
    ),
    option(
        list[str] | None,
        "--adapter-id",
        metavar="NAME|none",
        help="Adapter of all prompts, or given once for each; none is the model as it is.",
    ),
)
NONE = "none"


@dataclass(frozen=True, slots=True)
class AdapterFlags:
    """The values of the flags.

    Attributes:
        files: of each adapter by name.
        ids: names, empty for none: one for all prompts, or one a prompt.
    """

    files: Mapping[str, Path]
    ids: tuple[str, ...] = ()

    def of_answers(self, prompts: int, answers: int) -> AdapterFlags:
        """The flags with a name for each answer, of as many to each prompt (GG0705)."""
        ids = self.ids or ("",)
        if len(ids) not in (1, prompts):
            raise GraphgenError(
                "GG0705",
                f"{len(self.ids)} times --adapter-id for {prompts} prompts",
                help="give it once, or once for each --prompt",
            )
        each = ids * prompts if len(ids) == 1 else ids
        return replace(self, ids=tuple(name for name in each for _ in range(answers)))

    def options(self, model: str, options: EngineOptions, *, only: bool = True) -> EngineOptions:
        """The request to open a model with slots for these adapters, if nothing else is requested.

        An artifact keeps what it was compiled with.

        Args:
            model: to open.
            options: the request without them.
            only: no other adapter will follow.
        """
        from graphgen.runtime.adapters.loaded_adapters import needed_settings
        from graphgen.runtime.artifact import is_artifact
        from graphgen.runtime.checkpoint.model_config import model_config

        made = [Path(model), *([options.artifact] if options.artifact else [])]
        if not self.files or any(is_artifact(path) for path in made):
            return options
        needed = needed_settings(model_config(model), self.files.values(), only=only)
        return replace(options, requested={**needed, **options.requested})

    def give(self, engine: Engine) -> None:
        """Load the adapters, and let each row of a call use the one that ``ids`` has for it."""
        if not self.files:
            return
        from graphgen.runtime.adapters.loaded_adapters import LoadedAdapters

        adapters = LoadedAdapters(engine.session, engine.model)
        for name, path in self.files.items():
            adapters.load(name, path)
        adapters.use(self.ids)


NO_ADAPTERS = AdapterFlags({})


def takes_adapters() -> Callable[[Command], Command]:
    """Give a command these flags in place of its parameter ``adapters``."""
    return takes_flags("adapters", _FLAGS, _collected)


def _collected(given: Mapping[str, object]) -> AdapterFlags:
    files = read_adapters("--lora", cast("list[str] | None", given["lora"]))
    named = cast("list[str] | None", given["adapter_id"]) or []
    if files and not named:
        raise GraphgenError(
            "GG0705",
            "--lora has no effect without --adapter-id: no prompt is answered with an adapter",
            help=f"give --adapter-id {next(iter(files))}",
        )
    for name in named:
        if name != NONE and name not in files:
            known = ", ".join([*files, NONE])
            raise GraphgenError(
                "GG0705", f"--adapter-id {name} does not name a --lora", help=f"one of {known}"
            )
    return AdapterFlags(files, tuple("" if name == NONE else name for name in named))


def read_adapters(option: str, given: Sequence[str] | None) -> dict[str, Path]:
    """The files of adapters by name, of texts ``NAME=PATH`` (GG0705)."""
    files: dict[str, Path] = {}
    for text in given or ():
        name, equals, path = text.partition("=")
        if not (name and equals and path) or name == NONE:
            raise GraphgenError(
                "GG0705", f"{option} {text} is not NAME=PATH", help=f"{option} mine=./my-adapter"
            )
        if name in files:
            raise GraphgenError("GG0705", f"{option} has the name '{name}' twice")
        files[name] = Path(path)
    return files
