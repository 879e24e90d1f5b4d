"""The front door of the runtime: open whatever the user has, and generate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.eval import rank_index
from graphgen.ir import RANK
from graphgen.lowering.cpu.pjrt import configure
from graphgen.models import SHAPES, read_model_config
from graphgen.runtime.artifact import Artifact, is_artifact, open_artifact, save_artifact
from graphgen.runtime.buckets import choose, up_to
from graphgen.runtime.checkpoint.dtype_policy import AS_DECLARED, chosen_dtype
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.executable_cache import ProgramStore
from graphgen.runtime.generation import (
    Completion,
    GenerationRequest,
    OnToken,
    Timings,
    check_prompts,
    generate,
)
from graphgen.runtime.model import BuiltModel, Settings, build_model
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.session import Session
from graphgen.runtime.tokenizer import Tokenizer, load_tokenizer
from graphgen.runtime.weights.presharded import read_shards
from graphgen.runtime.weights.rank_weights import put_arrays, put_weights, weights_of


@dataclass(frozen=True, slots=True)
class Options:
    """How to open a model.

    Attributes:
        dtype: ``f32``, ``bf16`` or ``f16``, or ``as-declared`` for the checkpoint's own; ``None``
            for f32, or an artifact's own.
        batch: rows; ``None`` for as many as there are prompts.
        max_len: slots of a cache row; ``None`` for what prompts and new tokens need.
        tp: ranks.
        artifact: folder to start from, or to make when it is not there.
        weights: folder of prepared weights, made by ``graphgen shard-weights``.
        quantization: see :class:`~graphgen.runtime.model.Settings`; ``None`` for none, or an
        artifact's own.
        sampling: likewise.
        roll_window_cache: see :class:`~graphgen.runtime.model.Settings`; an artifact may do it by
        itself.
    """

    dtype: str | None = None
    batch: int | None = None
    max_len: int | None = None
    tp: int = 1
    artifact: Path | None = None
    weights: Path | None = None
    quantization: str | None = None
    sampling: str | None = None
    roll_window_cache: bool = False


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """Answers and how long they took.

    Attributes:
        completions: one a prompt.
        timings: of generation.
        load_s: weights, tokenizer, graph.
        compile_s: compiling and loading programs.
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
        tokenizer: of the checkpoint.
        session: programs, weights and cache.
        programs: the compiled programs.
        load_s: seconds it took to open.
        from_artifact: whether it started from an artifact.
    """

    def __init__(
        self,
        model: BuiltModel,
        tokenizer: Tokenizer,
        programs: ProgramStore,
        weights: Mapping[str, object],
        load_s: float,
        from_artifact: bool,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.programs = programs
        self.session = Session(programs, weights)
        self.load_s = load_s
        self.from_artifact = from_artifact

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        request: GenerationRequest,
        on_token: OnToken | None = None,
    ) -> GenerationResult:
        """Answer token prompts; programs that are missing are compiled first.

        Raises:
            GraphgenError: GG0701, GG0702, GG0705.
        """
        check_prompts(prompts, self.session.rows)
        self._prepare(prompts, request)
        done, timings = generate(self.session, prompts, request, on_token)
        return GenerationResult(done, timings, self.load_s, self.programs.seconds)

    def _prepare(self, prompts: Sequence[Sequence[int]], request: GenerationRequest) -> None:
        """Compile what this request will use, while progress can be shown.

        Programs that only have to be loaded wait until they are used: the first token comes first.
        """
        longest = max(len(prompt) for prompt in prompts)
        buckets = self.session.buckets
        self.programs.get(buckets["prefill"][choose(list(buckets["prefill"]), longest, "a prompt")])
        # Decode steps attend to longest + 1 up to last slots.
        last = min(longest + request.max_new_tokens - 1, self.session.slots)
        below = 0
        for bucket, name in sorted(buckets["decode"].items()):
            used = below < last and longest < bucket and last > longest
            if used and not self.programs.compiled(name):
                self.programs.get(name)
            below = bucket


# Encodes the user's prompts once the tokenizer is known.
Encode = Callable[[Tokenizer], list[list[int]]]


def open_engine(
    model: str, options: Options, encode: Encode, new_tokens: int, progress: Progress
) -> tuple[Engine, list[list[int]]]:
    """Open MODEL for a set of prompts.

    Args:
        model: an artifact folder, a checkpoint folder, a GGUF file, or a known name (``smollm2``).
        options: how to open it.
        encode: gives the token prompts.
        new_tokens: tokens each prompt will get, to size the cache by default.
        progress: told about long work.

    Returns:
        The engine and the encoded prompts.

    Raises:
        GraphgenError: GG05xx for the configuration, GG06xx for the files, GG0703 for an artifact
            that does not fit, GG0701 and GG0702 for the prompts, GG0705 for options that exclude
            each other.
    """
    start = time.perf_counter()
    path = _resolve(model)
    _check_options(options, from_artifact=is_artifact(path))
    if is_artifact(path):
        return _from_artifact(open_artifact(path), options, encode, start, progress)
    checkpoint = open_checkpoint(path)
    if options.dtype is not None:
        options = replace(options, dtype=chosen_dtype(options.dtype, checkpoint))
    kept = options.artifact
    if kept is not None and is_artifact(kept):
        artifact = open_artifact(kept)
        asked = _asked(artifact.model.settings, options)
        artifact.check_request(checkpoint.fingerprint(), asked)
        return _from_artifact(artifact, options, encode, start, progress)
    with progress.task("reading the tokenizer"):
        tokenizer = load_tokenizer(checkpoint.path)
    prompts = encode(tokenizer)
    settings = _settings(checkpoint, options, prompts, new_tokens)
    configure(settings.tp)
    with progress.task("building the graph"):
        built = build_model(checkpoint.config, settings)
    check_checkpoint(checkpoint, built.module)
    if kept is not None:
        artifact = save_artifact(kept, built, checkpoint, tokenizer, progress)
        artifact = replace(artifact, model=built)
        weights, programs = artifact.weights(progress), artifact.programs(progress)
    else:
        weights = _placed(built, checkpoint, options, progress)
        programs = ProgramStore(built.module, progress)
    seconds = time.perf_counter() - start
    return Engine(built, tokenizer, programs, weights, seconds, False), prompts


def _check_options(options: Options, *, from_artifact: bool) -> None:
    """Refuse options of which one would have no effect (GG0705)."""
    if options.artifact is not None and options.weights is not None:
        raise GraphgenError(
            "GG0705",
            "--artifact and --weights exclude each other: an artifact has weights of its own",
            help="leave one of them out",
        )
    given = {"--artifact": options.artifact, "--weights": options.weights}
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
    built: BuiltModel, checkpoint: Checkpoint, options: Options, progress: Progress
) -> Mapping[str, object]:
    """The weights on the devices: prepared now, or read as they were prepared before."""
    module = built.module
    if options.weights is None:
        return put_weights(weights_of(checkpoint, module), progress)
    with progress.task("reading weights"):
        ranks = read_shards(options.weights, module, checkpoint)
        return put_arrays([{**arrays, RANK: rank_index(r)} for r, arrays in enumerate(ranks)])


def locate_checkpoint(model: str) -> Checkpoint:
    """The checkpoint MODEL names: a folder, a GGUF file, or a known name (GG06xx, GG0705)."""
    return open_checkpoint(_resolve(model))


def _resolve(model: str) -> Path:
    """Where MODEL is; what has a shape but no weights is refused (GG0705)."""
    path = locate(model) or Path(model)
    if not path.exists() and model.lower() in SHAPES:
        raise GraphgenError(
            "GG0705",
            f"'{model}' is a shape without weights",
            help="give a checkpoint; build, lower and run work on shapes",
        )
    if path.name == "config.json" and path.is_file():
        raise GraphgenError(
            "GG0705", f"{path} has no weights", help="give the folder it is in, with its weights"
        )
    return path


def _asked(mine: Settings, options: Options) -> Settings:
    """What the user asked for, where he asked; the artifact's own elsewhere."""
    return Settings(
        dtype=options.dtype or mine.dtype,
        batch=options.batch or mine.batch,
        max_len=options.max_len or mine.max_len,
        tp=options.tp,
        quantization=mine.quantization if options.quantization is None else options.quantization,
        sampling=mine.sampling if options.sampling is None else options.sampling,
        roll_window_cache=options.roll_window_cache or mine.roll_window_cache,
    )


