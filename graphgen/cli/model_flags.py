"""Flags for adapters: the files of each by name, and which one each prompt is answered with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from graphgen.cli.flags import CommandFunction, flag, named_flag, options, with_flags
from graphgen.config.compile_config import CallSizes
from graphgen.config.fields import integer, option, optional
from graphgen.config.option_groups import ADAPTERS, PROGRAMS
from graphgen.errors import GraphgenError
from graphgen.numbers import is_digits
from graphgen.targets import Accelerator

if TYPE_CHECKING:
    from graphgen.runtime.engine import Engine, EngineOptions
    from graphgen.runtime.sampling import Sampling

_ADAPTER_FLAGS = options(
    named_flag(
        list[str] | None,
        "--lora",
        metavar="NAME=PATH",
        help="An adapter: a folder of PEFT or a file of NxD; give it several times.",
    ),
    named_flag(
        list[str] | None,
        "--adapter-id",
        metavar="NAME|none",
        help="Adapter of all prompts, or given once for each; none is the model as it is.",
    ),
    group=ADAPTERS,
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
        from graphgen.runtime.artifact import is_artifact
        from graphgen.runtime.checkpoint.model_config import model_config
        from graphgen.runtime.lora.loaded_adapters import needed_settings

        made = [Path(model), *([options.artifact] if options.artifact else [])]
        if not self.files or any(is_artifact(path) for path in made):
            return options
        needed = needed_settings(model_config(model), self.files.values(), only=only)
        given = options.compile.given
        return options.updated({name: needed[name] for name in needed if name not in given})

    def give(self, engine: Engine) -> None:
        """Load the adapters, and let each row of a call use the one that ``ids`` has for it."""
        if not self.files:
            return
        from graphgen.runtime.lora.loaded_adapters import LoadedAdapters

        adapters = LoadedAdapters(engine.session, engine.model)
        for name, path in self.files.items():
            adapters.load(name, path)
        adapters.use(self.ids)


NO_ADAPTERS = AdapterFlags({})


def with_adapter_flags() -> Callable[[CommandFunction], CommandFunction]:
    """Give a command these flags in place of its parameter ``adapters``."""
    return with_flags("adapters", _ADAPTER_FLAGS, _adapter_flags)


def _adapter_flags(given: Mapping[str, object]) -> AdapterFlags:
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


Device = Annotated[
    Literal["auto", "cpu", "neuron"],
    typer.Option("--device", help="auto: what MODEL was compiled for, this CPU if for nothing."),
]


_TRUST = "Load compiled programs of artifacts that are not signed with your key, too."
TrustArtifacts = Annotated[
    bool, typer.Option("--trust-artifacts", help=_TRUST, rich_help_panel=PROGRAMS)
]
TRUST_FLAG = named_flag(
    bool, "--trust-artifacts", default=False, help=_TRUST, rich_help_panel=PROGRAMS
)


def check_device(model: str, device: str) -> None:
    """Refuse a device that MODEL does not run on (GG0705)."""
    from graphgen.runtime.artifact import is_for_device

    compiled = is_for_device(Path(model))
    if device == "cpu" and compiled:
        raise GraphgenError(
            "GG0705",
            f"--device cpu: {model} was compiled for a device",
            help="leave it out, or give the checkpoint",
        )
    if device == "neuron" and not compiled:
        raise GraphgenError(
            "GG0705",
            f"--device neuron: {model} is not compiled for it",
            help=f"graphgen compile {model} --weights -o DIR, then give DIR",
        )


Nodes = Annotated[
    int, typer.Option("--nodes", min=1, help="Nodes that the ranks are spread over, in order.")
]
OF_EACH_NODE = "Of each node; by default trn2.48xlarge etc."
InstanceName = Annotated[str, typer.Option("--instance", metavar="TYPE", help=OF_EACH_NODE)]
CollectiveForm = Annotated[
    Literal["staged", "flat"],
    typer.Option("--collectives", help="Each in stages, or one ring or mesh over all ranks."),
]
FLAT = "flat"


def check_instance(nodes: int, instance: str) -> None:
    """Refuse a type of instance that would have no effect (GG0705)."""
    if instance and nodes == 1:
        what = "--instance has no meaning for one node"
        raise GraphgenError("GG0705", what, help="give --nodes N too")


def levels_text(device: Accelerator) -> str:
    """A line for each level of links; none for a single node."""
    if not device.node_ranks:
        return ""
    parts = {device.cores_per_chip: "chip", device.node_ranks: "node"}
    lines = [
        f"links of the {level.name}: {level.bandwidth / 1e9:.0f} GB/s of each "
        f"{parts.get(level.part, 'server')} of {level.part} ranks, "
        f"and {1e6 * level.hop_seconds:g} us a step\n"
        for level in device.levels
    ]
    return "".join(lines)


MaxLen = Annotated[
    int | None,
    typer.Option(
        "--max-len", "--seq-len", min=1, help="Longest sequence to compile for; default: enough."
    ),
]
_SIZE_FLAGS = options(
    flag("max_len", MaxLen, None),
    named_flag(
        int | None,
        "--max-context-length",
        min=1,
        help="Longest prompt to compile for; default: --max-len.",
    ),
    named_flag(
        str | None,
        "--context-encoding-buckets",
        metavar="N,N,...",
        help="Prompt lengths that have a program; default: powers of two.",
    ),
    named_flag(
        str | None,
        "--token-generation-buckets",
        metavar="N,N,...",
        help="Sequence lengths that have a program for the next token; default: powers of two.",
    ),
    named_flag(
        str | None,
        "--chunked-prefill-size",
        metavar="N,N,...",
        help="Split long prompts into chunks of this many tokens; default: no split.",
    ),
    named_flag(
        bool,
        "--no-bucketing",
        default=False,
        help="One program for prompts and one for the next token.",
    ),
    group=PROGRAMS,
)


NO_SIZES = CallSizes()


def with_size_flags() -> Callable[[CommandFunction], CommandFunction]:
    """Give a command these flags in place of its parameter ``sizes``, a :class:`CallSizes`."""
    return with_flags("sizes", _SIZE_FLAGS, _call_sizes)


def _call_sizes(given: Mapping[str, object]) -> CallSizes:
    context, tokens = (f"{name}_buckets" for name in ("context_encoding", "token_generation"))
    chunk = "chunked_prefill_size"
    return CallSizes(
        max_len=cast("int | None", given["max_len"]),
        max_context=cast("int | None", given["max_context_length"]),
        context=read_buckets("--context-encoding-buckets", cast("str | None", given[context])),
        tokens=read_buckets("--token-generation-buckets", cast("str | None", given[tokens])),
        chunk=read_buckets("--chunked-prefill-size", cast("str | None", given[chunk])),
        bucketing=not given["no_bucketing"],
    )


def read_buckets(flag: str, text: str | None) -> tuple[int, ...]:
    """The sizes of a list such as ``128,512``; empty for no list.

    Raises:
        GraphgenError: GG0705 for what is not a list of numbers.
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(is_digits(part) and int(part) > 0 for part in parts):
        raise GraphgenError(
            "GG0705",
            f"{flag} {text} is not a list of sizes",
            help=f"numbers of tokens with commas: {flag} 128,512",
        )
    return tuple(int(part) for part in parts)


