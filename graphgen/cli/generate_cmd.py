"""``graphgen generate``: answer prompts with a model, on this machine's CPU or its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import note_remarks, write_json, write_stdout
from graphgen.cli.flags import NO_OPTIONS, with_compile_flags, with_field_flags
from graphgen.cli.model_flags import (
    GREEDY_FLAGS,
    NO_ADAPTERS,
    NO_SIZES,
    AdapterFlags,
    CallSizes,
    Device,
    SamplingFlags,
    TrustArtifacts,
    check_device,
    with_adapter_flags,
    with_size_flags,
)
from graphgen.cli.speculation_flags import (
    NO_MEDUSA,
    NO_SPECULATION,
    MedusaFlags,
    SpeculationFlags,
    needed_options,
    with_medusa_flags,
    with_speculation_flags,
)
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_groups import PROGRAMS, SAMPLING
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.cli.generate_report import FirstToken
    from graphgen.json_value import Json
    from graphgen.runtime.distributed.process_group import ProcessGroup
    from graphgen.runtime.engine import Engine, EngineOptions, GenerationResult
    from graphgen.runtime.generation import GenerationRequest
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.runtime.sampling import Sampling
    from graphgen.runtime.tokenizer.tokenizer import TextStream, Tokenizer

COMMAND: Final = Command("model", "Generate text from prompts.", order=2)

DTYPES = ("f32", "bf16", "f16", "as-declared")


Model = Annotated[
    str,
    typer.Argument(
        help="A checkpoint folder, a GGUF file, an artifact folder, one that 'graphgen compile "
        "--weights' has written, or smollm2."
    ),
]
Prompts = Annotated[
    list[str] | None, typer.Option("--prompt", help="A prompt; give it several times.")
]
Chat = Annotated[
    bool,
    typer.Option(
        "--chat",
        help="Put each prompt into the chat template; without a prompt: a conversation, "
        "typed or from standard input, a message a line.",
    ),
]
TemplateArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--template-arg",
        metavar="NAME=VALUE",
        help="A name that the chat template reads, and its value, text or JSON, such as "
        "enable_thinking=false; several times.",
    ),
]
NewTokens = Annotated[
    int, typer.Option("--max-new-tokens", min=1, help="Most tokens an answer gets.")
]
DType = Annotated[
    str | None,
    typer.Option("--dtype", help="f32 (default), bf16, f16, or as-declared by the checkpoint."),
]
ArtifactFolder = Annotated[
    Path | None,
    typer.Option("--artifact", help="Start from this folder; make it when it is not there."),
]
WeightsFolder = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        help="Weights that 'graphgen shard-weights' has prepared.",
        rich_help_panel=PROGRAMS,
    ),
]
AsyncMode = Annotated[
    bool,
    typer.Option(
        "--async-mode",
        help="Start each step before the last one's tokens are read; with --on-device-sampling.",
        rich_help_panel=PROGRAMS,
    ),
]
IgnoreEos = Annotated[
    bool,
    typer.Option("--ignore-eos", help="Go on after the end token.", rich_help_panel=SAMPLING),
]
Summary = Annotated[bool, typer.Option("--summary", help="Tell on stderr what each step took.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")]


@with_compile_flags(without=["dtype"])
@with_size_flags()
@with_speculation_flags(fused=True)
@with_medusa_flags()
@with_adapter_flags()
@with_field_flags("sampling", SamplingFlags, SAMPLING)
def generate(
    model: Model,
    prompt: Prompts = None,
    chat: Chat = False,
    template_arg: TemplateArgs = None,
    max_new_tokens: NewTokens = 128,
    dtype: DType = None,
    sizes: CallSizes = NO_SIZES,
    artifact: ArtifactFolder = None,
    trust_artifacts: TrustArtifacts = False,
    weights: WeightsFolder = None,
    device: Device = "auto",
    compile_options: CompileConfig = NO_OPTIONS,
    speculation: SpeculationFlags = NO_SPECULATION,
    medusa: MedusaFlags = NO_MEDUSA,
    adapters: AdapterFlags = NO_ADAPTERS,
    sampling: SamplingFlags = GREEDY_FLAGS,
    async_mode: AsyncMode = False,
    ignore_eos: IgnoreEos = False,
    summary: Summary = False,
    as_json: AsJson = False,
) -> None:
    """Generate text from prompts.

    A single answer is streamed; several are written when all are done. In a conversation each is
    streamed, and what came before is kept; with --json each is a JSON object on a line.

    \b
    Examples:
      graphgen generate smollm2 --chat --prompt "What is gravity?"
      graphgen generate model.gguf --artifact model.art --prompt "1, 2," --prompt "a, b," --json
      graphgen generate smollm2 --quantized --quantization-type per_channel_symmetric --prompt "Hi"
      graphgen generate smollm2 --prompt-lookup 3 --speculation-length 5 --prompt "Once"
      graphgen generate smollm2 --do-sample --top-k 1,50 --prompt "2 + 2 =" --prompt "Once"
    """
    from graphgen.runtime.sampling.sampling_flags import on_device_pass

    check_device(model, device)
    prompts, answers = len(prompt or [""]), sampling.num_return_sequences
    choose = sampling.settings(prompts)
    by_ranks = _by_ranks(compile_options, model, artifact, choose)
    by_programs = sampling.on_device_sampling or by_ranks or speculation.fused
    chosen = on_device_pass(choose, sampling.global_topk, by_programs)
    needed = needed_options(speculation, medusa, compile_options, model)
    own = {"dtype": dtype, "sampling": chosen, **needed}
    options = _options(compile_options, own, (artifact, weights), sizes, medusa)
    texts, each = _repeated(prompt, chat, answers), adapters.of_answers(prompts, answers)
    asked = GenerateRequest(
        *(texts, chat, max_new_tokens, ignore_eos, choose, speculation, medusa, each),
        _template(template_arg or [], chat),
    )
    options = replace(options, async_mode=async_mode, trust_artifacts=trust_artifacts)
    _run_in_launch(model, options, asked, as_json, summary)


def _run_in_launch(
    model: str, options: EngineOptions, asked: GenerateRequest, as_json: bool, summary: bool
) -> None:
    """Run alone, or with the other processes of a launch."""
    from graphgen.cli.launched_inputs import end_process, launch_options
    from graphgen.runtime.distributed.process_group import launched

    with launched(end_process) as group:
        if group is not None:
            options = launch_options(group, model, options)
            asked = _shared(group, asked)
        _run(model, options, asked, as_json, summary)


def _shared(group: ProcessGroup, asked: GenerateRequest) -> GenerateRequest:
    """The request with what process 0 was given of all that decides on sizes."""
    from graphgen.cli.launched_inputs import SharedInputs

    given = SharedInputs(asked.texts, asked.chat, asked.new_tokens, asked.template)
    inputs = given.of_first(group)
    return replace(
        asked,
        texts=inputs.texts,
        chat=inputs.chat,
        new_tokens=inputs.new_tokens,
        template=inputs.template,
    )


def _options(
    compiled: CompileConfig,
    own: Mapping[str, object],
    folders: tuple[Path | None, Path | None],
    sizes: CallSizes,
    medusa: MedusaFlags,
) -> EngineOptions:
    """The request to open a model; of ``own`` the options that are given."""
    from graphgen.runtime.engine import EngineOptions

    artifact, weights = folders
    options = EngineOptions(
        compiled.updated(own), artifact=artifact, weights=weights, **asdict(sizes)
    )
    return replace(options, medusa_heads=medusa.heads)


def _repeated(prompts: list[str] | None, chat: bool, sequences: int) -> list[str]:
    """Each prompt once per answer; refuse several answers in a conversation (GG0705)."""
    if chat and not prompts and sequences > 1:
        raise GraphgenError(
            "GG0705",
            "--num-return-sequences has no meaning in a conversation",
            help="give the message with --prompt",
        )
    return [text for text in prompts or () for _ in range(sequences)]


def _by_ranks(
    compiled: CompileConfig, model: str, artifact: Path | None, how: list[Sampling]
) -> bool:
    """True if several ranks sample from their parts of the logits; an artifact decides itself."""
    from graphgen.runtime.artifact import is_artifact
    from graphgen.runtime.sampling import GREEDY

    made = is_artifact(Path(model)) or (artifact is not None and is_artifact(artifact))
    return compiled.tp != 1 and not made and all(row == GREEDY for row in how)


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """Texts to answer, and the settings of the answers."""

    texts: list[str]
    chat: bool
    new_tokens: int
    ignore_eos: bool
    sampling: list[Sampling]
    speculation: SpeculationFlags
    medusa: MedusaFlags
    adapters: AdapterFlags
    template: Mapping[str, Json]

    @property
    def talk(self) -> bool:
        """True for a conversation: messages come one by one."""
        return self.chat and not self.texts


# A conversation is compiled for this many new tokens, most of the next power of two; its first
# message shows whether there is a chat template.
_ROOM, _GREETING = 1536, ["Hello"]


def _run(
    model: str, options: EngineOptions, asked: GenerateRequest, as_json: bool, summary: bool
) -> None:
    """Open the model, and answer; in a launch process 0 does all but the launches."""
    from graphgen.runtime.distributed.led_session import lead
    from graphgen.runtime.engine import open_engine
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.runtime.speculation.speculator import check_in_step

    check_dtype(options.dtype)
    if asked.speculation.is_asked or asked.medusa.is_asked:
        check_in_step(async_mode=options.async_mode)
    progress = TerminalProgress()
    options = asked.adapters.options(model, options)
    engine, prompts = open_engine(
        model,
        replace(options, turns=asked.talk, fused=asked.speculation.fused_draft(model)),
        lambda tokenizer: _encode(tokenizer, _GREETING if asked.talk else asked.texts, asked),
        _ROOM if asked.talk else asked.new_tokens,
        progress,
    )

    def work() -> None:
        asked.speculation.give(engine, model, options.compile, progress)
        asked.medusa.give(engine)
        asked.adapters.give(engine)
        _reply(engine, prompts, asked, progress, as_json=as_json, summary=summary)

    lead(engine.session, work)


def _reply(
    engine: Engine,
    prompts: list[list[int]],
    asked: GenerateRequest,
    progress: TerminalProgress,
    *,
    as_json: bool,
    summary: bool,
) -> None:
    """Answer, and print the summary if requested."""
    from graphgen.cli.generate_report import FirstToken, write_summary
    from graphgen.runtime.generation import GenerationRequest

    ends = frozenset[int]() if asked.ignore_eos else engine.tokenizer.eos_ids
    note_remarks(engine.reports)
    request = GenerationRequest(asked.new_tokens, ends, sampling=asked.sampling)
    first = FirstToken()
    if asked.talk:
        from graphgen.cli.chat_loop import talk
        from graphgen.runtime.conversation import Conversation

        result = talk(Conversation(engine, request, asked.template), as_json=as_json)
    else:
        result = _answer(engine, asked, prompts, request, as_json, first)
    if summary and result is not None:
        write_summary(engine, result, progress, first.seconds)


def _answer(
    engine: Engine,
    asked: GenerateRequest,
    prompts: list[list[int]],
    request: GenerationRequest,
    as_json: bool,
    first: FirstToken,
) -> GenerationResult:
    """Generate, and write the answers; stream a single one."""
    # After a chat template an answer is a text of its own.
    before = [() if asked.chat else prompt for prompt in prompts]
    single = not as_json and len(prompts) == 1
    printer = _Printer(engine.tokenizer.stream(before[0]), first) if single else None
    result = engine.generate(prompts, request, printer.token if printer else first.token)
    if printer:
        printer.finish()
    elif as_json:
        from graphgen.cli.generate_report import describe

        write_json(describe(engine, prompts, result, first.seconds, before))
    else:
        rows = zip(asked.texts, before, result.completions, strict=True)
        for text, prompt, completion in rows:
            answer = engine.tokenizer.text_after(prompt, completion.tokens)
            write_stdout(f"> {text}\n{answer}\n\n")
    return result


def check_dtype(dtype: str | None) -> None:
    """Refuse an unsupported element type (GG0705)."""
    if dtype is not None and dtype not in DTYPES:
        raise GraphgenError(
            "GG0705", f"--dtype {dtype} is unknown", help=f"one of {', '.join(DTYPES)}"
        )


def _template(given: Sequence[str], chat: bool) -> Mapping[str, Json]:
    """The arguments of the chat template (GG0705)."""
    from graphgen.json_value import JsonError, parse_json
    from graphgen.runtime.tokenizer.chat_template import check_arguments

    found: dict[str, Json] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            what = f"--template-arg '{text}' is not NAME=VALUE"
            raise GraphgenError("GG0705", what, help="such as enable_thinking=false")
        try:
            found[name] = cast("Json", parse_json(value))
        except JsonError:
            found[name] = value
    if found and not chat:
        raise GraphgenError("GG0705", "--template-arg is for --chat", help="add --chat")
    check_arguments(found)
    return found


def _encode(tokenizer: Tokenizer, texts: list[str], asked: GenerateRequest) -> list[list[int]]:
    """Token ids of the prompts; refuse an empty text before any work (GG0702)."""
    for index, text in enumerate(texts):
        if not text.strip():
            raise GraphgenError(
                "GG0702", f"prompt {index + 1} is empty", help="a prompt needs at least one token"
            )
    if asked.chat:
        turns = [[{"role": "user", "content": text}] for text in texts]
        return [tokenizer.encode_chat(turn, arguments=asked.template) for turn in turns]
    return [tokenizer.encode(text) for text in texts]


class _Printer:
    """Streams one answer to standard output."""

    def __init__(self, stream: TextStream, first: FirstToken) -> None:
        self.stream = stream
        self.first = first

    def token(self, row: int, token: int) -> None:
        """Write the text of the next token of the only row."""
        self.first.note()
        text = self.stream.push(token)
        if text:
            write_stdout(text)

    def finish(self) -> None:
        """Write the rest, and end the line."""
        write_stdout(self.stream.flush() + "\n")
