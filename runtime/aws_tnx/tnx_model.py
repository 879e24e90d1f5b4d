"""transformers-neuronx's models: open, compile, sample, save.

A model is one compiled decoder with one KV cache. :meth:`TnxModel.to_neuron` compiles for the CPU;
the name is transformers-neuronx's.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeVar, cast

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.cpu.pjrt import configure
from graphgen.runtime.aws_config.environment import check_nodes, print_notes
from graphgen.runtime.aws_config.flag_names import TNX_NAMES, in_attributes
from graphgen.runtime.aws_config.tnx_config import (
    TnxGenerationConfig,
    TnxModelOptions,
    TnxNeuronConfig,
    exclusion,
)
from graphgen.runtime.aws_config.tnx_rows import sampling_pass
from graphgen.runtime.aws_config.tnx_settings import compile_config, row_settings
from graphgen.runtime.aws_tnx.tnx_arguments import (
    HostChoice,
    Ids,
    Ints,
    Logits,
    matrix,
    positions_of,
    random_seed,
    refuse_unknown,
    vector,
)
from graphgen.runtime.aws_tnx.tnx_folder import (
    open_compiled,
    presharded_config,
    save_folder,
    weights_of_folder,
)
from graphgen.runtime.aws_tnx.tnx_sample import (
    SampleLoop,
    SampleRequest,
    Streamer,
    as_tensor,
    draw_rows,
    run_prompts,
)
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.engine import locate_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import BuiltModel, build_model
from graphgen.runtime.progress import Progress, TerminalProgress
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.sampling.on_device_sampling import check_choice
from graphgen.runtime.sampling.processors import log_softmax
from graphgen.runtime.session.session import RowResults, Session
from graphgen.runtime.weights.rank_weights import put_weights, weights_of

if TYPE_CHECKING:
    import torch

M = TypeVar("M", bound="TnxModel")
Stopping = Callable[["torch.Tensor", "torch.Tensor | None"], "bool | torch.Tensor"]


class TnxModel:
    """A decoder under transformers-neuronx's interface.

    Attributes:
        model_types: model types of Hugging Face that the class is for; empty for all.
        config: the model's ``config.json``.
        options: the arguments of ``from_pretrained``.
        neuron_config: a frozen configuration.
        generation_config: a copy of ``on_device_generation``; ``None`` if programs give logits.
        settings: the compile configuration.
    """

    model_types: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        checkpoint: Checkpoint | Path,
        config: Mapping[str, object],
        options: TnxModelOptions,
        neuron_config: TnxNeuronConfig,
    ) -> None:
        self._checkpoint = checkpoint
        self.config = config
        self.options = options.freeze(type(self).__name__)
        self.neuron_config = neuron_config.freeze(type(self).__name__)
        part = neuron_config.part("on_device_generation")
        self.generation_config = cast("TnxGenerationConfig | None", part)
        self.settings: CompileConfig = compile_config(config, options, neuron_config)
        self._programs_folder: Path | None = None
        self._built: BuiltModel | None = None
        self._session: Session | None = None
        self._progress: Progress = TerminalProgress()
        if self.generation_config is not None:
            row_settings(self.generation_config, max(self.settings.batch), 0)
        check_nodes(os.environ, self.settings.tp * self.settings.pp_degree)
        print_notes((*options.notes(), *neuron_config.notes()), set())

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_path: str | Path,
        *,
        neuron_config: TnxNeuronConfig | None = None,
        **options: object,
    ) -> Self:
        """Open a checkpoint; nothing is compiled yet.

        Args:
            pretrained_model_path: a checkpoint, the folder of a model saved with its weights, or a
                name of the Hugging Face hub.
            neuron_config: the attributes of compilation; by default a new ``NeuronConfig()``.
            options: see the class ``tnx.from_pretrained`` of the table of attributes.

        Raises:
            GraphgenError: GG0901 to GG0904 for options, GG05xx for the model, GG06xx for files.
        """
        given = TnxModelOptions(**options)
        folder = Path(pretrained_model_path)
        if (folder / "pytorch_model.bin").is_dir():
            raise GraphgenError(
                "GG0601",
                f"{folder} is a checkpoint that transformers-neuronx split into a file per tensor",
                help="save the model again with save_pretrained of transformers, or of "
                "graphgen.runtime.aws.tnx: save_pretrained_split(model, folder)",
            )
        config = presharded_config(folder)
        source: Checkpoint | Path = folder
        if config is None:
            source = locate_checkpoint(str(pretrained_model_path), plain_names=True)
            config = dict(source.config)
        cls.check_family(config)
        return cls(source, config, given, neuron_config or TnxNeuronConfig())

    def of_class(self, found: type[M]) -> M:
        """The same, not compiled, as a model of the class ``found``."""
        return found(self._checkpoint, self.config, self.options, self.neuron_config)

    @property
    def path(self) -> Path:
        """The checkpoint, or the folder that stands for it."""
        source = self._checkpoint
        return source if isinstance(source, Path) else Path(source.path)

    def enable_speculative_decoder(self, speculation_length: int | Sequence[int]) -> None:
        """Compile programs that verify tokens of a sequence, for ``SpeculativeGenerator``.

        Args:
            speculation_length: the last token and those proposed; the largest of several, whose
                programs take fewer too.

        Raises:
            GraphgenError: GG0908 after :meth:`to_neuron`, GG0903 for a length that does not fit.
        """
        given = speculation_length
        length, most = given if isinstance(given, int) else max(given), self.settings.max_len
        if self._session is not None:
            raise GraphgenError(
                "GG0908",
                f"{type(self).__name__} is compiled already",
                help="call enable_speculative_decoder() before to_neuron()",
            )
        if not 2 <= length <= most:
            raise exclusion(
                f"speculation_length is {length}",
                f"a step verifies 2 to {most} tokens",
                "a speculation_length of 2 or more, for example 4",
            )
        self.settings = replace(self.settings, speculation_length=length)

    @classmethod
    def check_family(cls, config: Mapping[str, object]) -> None:
        """Refuse a model of another family than the class is for (GG0501)."""
        model_type = config.get("model_type")
        if cls.model_types and model_type not in cls.model_types:
            raise GraphgenError(
                "GG0501",
                f"{cls.__name__} is for models of type {' or '.join(cls.model_types)}, not "
                f"{model_type}",
                help="NeuronAutoModelForCausalLM finds the class of a model",
            )

    @in_attributes
    def to_neuron(self) -> None:
        """Compile all programs, or load those of :meth:`load`, and load the weights.

        Raises:
            GraphgenError: GG0304 for a model that cannot be split, GG0703 for programs or weights
                of another model or other settings, GG06xx for the weights.
        """
        if self._session is not None:
            return
        configure(self.settings.tp)
        if self._programs_folder is not None:
            folder = self._programs_folder
            built, programs = open_compiled(folder, self.config, self.settings, self._progress)
        else:
            built = build_model(self.config, self.settings)
            programs = ExecutableCache(built.module, self._progress)
        session = Session(programs, self._weights(built))
        session.warm_up()
        self._built, self._session = built, session

    def _weights(self, built: BuiltModel) -> Mapping[str, object]:
        """The weights on the devices."""
        if isinstance(self._checkpoint, Path):
            return weights_of_folder(self._checkpoint, built.module, self._progress)
        check_checkpoint(self._checkpoint, built.module)
        return put_weights(weights_of(self._checkpoint, built.module), self._progress)

    def flag_names(self) -> Mapping[str, str]:
        """The attribute of each flag of graphgen's, for errors."""
        return TNX_NAMES

    @property
    def session(self) -> Session:
        """Programs, weights and cache (GG0908 before :meth:`to_neuron`)."""
        if self._session is None:
            raise GraphgenError(
                "GG0908", f"{type(self).__name__} is not compiled", help="call model.to_neuron()"
            )
        return self._session

    def reorder_cache(self, reorder_ids: Ids) -> None:
        """Let row b of the cache become what row ``reorder_ids[b]`` was, as beams go on.

        Args:
            reorder_ids: integers [B], one for each row of the cache.

        Raises:
            GraphgenError: GG0705 for a number outside the rows of the cache.
        """
        rows = self.session.rows
        sources = vector(reorder_ids, rows, "reorder_ids").tolist()
        if any(not 0 <= row < rows for row in sources):
            raise GraphgenError(
                "GG0705",
                f"reorder_ids {sources}: the cache has the rows 0 to {rows - 1}",
                help="give a row for each of the batch",
            )
        self.session.order_rows(range(rows), sources)

    @property
    def compiled(self) -> list[str]:
        """Names of the programs that were compiled, not loaded."""
        reports = self.session.programs.reports
        return [report.name for report in reports if not report.loaded]

    def save(self, directory: str | Path, sharded_weights: bool = False) -> None:
        """Write the compiled programs to a new folder.

        Args:
            directory: new or empty.
            sharded_weights: write the weights of every rank too; ``from_pretrained`` opens such a
                folder without the checkpoint.

        Raises:
            GraphgenError: GG0704, GG0705 for weights that come from such a folder, GG0908.
        """
        session = self.session
        source = None
        if sharded_weights:
            if isinstance(self._checkpoint, Path):
                raise GraphgenError(
                    "GG0705",
                    f"the weights come from {self._checkpoint}, which has them for every rank",
                    help="copy that folder, or save a model of the original checkpoint",
                )
            source = self._checkpoint
        assert self._built is not None
        save_folder(Path(directory), self._built, session.programs, source, self._progress)

    def load(self, directory: str | Path) -> None:
        """Take compiled programs from a folder of :meth:`save`: ``to_neuron`` compiles nothing.

        Raises:
            GraphgenError: GG0908 after :meth:`to_neuron`.
        """
        if self._session is not None:
            raise GraphgenError(
                "GG0908",
                f"{type(self).__name__} is compiled already",
                help="call load() before to_neuron()",
            )
        self._programs_folder = Path(directory)

    def reset_generation(self) -> None:
        """Forget all sequences."""
        self.session.reset()

    reset = reset_generation

    def update_generation_config(self, generation_config: TnxGenerationConfig) -> None:
        """Take other sampling settings from now on.

        Args:
            generation_config: a copy is taken.

        Raises:
            GraphgenError: GG0903 if programs give logits, if the compiled configuration is not
                ``dynamic``, or if programs would have to change.
        """
        mine = self.generation_config
        if mine is None or not mine.value("dynamic"):
            raise exclusion(
                "update_generation_config",
                "the model is not compiled with on_device_generation="
                "GenerationConfig(dynamic=True)",
                "compile it so, or give the settings to sample()",
            )
        generation_config.check()
        rows = max(self.settings.batch)
        row_settings(generation_config, rows, 0)
        new = copy.deepcopy(generation_config)
        asked = sampling_pass(TnxNeuronConfig(on_device_generation=new))
        if asked != self.settings.sampling:
            raise exclusion(
                "update_generation_config",
                f"the programs are compiled for {self.settings.sampling}, not {asked}",
                "keep dynamic, deterministic and global_top_k as they are",
            )
        self.generation_config = new

    @in_attributes
    def forward(
        self,
        input_ids: Ids,
        cache_ids: Ids | None = None,
        start_ids: Ids | None = None,
    ) -> torch.Tensor:
        """Run prompts, or one more token of each sequence.

        Args:
            input_ids: integers [B,S]; prompts are padded on ``padding_side``.
            cache_ids: positions. Integers [S] with padding on the left, counted from the first
                column; integers [B,S] with padding on the right, consecutive in a row up to its
                padding. ``None`` for prompts that begin at 0.
            start_ids: integers [B]: columns of padding of each row; with ``continuous_batching``
                the sequence that each row belongs to.

        Returns:
            f32 [B,V], the logits of the last token of each row, or integers [B,1] from programs
            that choose tokens.

        Raises:
            GraphgenError: GG0701 for too many tokens, GG0705 for inputs that contradict each other
                or the cache.
        """
        ids = matrix(input_ids, "input_ids")
        batching = self.neuron_config.part("continuous_batching")
        seq_ids = None
        if batching is not None and start_ids is not None:
            seq_ids, start_ids = vector(start_ids, len(ids), "start_ids"), None
        self._check_rows(ids)
        positions = positions_of(ids, cache_ids, start_ids)
        starts = positions.max(1).tolist()
        draw = draw_rows(self.session, self._settings(len(ids), 0), [at + 1 for at in starts])
        if cache_ids is None or int(positions.min(initial=0, where=positions >= 0)) == 0:
            output = run_prompts(self.session, ids, positions, seq_ids, draw)
        else:
            output = self.session.step(ids, positions, seq_ids, draw)
        return self._result(output)

    __call__ = forward

    def _result(self, output: RowResults) -> torch.Tensor:
        if self.session.chooses:
            return as_tensor(cast(Ints, output.tokens)[:, None])
        return as_tensor(self._scores(cast(Logits, output.logits)))

    @in_attributes
    def sample(
        self,
        input_ids: Ids,
        sequence_length: int,
        start_ids: Ids | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        eos_token_override: int | None = None,
        temperature: float | None = None,
        streamer: Streamer | None = None,
        stopping_criteria_list: Stopping | None = None,
        no_repeat_ngram_size: int | None = None,
        output_scores: bool = False,
        **unknown: object,
    ) -> torch.Tensor | tuple[torch.Tensor, list[torch.Tensor]]:
        """Generate until every sequence has ended, or is ``sequence_length`` tokens long.

        Random numbers follow from PyTorch's: ``torch.manual_seed`` repeats a call.

        Args:
            input_ids: integers [B,S], prompts padded on the left.
            sequence_length: of prompt, padding and new tokens.
            start_ids: integers [B], padding of each prompt; ``None`` for none.
            top_k: number of best tokens to draw from; 1 for the best one, 0 for all; 50 by default.
            top_p: probability that the best tokens to draw from reach; 1.0 by default.
            eos_token_override: token that ends a sequence, instead of the model's.
            temperature: scores are divided by it; 1.0 by default.
            streamer: its ``put`` takes integers [B,1] a step, its ``end`` nothing.
            stopping_criteria_list: called with tokens and scores f32 [B,V]; True or [B] ends rows.
            no_repeat_ngram_size: no n-gram of this length occurs twice.
            output_scores: return the scores too.
            unknown: refused.

        Returns:
            integers [B,S'], prompts and new tokens; sequences that end early are filled with the
            token that ends them. With ``output_scores`` also the scores of each step, f32 [B,V].

        Raises:
            GraphgenError: GG0901 for an unknown argument, GG0903 for settings that compiled
                programs contradict, GG0701, GG0705, GG0908.
        """
        refuse_unknown(unknown)
        ids, starts = self.prompts_of(matrix(input_ids, "input_ids"), start_ids)
        choice = HostChoice(top_k, top_p, temperature, no_repeat_ngram_size)
        settings = self._choices(choice, len(ids), output_scores)
        length = self.length_of(sequence_length, ids.shape[1], starts)
        eos = self.end_tokens() if eos_token_override is None else [eos_token_override]
        request = SampleRequest(
            *(ids, starts, length, settings, eos),
            *(streamer, stopping_criteria_list, self._scores),
        )
        loop = SampleLoop(self.session, request, ids, np.zeros(len(ids), np.bool_))
        loop.run()
        tokens = as_tensor(loop.ids)
        return (tokens, [as_tensor(step) for step in loop.scores]) if output_scores else tokens

    def _choices(self, choice: HostChoice, rows: int, output_scores: bool) -> list[Sampling]:
        """The sampling settings of each sequence of a call (GG0903, GG0705)."""
        if self.generation_config is None:
            settings = [choice.sampling(random_seed())] * rows
        else:
            choice.check_compiled(self.generation_config, output_scores)
            settings = self._settings(rows, random_seed())
        check_choice(self.session, settings)
        return settings

    def prompts_of(self, ids: Ints, start_ids: Ids | None) -> tuple[Ints, Ints]:
        """The prompts of all sequences, where each of ``prompt_batch_size`` gives several, and the
        padding of each."""
        starts = np.zeros(len(ids), np.int32)
        if start_ids is not None:
            starts = vector(start_ids, len(ids), "start_ids")
        if len(ids) == self.options.value("prompt_batch_size"):
            copies = max(self.settings.batch) // len(ids)
            ids, starts = np.tile(ids, (copies, 1)), np.tile(starts, copies)
        self._check_rows(ids)
        return ids, starts

    def _check_rows(self, ids: Ints) -> None:
        rows = self.session.rows
        if len(ids) > rows:
            raise GraphgenError(
                "GG0705",
                f"input_ids has {len(ids)} rows, the model is compiled for {rows}",
                help=f"compile with batch_size={len(ids)}",
            )

    def _settings(self, rows: int, seed: int) -> list[Sampling]:
        """The settings of programs that choose tokens; greedy for the others."""
        if self.generation_config is None:
            return [Sampling()] * rows
        return row_settings(self.generation_config, rows, seed)

    def length_of(self, sequence_length: int, width: int, starts: Ints) -> int:
        """The longest sequence that a call may reach, padding included (GG0701)."""
        limit = self.session.limit
        most = limit + int(starts.min(initial=0))
        if sequence_length > most:
            raise GraphgenError(
                "GG0701",
                f"sequence_length is {sequence_length}, the programs end at position {limit}",
                help=f"compile with n_positions={sequence_length}",
            )
        if sequence_length <= width:
            print(
                f"note: sequence_length {sequence_length} counts the prompt, which has {width} "
                "tokens: nothing is generated",
                file=sys.stderr,
            )
            return width
        own = None if self.generation_config is None else self.generation_config.value("max_length")
        return sequence_length if own is None else max(width, min(sequence_length, cast(int, own)))

    def end_tokens(self) -> list[int]:
        """The tokens that end a sequence."""
        value = None
        if self.generation_config is not None:
            value = self.generation_config.value("eos_token_id")
        if value is None:
            value = self.config.get("eos_token_id")
        if value is None:
            return []
        return [value] if isinstance(value, int) else list(cast("list[int]", value))

    def _scores(self, logits: Logits) -> Logits:
        scaled = self.neuron_config.value("log_softmax_scores")
        return log_softmax(logits).astype(np.float32) if scaled else logits


class PretrainedModel(Protocol):
    """A model of transformers."""

    def save_pretrained(self, save_directory: str | Path) -> object:
        """Write a checkpoint folder."""
        ...


def save_pretrained_split(model: PretrainedModel, save_directory: str | Path) -> None:
    """Write a model of transformers as a checkpoint of safetensors files.

    transformers-neuronx wrote a file per tensor; files of safetensors are read in parts anyway.
    """
    model.save_pretrained(save_directory)
