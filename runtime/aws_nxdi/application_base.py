"""NeuronApplicationBase: compile a model into a folder, load the folder, and describe both."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Self, cast

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STEPS
from graphgen.ir import VERIFY, VERIFY_TREE, Module
from graphgen.lowering.cpu.pjrt import configure
from graphgen.runtime.artifact import Artifact, is_artifact, write_weights
from graphgen.runtime.aws_config.compile_settings import compile_settings, kernel_notes
from graphgen.runtime.aws_config.device_rows import UNSTATED_TARGET
from graphgen.runtime.aws_config.draft_checks import (
    check_draft_adapters,
    check_eagle,
    check_fused,
    draft_attributes,
    eagle_checkpoint,
    fused_draft,
    is_fused,
)
from graphgen.runtime.aws_config.environment import check_nodes, print_notes
from graphgen.runtime.aws_config.flag_names import in_attributes, nxdi_names
from graphgen.runtime.aws_config.inference_config import (
    CONFIG_FILE,
    InferenceConfig,
    load_pretrained_config,
)
from graphgen.runtime.aws_config.medusa_heads import checkpoint_with_heads, config_with_heads
from graphgen.runtime.aws_config.mixture_checks import check_experts
from graphgen.runtime.aws_config.model_checks import (
    check_model,
    model_notes,
    stored_quantization,
)
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.quantization_rows import quantized_checkpoint
from graphgen.runtime.aws_config.strict_config import CPU
from graphgen.runtime.aws_nxdi.base_model import (
    PHASES,
    ModelWrapper,
    NeuronBaseModel,
    check_wrappers,
    is_traced,
    own_sub_models,
    tags_of,
)
from graphgen.runtime.aws_nxdi.compiled_folder import (
    DRAFT_FOLDER,
    CompiledParts,
    WriteFiles,
    open_compiled,
    open_folder,
    write_alone,
    write_compiled,
)
from graphgen.runtime.aws_nxdi.compiler_args import (
    default_compiler_args,
    merge_compiler_args,
    plan_options,
)
from graphgen.runtime.aws_nxdi.fused_programs import build_programs, own_weights, with_draft
from graphgen.runtime.aws_nxdi.input_snapshots import capture_from_environment
from graphgen.runtime.aws_nxdi.module_behavior import ModuleBehavior
from graphgen.runtime.aws_nxdi.neuron_hlo import NeuronPrograms, compile_if_possible
from graphgen.runtime.aws_nxdi.program_forms import ProgramForms
from graphgen.runtime.aws_nxdi.state_dict import (
    StateDict,
    StateDictCheckpoint,
    checkpoint_of,
    read_state_dict,
    with_buffers,
)
from graphgen.runtime.aws_nxdi.sub_models import (
    RunningSubModels,
    TracedSubModels,
    open_sub_models,
    refuse_attributes,
    refuse_target,
    require_sub_models,
    start_sub_models,
    trace_sub_models,
    write_sub_models,
)
from graphgen.runtime.aws_nxdi.traced_family import TracedFamily
from graphgen.runtime.checkpoint.dtype_policy import AS_DECLARED, declared_types
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import BuiltModel
from graphgen.runtime.progress import Progress, TerminalProgress
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.presharded import layout_hash
from graphgen.runtime.weights.rank_weights import put_weights, weights_of

_LAYOUTS = "weights_to_skip_layout_optimization"


class NeuronApplicationBase(ModuleBehavior):
    """An application over one model: the base of the causal-LM classes.

    Args:
        model_path: the checkpoint, or a folder that :meth:`compile` wrote.
        config: frozen from now on; by default that of ``model_path``.
        neuron_config: replaces the one of ``config``.

    Attributes:
        config, neuron_config: the configuration, and its NeuronConfig.
        model_path: as given.
        models: the programs to compile, by tag.
        is_compiled: a compiled folder was written or loaded.
        draft_folder: where the draft of EAGLE is in the folder that was loaded, if it has one.
        is_loaded_to_neuron: the model can run.
        starts_ahead: ``generate`` is starting steps before tokens are read.
        progress: notified of long tasks.
    """

    _STATE_DICT_MODEL_PREFIX: ClassVar[str] = "model."
    _NEW_STATE_DICT_MODEL_PREFIX: ClassVar[str] = ""
    _model_cls: ClassVar[type[NeuronBaseModel]]
    _config_cls: ClassVar[type[InferenceConfig]] = InferenceConfig

    def __init__(
        self,
        model_path: str | Path,
        config: InferenceConfig | None = None,
        neuron_config: NeuronConfig | None = None,
    ) -> None:
        self.model_path = str(model_path)
        self.progress: Progress = TerminalProgress()
        self._noted: set[str] = set()
        made = self._config(config, neuron_config)
        self.validate_config(made)
        self.config: InferenceConfig = made.freeze(type(self).__name__)
        self.neuron_config: NeuronConfig = made.neuron_config
        self.is_compiled = False
        self.draft_folder: Path | None = None
        self.starts_ahead = False
        self.models: list[ModelWrapper] = self._wrappers() if self.has_family() else []
        self._sub_models: RunningSubModels | None = None
        self._running: ProgramForms | None = None

    def _config(
        self, config: InferenceConfig | None, neuron_config: NeuronConfig | None
    ) -> InferenceConfig:
        """The configuration given, or that of the model path."""
        kind = self.get_config_cls()
        if config is None and (Path(self.model_path) / CONFIG_FILE).is_file():
            config = kind.load(self.model_path)
        if config is None:
            if neuron_config is None:
                raise GraphgenError(
                    "GG0908",
                    f"{self.model_path} has no {CONFIG_FILE}, and no configuration is given",
                    help=f"{type(self).__name__}(model_path, config), or a folder that compile "
                    "wrote",
                )
            return kind(neuron_config, load_config=load_pretrained_config(self.model_path))
        return config if neuron_config is None else config.with_neuron_config(neuron_config)

    @classmethod
    def get_config_cls(cls) -> type[InferenceConfig]:
        """The class of :attr:`config`."""
        return cls._config_cls

    @classmethod
    def validate_config(cls, config: InferenceConfig) -> None:
        """Refuse a configuration that is not valid for this class.

        Raises:
            GraphgenError: GG0902 for a model of another family.
        """
        if not cls.has_family():
            refuse_attributes(config.neuron_config)
            return
        family = cls._model_cls.registered_family()
        if is_traced(cls._model_cls):
            return
        found = config.to_hf().get("model_type", family.model_type)
        if found not in (family.model_type, *family.other_types):
            raise GraphgenError(
                "GG0902",
                f"{cls.__name__} runs model_type {family.model_type!r}, this is {found!r}",
                help="use the class of the model's family",
            )

    @classmethod
    def has_family(cls) -> bool:
        """True if the class has a model, and not only what is appended to :attr:`models`."""
        return hasattr(cls, "_model_cls")

    def get_compiler_args(self) -> str | None:
        """More arguments of ``neuronx-cc``, which are merged with the default ones."""
        return None

    @property
    def is_loaded_to_neuron(self) -> bool:
        """True if the model can run."""
        return self._running is not None or self._sub_models is not None

    # Preparation

    @in_attributes
    def compile_config(self, target: str = "cpu") -> CompileConfig:
        """The compile configuration that the attributes of :attr:`neuron_config` request.

        Args:
            target: of :mod:`graphgen.targets`.

        Raises:
            GraphgenError: GG0903 for attributes that exclude each other, GG0904 for features that
                are not built for the target.
        """
        check_model(self.neuron_config, self.model_config())
        check_experts(self.neuron_config, self.model_config())
        check_eagle(self.config)
        check_fused(self.config)
        own = draft_attributes(self.config.fused_spec_config)
        check_draft_adapters(own, self.config.neuron_config)
        made = compile_settings(self.neuron_config, target, self.model_config())
        if made.tp > 1:
            made = replace(made, rules=(*made.rules, *self._layout_rules()))
        if made.dtype != AS_DECLARED:
            return made
        path = locate(self.model_path, plain_names=True) or Path(self.model_path)
        return made.updated(declared_types(self.model_config(), path))

    def model_config(self) -> Mapping[str, object]:
        """The model as a ``config.json``, with the scheme of a quantized checkpoint."""
        if not self.has_family():
            return self.config.to_hf()
        family, stated = self._model_cls.registered_family(), self.config.to_hf()
        model = {"model_type": family.model_type, **stated}
        if isinstance(family, TracedFamily):
            model |= {"model_type": family.model_type}
            family.remember(model, self.config)
        stored = stored_quantization(self.neuron_config, model)
        return {**model, "quantization_config": stored} if stored else model

    def _layout_rules(self) -> Sequence[str]:
        """The layouts that the layers of a model in PyTorch state."""
        family = self._model_cls.registered_family()
        return family.rules(self.model_config()) if isinstance(family, TracedFamily) else ()

    def _print_notes(self, target: str = "cpu") -> None:
        """Print remarks about the attributes and variables on stderr, one an attribute.

        An attribute that says something about the configured device has that remark alone.

        Raises:
            GraphgenError: GG0904 for variables that make this process one of several nodes.
        """
        check_nodes(os.environ, cast(int, self.neuron_config.value("world_size")))
        notes, device = self._notes(target), self.target()
        of_device = {_subject(note): note for note in self._notes(device)} if device else {}
        shown = [of_device.get(_subject(note), note) for note in notes]
        print_notes(shown, self._noted, device or target)

    def _notes(self, target: str) -> Sequence[str]:
        """All remarks on the configuration."""
        return (*self.config.notes(target), *self._remarks(target))

    def note_async_mode(self) -> None:
        """Print once which steps ``async_mode`` starts ahead, and which wait for each other."""
        if not self.neuron_config.value("async_mode"):
            return
        note = (
            "NeuronConfig.async_mode = True: a step starts before the tokens of the last one are "
            "read; steps that propose tokens wait"
        )
        if not self.hands_over():
            note = (
                "NeuronConfig.async_mode = True has no effect on stages, on logits and on proposed "
                "tokens: a step waits for the tokens of the one before"
            )
        print_notes([note], self._noted, self.target() or CPU)

    def hands_over(self) -> bool:
        """True if the programs hand the tokens of a step to the next one on the devices."""
        return False

    def _remarks(self, target: str) -> Sequence[str]:
        """Remarks that depend on the model or on the target."""
        made = [*kernel_notes(self.neuron_config, target)]
        made += model_notes(self.neuron_config, self.model_config())
        if target != "cpu" and self.neuron_config.value(_LAYOUTS):
            made.append(
                f"NeuronConfig.{_LAYOUTS} has no effect on an application: weights keep their "
                "layout, and 'graphgen compile --optimize-layouts' reads it"
            )
        return made

    @in_attributes
    def build(self) -> BuiltModel:
        """The model's programs, ready to be compiled (GG05xx)."""
        self._print_notes()
        settings = self.compile_config()
        configure(settings.tp * settings.pp_degree)
        with self.progress.task("building the graph") as report:
            return build_programs(self._built_config(), self.config, settings, report)

    def _built_config(self) -> Mapping[str, object]:
        """The model as a ``config.json``, with the form of its heads of Medusa."""
        return config_with_heads(self.neuron_config, self.model_config(), self.model_path)

    def _wrappers(self) -> list[ModelWrapper]:
        settings = self.compile_config()
        sizes = {"prefill": settings.context, "decode": settings.tokens}
        k, nodes = settings.speculation_length, settings.tree_nodes
        for phase, count in ((VERIFY, k), (STEPS, k), (VERIFY_TREE, nodes)):
            sizes[phase] = tuple(size for size in settings.tokens if size >= count)
        return [
            ModelWrapper(
                self.config, self._model_cls, tag, self._compiler_args(tag), sizes[PHASES[tag]]
            )
            for tag in tags_of(self.neuron_config)
        ]

    def _compiler_args(self, tag: str) -> str:
        """The default arguments for a tag, with those of :meth:`get_compiler_args` merged in."""
        target = self.target() or UNSTATED_TARGET
        default = default_compiler_args(self.neuron_config, tag, target)
        return merge_compiler_args(default, self.get_compiler_args())

    def target(self) -> str | None:
        """The Neuron target that :meth:`compile` writes HLO for; ``None`` for none."""
        target = self.neuron_config.value("target")
        return None if target is None else str(target)

    def checkpoint(self, module: Module) -> Checkpoint:
        """The weights at :attr:`model_path`, or those of the quantized checkpoint.

        Args:
            module: of the model.

        Raises:
            GraphgenError: GG0601 if they cannot be read, GG0602 if they are not the module's.
        """
        names, model = own_weights(module), self.model_config()
        path = quantized_checkpoint(self.neuron_config) or self.model_path
        made = checkpoint_of(type(self), str(path), self.config, model, names)
        family = self._model_cls.registered_family()
        if isinstance(family, TracedFamily):
            made = with_buffers(made, family.held, names)
        made = checkpoint_with_heads(self.neuron_config, made, self.model_path)
        made = with_draft(made, self.config, module)
        check_checkpoint(made, module)
        return made

    def _tokenizer_folder(self, checkpoint: Checkpoint) -> Path:
        """The checkpoint with the tokenizer: the model's own beside a quantized one without."""
        if checkpoint.path.is_dir() and (checkpoint.path / "tokenizer.json").is_file():
            return checkpoint.path
        own = locate(self.model_path, plain_names=True) or Path(self.model_path)
        return own if (own / "tokenizer.json").is_file() else checkpoint.path

    # Folders

    @in_attributes
    def compile(self, compiled_model_path: str | Path, debug: bool = False) -> None:
        """Compile every program and write the folder that :meth:`load` reads.

        With a Neuron ``target``, its programs are compiled with ``neuronx-cc`` too, where it is
        installed; without it their HLO is written.

        The folder appears complete, or stays as it was. Files of an earlier compilation in it are
        replaced, and other files stay.

        Args:
            compiled_model_path: the folder.
            debug: keep the sources of ops in the HLO files of a Neuron target.

        Raises:
            GraphgenError: GG05xx for the model, GG06xx for its weights, GG0704 if the folder
                cannot be written, GG0904 for sub-models beside those of the family, GG10xx for
                programs that ``neuronx-cc`` does not compile.
        """
        check_wrappers(self.models, self.neuron_config if self.has_family() else None)
        folder, settings = Path(compiled_model_path), self.neuron_config
        sub_models = self._writer_of_sub_models()
        if not self.has_family():
            write_alone(folder, self.config, require_sub_models(sub_models, type(self).__name__))
            self.is_compiled = True
            return
        device = self._device(folder, debug)
        if is_fused(settings):
            # Before minutes of work for programs that no weights of the draft fit.
            fused_draft(self.config)
        built = self.build()
        checkpoint = self.checkpoint(built.module)
        keep = bool(settings.value("skip_sharding"))
        writes = bool(settings.value("save_sharded_checkpoint")) and not keep
        kept = checkpoint if writes else None
        parts = CompiledParts(
            built,
            self.config,
            kept,
            self._tokenizer_folder(checkpoint),
            device,
            keep_weights=keep,
            draft=eagle_checkpoint(self.config, self.model_path) if writes else None,
            sub_models=sub_models,
        )
        write_compiled(folder, parts, self.progress)
        self.is_compiled = True

    def _own_sub_models(self) -> list[ModelWrapper]:
        """Return the sub-models with inputs of their own."""
        return own_sub_models(self.models, self.neuron_config if self.has_family() else None)

    def _traced_sub_models(self) -> tuple[TracedSubModels, Checkpoint]:
        """The programs and the weights of sub-models with inputs of their own."""
        model = self.model_config()
        with self.progress.task("tracing sub-models"):
            tp = cast(int, self.neuron_config.value("tp_degree"))
            traced = trace_sub_models(self._own_sub_models(), model, tp)
        state = self.get_state_dict(self.model_path, self.config)
        return traced, traced.checkpoint(StateDictCheckpoint(self.model_path, model, state))

    def _writer_of_sub_models(self) -> WriteFiles | None:
        """A writer of the sub-models with inputs of their own, if there are any."""
        if not (models := self._own_sub_models()):
            return None
        refuse_target(models, self.target())
        traced, checkpoint = self._traced_sub_models()
        return lambda folder: write_sub_models(folder, traced, checkpoint, self.progress)

    def _device(self, folder: Path, debug: bool) -> WriteFiles | None:
        """A writer of the programs for the Neuron target, if one is configured."""
        if (target := self.target()) is None:
            return None
        self._print_notes(target)
        with self.progress.task(f"lowering for {target}") as report:
            settings = self.compile_config(target)
            built = build_programs(self._built_config(), self.config, settings, report)
        options = plan_options(self.neuron_config, target, self.get_compiler_args() or "")
        programs = NeuronPrograms(built, self.models, options, debug)
        return compile_if_possible(programs, folder, self.progress)

    @in_attributes
    def load(
        self,
        compiled_model_path: str | Path,
        start_rank_id: int | None = None,
        local_ranks_size: int | None = None,
        skip_warmup: bool | None = None,
    ) -> Self:
        """Load a compiled folder; nothing is compiled.

        The weights are those of the folder. If it has none, those at :attr:`model_path` are
        prepared.

        Args:
            compiled_model_path: written by :meth:`compile`.
            start_rank_id: refused unless 0: all ranks run in this process.
            local_ranks_size: refused unless it is ``world_size``, the ranks of all stages.
            skip_warmup: leave out the first launch of each program; by default as the
                configuration says.

        Raises:
            GraphgenError: GG0908 for a folder without programs, GG0703 for one of another
                configuration, another version, or with damaged files, GG0904 for some of the
                ranks.
        """
        self._refuse_part_of_ranks(start_rank_id, local_ranks_size)
        folder = Path(compiled_model_path)
        if self.has_family():
            self._print_notes()
        if models := self._own_sub_models():
            self._sub_models = open_sub_models(folder, models, self.progress)
        if not self.has_family():
            self.is_compiled = True
            return self
        artifact = open_compiled(folder, self.compile_config(), self.model_config())
        configure(artifact.model.settings.tp * artifact.model.settings.pp_degree)
        programs = artifact.programs(self.progress)
        session = self._start(artifact.model, programs, self._weights(artifact))
        draft = folder / DRAFT_FOLDER
        self.draft_folder = draft if draft.is_dir() else None
        self.is_compiled = True
        quick = self.neuron_config.value("skip_warmup") if skip_warmup is None else skip_warmup
        if not quick:
            session.warm_up()
        return self

    def _refuse_part_of_ranks(self, start: int | None, count: int | None) -> None:
        """Refuse to load some of the ranks (GG0904)."""
        world = self.neuron_config.value("world_size")
        if start or count not in (None, world):
            raise GraphgenError(
                "GG0904",
                f"start_rank_id {start or 0} and local_ranks_size {count or world} of {world} "
                "ranks: an application runs all of them in its own process, whose inputs it takes",
                help="leave both out; 'graphgen launch --nnodes N -- generate FOLDER' starts "
                "processes with a part of the ranks each",
            )

    def _weights(self, artifact: Artifact) -> Mapping[str, object]:
        """The weights of an artifact, or of the checkpoint where it has none."""
        if artifact.has_weights:
            return artifact.weights(self.progress)
        checkpoint = self.checkpoint(artifact.model.module)
        return artifact.weights_from(checkpoint, self.progress)

    @in_attributes
    def load_weights(self, compiled_model_path: str | Path) -> None:
        """Replace the weights by those of a compiled folder; programs stay, the cache is emptied.

        If the folder has no weights, those at :attr:`model_path` are prepared.

        Raises:
            GraphgenError: GG0908 before :meth:`load` and for a folder without a model, GG0703 for
                weights of another layout.
        """
        running = self.running()
        artifact = open_folder(Path(compiled_model_path))
        if layout_hash(artifact.model.module) != layout_hash(running.model.module):
            raise GraphgenError(
                "GG0703",
                f"the weights in {compiled_model_path} have another layout than the programs read",
                help="compile the folder with the configuration of this application",
            )
        running.forget()
        running.session.load_weights(self._weights(artifact))

    @in_attributes
    def shard_weights(self, compiled_model_path: str | Path) -> None:
        """Write the weights at :attr:`model_path` into a folder, in place of those it has.

        A folder without a model gets one whose programs are not compiled yet.

        Raises:
            GraphgenError: GG0703 for a folder of another configuration, GG06xx for the checkpoint,
                GG0704 if the folder cannot be written.
        """
        folder = Path(compiled_model_path)
        if is_artifact(folder):
            artifact = open_compiled(folder, self.compile_config(), self.model_config())
            write_weights(artifact, self.checkpoint(artifact.model.module), self.progress)
            return
        built = self.build()
        checkpoint = self.checkpoint(built.module)
        parts = CompiledParts(
            built, self.config, checkpoint, self._tokenizer_folder(checkpoint), compile=False
        )
        write_compiled(folder, parts, self.progress)

    @in_attributes
    def to_cpu(self) -> Self:
        """Build and load the model in memory, in place of :meth:`compile` and :meth:`load`.

        Raises:
            GraphgenError: GG05xx for the model, GG06xx for its weights.
        """
        check_wrappers(self.models, self.neuron_config if self.has_family() else None)
        if models := self._own_sub_models():
            traced, state = self._traced_sub_models()
            self._sub_models = start_sub_models(traced, models, state, self.progress)
        if not self.has_family():
            return self
        built = self.build()
        checkpoint = self.checkpoint(built.module)
        weights = put_weights(weights_of(checkpoint, built.module), self.progress)
        self._start(built, ExecutableCache(built.module, self.progress), weights)
        return self

    def _start(
        self, model: BuiltModel, programs: ExecutableCache, weights: Mapping[str, object]
    ) -> Session:
        session = Session(programs, weights)
        capture = capture_from_environment()
        if capture is not None:
            session.observers.append(capture)
        self._running = ProgramForms(session, model)
        return session

    def flag_names(self) -> Mapping[str, str]:
        """The attribute of each flag of graphgen's, for errors."""
        return nxdi_names(self.neuron_config)

    def running(self) -> ProgramForms:
        """The loaded model (GG0908)."""
        return self.forms()

    def forms(self) -> ProgramForms:
        """The loaded model (GG0908), whatever has been started."""
        if self._running is None:
            raise GraphgenError(
                "GG0908",
                f"{type(self).__name__} is not loaded",
                help="compile(path) and load(path), or to_cpu()",
            )
        return self._running

    def reset(self) -> None:
        """Reset the state of the model; does nothing unless overridden."""

    # State dictionaries

    @classmethod
    def get_state_dict(cls, model_path: str, config: InferenceConfig) -> StateDict:
        """The weights of a checkpoint by name, converted by this class.

        The prefix ``_STATE_DICT_MODEL_PREFIX`` of names becomes ``_NEW_STATE_DICT_MODEL_PREFIX``.

        Args:
            model_path: the checkpoint.
            config: handed to :meth:`convert_hf_to_neuron_state_dict`.

        Returns:
            Name to tensor: torch tensors once torch is imported, otherwise NumPy arrays.
        """
        read = read_state_dict(model_path, cls.state_dict_prefixes(), config.to_hf())
        made = cls.convert_hf_to_neuron_state_dict(read, config)
        if getattr(config, "tie_word_embeddings", False):
            cls.update_state_dict_for_tied_weights(made)
        return made

    def state_dict(self) -> StateDict:
        """The weights at :attr:`model_path`, as :meth:`get_state_dict` names them."""
        return self.get_state_dict(self.model_path, self.config)

    @classmethod
    def model_cls(cls) -> type[NeuronBaseModel]:
        """The class of the model."""
        return cls._model_cls

    @classmethod
    def state_dict_prefixes(cls) -> tuple[str, str]:
        """The prefix of names in checkpoints, and the one that replaces it."""
        return cls._STATE_DICT_MODEL_PREFIX, cls._NEW_STATE_DICT_MODEL_PREFIX

    @staticmethod
    def convert_hf_to_neuron_state_dict(
        state_dict: StateDict, config: InferenceConfig
    ) -> StateDict:
        """The state dictionary under the names of the model's family; unchanged by default.

        Args:
            state_dict: as in the checkpoint, with the new prefix.
            config: the configuration.
        """
        return state_dict

    @staticmethod
    def update_state_dict_for_tied_weights(state_dict: StateDict) -> None:
        """Add what shares its tensor with another name; called for a model with a tied head.

        Does nothing unless overridden: a family reads the head of a tied model under the name of
        its embedding.
        """

    @staticmethod
    def load_hf_model(model_path: str) -> object:
        """The same model as transformers loads it."""

        return load_causal_lm(model_path)

    @classmethod
    def save_quantized_state_dict(cls, model_path: str, config: InferenceConfig) -> None:
        """Write a quantized checkpoint to ``quantized_checkpoints_path``, under AWS's names.

        Args:
            model_path: the checkpoint in floats.
            config: its NeuronConfig says where and how.

        Raises:
            GraphgenError: GG0908 without a path, GG0704 if the folder is taken, GG0705 for a scheme
                that does not exist, GG06xx for the checkpoint.
        """
        from graphgen.runtime.aws_nxdi.state_dict import save_quantized_state

        save_quantized_state(cls, model_path, config, TerminalProgress())

    @classmethod
    def generate_quantized_state_dict(cls, model_path: str, config: InferenceConfig) -> StateDict:
        """The quantized tensors of a checkpoint: ``X.weight`` and ``X.scale`` of each product.

        No model of transformers is loaded: :meth:`prepare_quantized_state_dict` gets an object
        whose ``state_dict()`` has the tensors.

        Args:
            model_path: the checkpoint in floats.
            config: its NeuronConfig says how to quantize.
        """
        from graphgen.runtime.aws_nxdi.state_dict import quantized_state

        return cls.prepare_quantized_state_dict(quantized_state(model_path, config))

    @classmethod
    def prepare_quantized_state_dict(cls, hf_model_quant: object) -> StateDict:
        """The state dictionary of a quantized model, torch's qint8 as int8 and scales.

        Args:
            hf_model_quant: has ``state_dict()``.
        """
        from graphgen.runtime.aws_nxdi.state_dict import prepared_state

        return prepared_state(hf_model_quant)


def _subject(note: str) -> str:
    """The attribute that a remark is about; all of it without one."""
    return note.partition(" = ")[0]


def load_causal_lm(model_path: str) -> object:
    """``AutoModelForCausalLM.from_pretrained(model_path)`` in f32 (GG0908 without transformers)."""
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise GraphgenError(
            "GG0908",
            f"load_hf_model needs transformers: {error}",
            help="pip install transformers torch",
        ) from error
    load = cast("Callable[[str], object]", AutoModelForCausalLM.from_pretrained)  # pyright: ignore[reportUnknownMemberType]
    return load(model_path)