def _from_artifact(
    artifact: Artifact, options: Options, encode: Encode, start: float, progress: Progress
) -> tuple[Engine, list[list[int]]]:
    settings = artifact.model.settings
    artifact.check_request(artifact.source, _asked(settings, options))
    configure(settings.tp)
    tokenizer = load_tokenizer(artifact.path / "tokenizer")
    prompts = encode(tokenizer)
    weights, programs = artifact.weights(progress), artifact.programs(progress)
    seconds = time.perf_counter() - start
    return Engine(artifact.model, tokenizer, programs, weights, seconds, True), prompts


def _settings(
    checkpoint: Checkpoint, options: Options, prompts: list[list[int]], new_tokens: int
) -> Settings:
    """Sizes that fit the prompts, unless the user says them."""
    most = read_model_config(checkpoint.config).max_position_embeddings or 1 << 20
    batch = options.batch or max(len(prompts), 1)
    check_prompts(prompts, batch)
    longest = max(len(prompt) for prompt in prompts)
    if options.max_len is not None and options.max_len > most:
        raise GraphgenError(
            "GG0705", f"--max-len {options.max_len} is more than the model's {most} positions"
        )
    max_len = options.max_len or up_to(longest + new_tokens, most)
    choose([max_len], longest, "a prompt")
    return Settings(
        options.dtype or "f32",
        batch,
        max_len,
        options.tp,
        options.quantization or "",
        options.sampling or "",
        options.roll_window_cache,
    )
