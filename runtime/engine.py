"""The runtime's entry point: open a model in any format, and generate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.config.compile_config import CallSizes, CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.cpu.pjrt import configure
from graphgen.lowering.cpu.processes import share_ranks
from graphgen.read_file import is_file, is_there
from graphgen.runtime.artifact import (
    Artifact,
    is_artifact,
    open_artifact,
    require_place,
    save_artifact,
)
from graphgen.runtime.checkpoint.dtype_policy import AS_DECLARED, chosen_types
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import as_stored, open_checkpoint
from graphgen.runtime.distributed.process_group import agree_on_program
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.generation import (
    Completion,
    GenerationRequest,
    OnToken,
    Timings,
    check_prompts,
    generate,
)
from graphgen.runtime.model import BuiltModel, PassStep, build_model
from graphgen.runtime.program_kernels import missing_kernels
from graphgen.runtime.progress import Progress
from graphgen.runtime.session.async_conditions import check_async
from graphgen.runtime.session.buckets import bucket_limit, choose_prompt_bucket, with_short_prompts
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.fused_model import FusedDraft, JoinedCheckpoint
from graphgen.runtime.speculation.fused_steps import FusedSteps, has_fused_steps
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer
from graphgen.runtime.weights.presharded import read_shards
from graphgen.runtime.weights.rank_weights import put_ranks, put_weights, weights_of

if TYPE_CHECKING:
    from graphgen.runtime.speculation.decode_loop import SpeculativeLoop

# Tokens of a message in a conversation that one launch takes.
_TURN = 64


@dataclass(frozen=True, slots=True)
class EngineOptions(CallSizes):
    """The request to open a model, its sizes among them.

    Attributes:
        compile: the options of the compilation. ``dtype`` may be ``as-declared`` for the
            checkpoint's own element type. An artifact must have been compiled for the values that
            are given, and has its own for the others.
        batch: rows; ``None`` for one per prompt.
        fewer_rows: numbers of rows below ``batch`` that a new model's decode programs take, too.
        turns: rows go on, as in a conversation: a new model gets chunk programs for short messages
            where ``chunk`` is empty.
        served: prompts of all lengths follow: a new model gets all buckets of short prompts, and
            not only the one of those that it is opened for.
        async_mode: each decode step starts before the tokens of the last one are read; the
            programs choose the tokens. An artifact of any age will do.
        artifact: folder to start from; it is written if it does not exist.
        trust_artifacts: load machine code of artifacts that this user has not signed, too.
        weights: folder of prepared weights, written by ``graphgen shard-weights``.
        medusa_heads: path of heads of Medusa, which are part of the model then; empty for none.
        fused: a draft whose steps are in the model's programs; ``None`` for none.
    """

    compile: CompileConfig = field(default_factory=CompileConfig)
    batch: int | None = None
    fewer_rows: tuple[int, ...] = ()
    turns: bool = False
    served: bool = False
    async_mode: bool = False
    artifact: Path | None = None
    trust_artifacts: bool = False
    weights: Path | None = None
    medusa_heads: str = ""
    fused: FusedDraft | None = None

    def updated(self, changes: Mapping[str, object]) -> EngineOptions:
        """The same with options of the compilation by name, now given."""
        return replace(self, compile=self.compile.updated(changes))

    def sized(self, config: CompileConfig, batch: int, max_len: int) -> CompileConfig:
        """``config`` for these sizes, with the requested buckets (GG0705)."""
        sized = self.of(config, batch, max_len)
        fewer = sorted(rows for rows in self.fewer_rows if rows < batch)
        return replace(sized, batch=(*fewer, batch))

    @property
    def dtype(self) -> str | None:
        """The element type, where it is given."""
        return self.compile.dtype if "dtype" in self.compile.given else None


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """Answers and timings.

    Attributes:
        completions: one per prompt.
        timings: seconds of generation.
        load_s: seconds to load weights and tokenizer and to build the graph.
        compile_s: seconds to compile and load programs.
    """

    completions: list[Completion]
    timings: Timings
    load_s: float
    compile_s: float

    @property
    def tokens_per_s(self) -> float:
        """New tokens of all prompts per second, prompt processing included."""
        total = sum(len(completion.tokens) for completion in self.completions)
        return total / (self.timings.first_token + sum(self.timings.steps))


class Engine:
    """An opened model.

    Attributes:
        model: module, settings and pass reports.
        tokenizer: the checkpoint's tokenizer.
        session: programs, weights and cache.
        programs: the compiled programs.
        load_s: seconds to open the model.
        phases: seconds of the parts of opening an artifact, in order; empty for a checkpoint.
        from_artifact: the model was opened from an artifact.
        async_mode: decode steps start before the tokens of the last one are read.
        speculator: makes the decode steps where it is set.

    Raises:
        GraphgenError: GG0705 for ``async_mode`` with programs that cannot do it.
    """

    def __init__(
        self,
        model: BuiltModel,
        tokenizer: Tokenizer,
        programs: ExecutableCache,
        weights: Mapping[str, object],
        load_s: float,
        from_artifact: bool,
        *,
        async_mode: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.programs = programs
        self.session = Session(programs, weights)
        if async_mode:
            check_async(self.session)
        self.async_mode = async_mode
        fused = has_fused_steps(self.session)
        self.speculator: SpeculativeLoop | None = FusedSteps(self.session.steps) if fused else None
        self.load_s = load_s
        self.phases: dict[str, float] = {}
        self.from_artifact = from_artifact

    @property
    def reports(self) -> list[PassStep]:
        """The reports of the passes, and one on kernels that the programs call and lack here."""
        missing = missing_kernels(self.model.module)
        return [*self.model.reports, *_remark("kernels", missing)]

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        request: GenerationRequest,
        on_token: OnToken | None = None,
        held: Sequence[int] = (),
    ) -> GenerationResult:
        """Answer token prompts; missing programs are compiled first.

        Args:
            prompts: token ids.
            request: the generation settings.
            on_token: called with row and token as soon as a token is chosen.
            held: as for :func:`~graphgen.runtime.generation.generate`.

        Raises:
            GraphgenError: GG0701, GG0702; GG0705 for these and for speculation with ``async_mode``.
        """
        check_prompts(prompts, self.session.rows)
        if self.speculator is not None:
            # Only here: an engine starts faster without what proposes and accepts.
            from graphgen.runtime.speculation.speculator import check_in_step

            check_in_step(async_mode=self.async_mode)
        self._prepare(prompts, request, held)
        decode = self.speculator.decode if self.speculator is not None else None
        done, timings = generate(
            self.session,
            prompts,
            request,
            on_token,
            held,
            async_mode=self.async_mode,
            decode=decode,
        )
        return GenerationResult(done, timings, self.load_s, self.programs.seconds)

    def _prepare(
        self, prompts: Sequence[Sequence[int]], request: GenerationRequest, held: Sequence[int]
    ) -> None:
        """Compile the programs that this request uses, with progress.

        Programs that only have to be loaded are loaded at their first use, for a short time to the
        first token.
        """
        longest = max(len(prompt) for prompt in prompts)
        table = self.session.table
        if not any(held) and (table.buckets("prefill") or table.chunk_sizes()):
            for size in self.session.table.prompt_programs(len(prompts), longest):
                self.session.devices.prepare(size.name)
        # Decode steps attend to longest + 1 up to last slots.
        last = min(longest + request.max_new_tokens - 1, self.session.limit)
        phase = "decode" if self.speculator is None else self.speculator.phase
        rows = min(len(prompts), table.batches(phase)[-1])
        below = 0
        for bucket in table.buckets(phase):
            name = table.find(phase, rows, bucket, max(table.verifies, 1)).name
            used = below < last and longest < bucket and last > longest
            if used and not self.programs.compiled(name):
                self.session.devices.prepare(name)
            below = bucket


def _remark(name: str, text: str) -> list[PassStep]:
    """The step of a remark, which no pass made; none for an empty text."""
    return [PassStep(name, 0, 0, 0, 0.0, (text,))] if text else []


# Encodes the user's prompts with the model's tokenizer.
Encode = Callable[[Tokenizer], list[list[int]]]


def open_engine(
    model: str, options: EngineOptions, encode: Encode, new_tokens: int, progress: Progress
) -> tuple[Engine, list[list[int]]]:
    """Open MODEL for a set of prompts.

    Args:
        model: an artifact folder, a checkpoint folder, a GGUF file, or a known name (``smollm2``).
        options: the request.
        encode: encodes the prompts.
        new_tokens: new tokens per prompt, for the default size of the cache.
        progress: notified of long tasks.

    Returns:
        The engine and the encoded prompts.

    Raises:
        GraphgenError: GG05xx for the configuration, GG06xx for the files, GG0703 for a mismatched
            artifact, GG0701 and GG0702 for the prompts, GG0705 for options that exclude each other.
    """
    start = time.perf_counter()
    path = _resolve(model, progress)
    _check_options(options, from_artifact=is_artifact(path))
    if is_artifact(path):
        artifact = open_artifact(path, trust=options.trust_artifacts)
        return _from_artifact(artifact, options, encode, start, progress)
    checkpoint, options = _opened(path, options)
    kept = options.artifact
    if kept is not None and is_artifact(kept):
        artifact = open_artifact(kept, trust=options.trust_artifacts)
        asked = _asked(artifact.model.settings, options)
        artifact.check_request(checkpoint.fingerprint(), asked)
        return _from_artifact(artifact, options, encode, start, progress, checkpoint)
    if kept is not None:
        require_place(kept)
    with progress.task("reading the tokenizer"):
        tokenizer = load_tokenizer(checkpoint.path)
    prompts = encode(tokenizer)
    settings = _settings(checkpoint, options, prompts, new_tokens)
    configure(share_ranks(settings.tp, settings.pp_degree))
    with progress.task("building the graph"):
        built = _built(checkpoint, settings, options.fused)
    checkpoint, built = _check_tensors(checkpoint, built)
    agree_on_program(checkpoint.config, checkpoint.fingerprint, settings, built.module)
    if kept is not None:
        artifact = save_artifact(kept, built, checkpoint, tokenizer, progress)
        artifact = replace(artifact, model=built)
        weights, programs = artifact.weights(progress), artifact.programs(progress)
    else:
        weights = _placed(built, checkpoint, options, progress)
        programs = ExecutableCache(built.module, progress)
    seconds = time.perf_counter() - start
    mode = options.async_mode
    return Engine(built, tokenizer, programs, weights, seconds, False, async_mode=mode), prompts


def _opened(path: Path, options: EngineOptions) -> tuple[Checkpoint, EngineOptions]:
    """The checkpoint as it is requested, and the options with its element type."""
    # Only here: an artifact is opened without any model.
    from graphgen.runtime.checkpoint.validate_tensors import check_sizes

    checkpoint = open_checkpoint(path)
    check_sizes(checkpoint)
    if options.dtype is not None:
        options = options.updated(chosen_types(options.dtype, checkpoint))
    asked = options.compile
    checkpoint = as_stored(checkpoint, keep=asked.keep_quantized)
    if options.medusa_heads:
        # Only here: models without heads are opened without their reader.
        from graphgen.runtime.speculation.medusa_checkpoint import with_medusa

        checkpoint = with_medusa(checkpoint, options.medusa_heads, asked.num_medusa_heads)
    if options.fused is not None:
        checkpoint = JoinedCheckpoint(checkpoint, options.fused)
    return checkpoint, options


def _built(checkpoint: Checkpoint, settings: CompileConfig, fused: FusedDraft | None) -> BuiltModel:
    """The programs of a model, or of a model and its draft."""
    if fused is None:
        return build_model(checkpoint.config, settings)
    # Only here: most engines run without a draft.
    from graphgen.runtime.speculation.fused_model import build_fused_model

    return build_fused_model(checkpoint.config, settings, fused.config)


def _check_tensors(checkpoint: Checkpoint, built: BuiltModel) -> tuple[Checkpoint, BuiltModel]:
    # Only here: an artifact is opened without any model.
    from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint

    found = checkpoint.of(built.module) if isinstance(checkpoint, JoinedCheckpoint) else checkpoint
    remarks = _remark("checkpoint", check_checkpoint(found, built.module))
    return found, replace(built, reports=[*built.reports, *remarks])


def _check_options(options: EngineOptions, *, from_artifact: bool) -> None:
    """Refuse options without effect and options that exclude each other (GG0705)."""
    if options.artifact is not None and options.weights is not None:
        raise GraphgenError(
            "GG0705",
            "--artifact and --weights exclude each other: an artifact has weights of its own",
            help="leave one of them out",
        )
    given = {"--artifact": options.artifact, "--weights": options.weights}
    given["--medusa-heads"] = Path(options.medusa_heads) if options.medusa_heads else None
    if options.fused is not None and (from_artifact or options.weights is not None):
        raise GraphgenError(
            "GG0705",
            "--enable-fused-speculation joins the checkpoints of a model and its draft",
            help="give the checkpoint instead of the artifact; one that was made with the flag "
            "speculates without it"
            if from_artifact
            else "leave --weights out",
        )
    for name, value in given.items():
        if from_artifact and value is not None:
            raise GraphgenError(
                "GG0705",
                f"{name} has no effect: the model is an artifact already",
                help=f"leave {name} out, or give the checkpoint it was made from",
            )
    if from_artifact and options.dtype == AS_DECLARED:
        raise GraphgenError(
            "GG0705",
            f"--dtype {AS_DECLARED} is about a checkpoint, and the model is an artifact",
            help="leave --dtype out: an artifact runs in what it was compiled for",
        )


def _placed(
    built: BuiltModel, checkpoint: Checkpoint, options: EngineOptions, progress: Progress
) -> Mapping[str, object]:
    """Put the weights on the devices: prepared now, or read from pre-sharded files."""
    module = built.module
    if options.weights is None:
        return put_weights(weights_of(checkpoint, module), progress)
    with progress.task("reading weights"):
        return put_ranks(module, read_shards(options.weights, module, checkpoint))


def locate_checkpoint(model: str, *, plain_names: bool = False) -> Checkpoint:
    """The checkpoint of MODEL: a folder, a GGUF file, or a known name (GG06xx, GG0705).

    Args:
        model: the path or name.
        plain_names: as for :func:`~graphgen.runtime.checkpoint.hub.locate`.
    """
    return open_checkpoint(_resolve(model, plain_names=plain_names))


def _resolve(model: str, progress: Progress | None = None, *, plain_names: bool = False) -> Path:
    """The path of MODEL; a named shape without weights is refused (GG0705)."""
    path = locate(model, progress, plain_names=plain_names) or Path(model)
    if not is_there(path):
        _refuse_shape(model)
    if path.name == "config.json" and is_file(path):
        raise GraphgenError(
            "GG0705", f"{path} has no weights", help="give the folder it is in, with its weights"
        )
    return path


def _refuse_shape(model: str) -> None:
    from graphgen.models import SHAPES

    if model.lower() in SHAPES:
        raise GraphgenError(
            "GG0705",
            f"'{model}' is a shape without weights",
            help="give a checkpoint; build, lower and run work on shapes",
        )


def _asked(mine: CompileConfig, options: EngineOptions) -> CompileConfig:
    """The configuration ``mine`` of an artifact with the requested values.

    Values that are not requested are the artifact's own, but for the number of ranks: a model that
    is split has to be opened with as many.
    """
    asked = options.compile.over(replace(mine, tp=options.compile.tp))
    batch, max_len = options.batch or mine.cache_rows, options.max_len or mine.max_len
    sized = options.sized(asked, batch, max_len)
    # A ladder follows from sizes; one that no option is about is the artifact's.
    same = max_len == mine.max_len and options.bucketing
    longest = options.max_context in (None, max(mine.context, default=0))
    if same and longest and not options.context:
        sized = replace(sized, context=mine.context)
    if same and not options.tokens:
        sized = replace(sized, tokens=mine.tokens)
    if not options.chunk:
        sized = replace(sized, chunk=mine.chunk)
    return replace(sized, batch=mine.batch) if batch == mine.cache_rows else sized


def _from_artifact(
    artifact: Artifact,
    options: EngineOptions,
    encode: Encode,
    start: float,
    progress: Progress,
    checkpoint: Checkpoint | None = None,
) -> tuple[Engine, list[list[int]]]:
    """Open an artifact; one without weights takes those of ``checkpoint``."""
    model, settings = artifact.model, artifact.model.settings
    artifact.check_request(artifact.source, _asked(settings, options))
    ranks = share_ranks(settings.tp, settings.pp_degree)
    agree_on_program(model.config, lambda: artifact.source, settings, model.module)
    programs = artifact.programs(progress)
    times = [start, time.perf_counter()]
    # Threads read the weights while JAX is imported and the tokenizer is read.
    with artifact.start_weights(checkpoint) as finish:
        configure(ranks)
        times.append(time.perf_counter())
        tokenizer = load_tokenizer(artifact.path / "tokenizer")
        prompts = encode(tokenizer)
        times.append(time.perf_counter())
        weights = finish(progress)
        times.append(time.perf_counter())
    mode = options.async_mode
    engine = Engine(model, tokenizer, programs, weights, times[-1] - start, True, async_mode=mode)
    names = ("opening and checks", "JAX", "tokenizer", "rest of weights")
    engine.phases = {n: b - a for n, a, b in zip(names, times, times[1:], strict=False)}
    return engine, prompts


def _settings(
    checkpoint: Checkpoint, options: EngineOptions, prompts: list[list[int]], new_tokens: int
) -> CompileConfig:
    """The configuration, with sizes that fit the prompts unless they are requested."""
    from graphgen.models import read_model_config

    most = read_model_config(checkpoint.config).max_position_embeddings or 1 << 20
    batch = options.batch or max(len(prompts), 1)
    check_prompts(prompts, batch)
    longest = max(len(prompt) for prompt in prompts)
    if options.max_len is not None and options.max_len > most:
        raise GraphgenError(
            "GG0705", f"--max-len {options.max_len} is more than the model's {most} positions"
        )
    needed = max((*options.context, options.max_context or 1, longest + new_tokens))
    max_len = options.max_len or max(options.tokens, default=0) or bucket_limit(needed, most)
    if options.turns and options.bucketing and not options.chunk and max_len > _TURN:
        options = replace(options, chunk=(_TURN,))
    config = options.sized(options.compile, batch, max_len)
    if options.bucketing and not (options.context or options.turns):
        every = options.served or options.artifact is not None
        config = with_short_prompts(config, 0 if every else longest)
    prompts_go_through = config.context if config.context and not config.chunk else config.tokens
    choose_prompt_bucket(prompts_go_through, longest, max(config.tokens))
    return config