_DRAW = "Draw tokens instead of taking the best one."
_BY_PROGRAMS = "Let the programs choose tokens, not the host."
DoSample = Annotated[bool, typer.Option("--do-sample", help=_DRAW)]
OnDevice = Annotated[bool, typer.Option("--on-device-sampling", help=_BY_PROGRAMS)]
_FLOATS, _INTS = "FLOAT[,FLOAT...]", "INT[,INT...]"


@dataclass(frozen=True, slots=True)
class SamplingFlags:
    """The values of the flags."""

    do_sample: bool = option(None, False, _DRAW)
    temperature: str | None = option(
        None,
        None,
        "Divides scores; above 1 is more random, 0 takes the best token. Like the next six: "
        "one value, or one a prompt.",
        metavar=_FLOATS,
    )
    top_k: str | None = option(
        None, None, "Keep this many best tokens; 0 or -1: all.", metavar=_INTS
    )
    top_p: str | None = option(
        None, None, "Keep the best tokens that reach this probability.", metavar=_FLOATS
    )
    top_p_min_tokens: str | None = option(
        None, None, "Let --top-p keep at least this many tokens.", metavar=_INTS
    )
    min_p: str | None = option(
        None, None, "Drop tokens below this part of the best one's probability.", metavar=_FLOATS
    )
    repetition_penalty: str | None = option(
        None, None, "Above 1 makes tokens that are there less likely.", metavar=_FLOATS
    )
    no_repeat_ngram_size: str | None = option(
        None, None, "No n-gram of this many tokens occurs twice.", metavar=_INTS
    )
    seed: int | None = option(None, None, "Of the random numbers.  [default: 0]")
    deterministic: bool = option(None, False, "Draw with the number 0.5 each time: no randomness.")
    num_return_sequences: int = option(
        integer(1, 4096), 1, "Answers to each prompt; each has a row of the batch."
    )
    on_device_sampling: bool = option(None, False, _BY_PROGRAMS)
    global_topk: int | None = option(
        optional(integer(0)),
        None,
        "Number of best tokens that programs sample from; 0: all.  "
        "[default: 256 if every --top-k is within, else all]",
    )

    def settings(self, prompts: int) -> list[Sampling]:
        """The settings of each answer, those of one prompt next to each other (GG0705)."""
        from graphgen.runtime.sampling.sampling_flags import sampling_settings

        filters = (self.temperature, self.top_k, self.top_p, self.top_p_min_tokens, self.min_p)
        filters = (*filters, self.repetition_penalty, self.no_repeat_ngram_size)
        answers = (prompts, self.num_return_sequences)
        return sampling_settings(self.do_sample, filters, self.seed, self.deterministic, answers)


GREEDY_FLAGS = SamplingFlags()
