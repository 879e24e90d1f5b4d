"""HuggingFaceGenerationAdapter: transformers' ``generate`` over an application.

Importing this module imports torch and transformers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.attribute import Values
from graphgen.runtime.aws_config.flag_names import in_attributes, length_attribute, nxdi_names
from graphgen.runtime.aws_config.size_rows import sequences_of_chunks
from graphgen.runtime.aws_nxdi.assisted_decoding import (
    SpeculatingModel,
    decode_assisted,
    has_eagle,
    has_fused,
    open_speculator,
)
from graphgen.runtime.aws_nxdi.assisted_settings import (
    DRAFT_SETTINGS,
    AssistedSettings,
    check_assisted,
    end_rules,
    refuse_with_proposals,
    sampling_rows,
)
from graphgen.runtime.aws_nxdi.choice_settings import (
    device_rows,
    host_processors,
    ignore_padding,
    on_device_choice,
    refuse_host_only,
)
from graphgen.runtime.aws_nxdi.generate_numbers import check_numbers
from graphgen.runtime.aws_nxdi.generation_model import (
    AttributeValues,
    DoneRows,
    GenerationModel,
    ScoreProcessor,
)
from graphgen.runtime.aws_nxdi.prompt_rows import (
    PromptRows,
    check_mask,
    prompt_rows,
    repeated,
)
from graphgen.runtime.checkpoint.hub import is_plain_name, locate
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.sampling.sampling_params import settings_of_params


@dataclass(frozen=True, slots=True)
class RefusedArgument:
    """An argument of ``generate`` that requests a feature which is not built.

    Attributes:
        names: of the arguments, also fields of ``GenerationConfig``.
        feature: a noun phrase.
        remedy: what to do instead, an imperative.
        inactive: values that request nothing, beside ``None`` and ``False``.
    """

    names: Sequence[str]
    feature: str
    remedy: str
    inactive: tuple[object, ...] = ()


_ONE_TOKEN = "leave it out: greedy decoding and sampling give one token at a time"
_ONE_SEQUENCE = "num_beams=1, with do_sample=True and num_return_sequences for several answers"
_OWN_CACHE = "leave it out: the compiled programs hold the cache"
# In this order: the more special mode comes first.
REFUSED: tuple[RefusedArgument, ...] = (
    RefusedArgument(("assistant_early_exit", "is_assistant"),
                    "assisted decoding with some layers of the model",
                    "give assistant_model, an application with fewer layers"),
    RefusedArgument(("use_mtp",), "multi-token prediction", _ONE_TOKEN),
    RefusedArgument(("constraints", "force_words_ids"), "constrained beam search", _ONE_SEQUENCE),
    RefusedArgument(("num_beam_groups", "diversity_penalty"), "group beam search", _ONE_SEQUENCE,
                    (1, 0)),
    RefusedArgument(("penalty_alpha", "low_memory"), "contrastive search", _ONE_TOKEN, (0,)),
    RefusedArgument(("dola_layers",), "DoLa decoding", _ONE_TOKEN),
    RefusedArgument(("guidance_scale", "negative_prompt_ids", "negative_prompt_attention_mask"),
                    "classifier-free guidance", "leave it out", (1,)),
    RefusedArgument(("custom_generate",), "another generation loop", "leave it out"),
    RefusedArgument(("token_healing",), "token healing",
                    "leave it out, or end prompts at a word"),
    RefusedArgument(("use_cache",), "generation without a cache", _OWN_CACHE),
    RefusedArgument(("past_key_values",), "a cache of the caller", _OWN_CACHE),
    RefusedArgument(("cache_implementation", "cache_config", "max_cache_len"),
                    "a choice of the cache at run time", _OWN_CACHE),
    RefusedArgument(("prefill_chunk_size",), "prefill in chunks at run time",
                    "leave it out: a prompt is one step"),
    RefusedArgument(("compile_config",), "torch.compile",
                    "leave it out: the programs are compiled"),
    RefusedArgument(("continuous_batching_config",), "transformers' continuous batching",
                    "leave it out"),
    RefusedArgument(("output_attentions",), "attention weights as output", "leave it out"),
    RefusedArgument(("output_hidden_states",), "hidden states as output of generate",
                    "leave it out"),
    RefusedArgument(("inputs_embeds",), "embeddings as input of generate", "give input_ids"),
    RefusedArgument(("position_ids",), "a choice of positions",
                    "give attention_mask: a token's position is the number of tokens before it"),
    RefusedArgument(("synced_gpus",), "generation in step with other processes", "leave it out"),
)  # fmt: skip
_BY_NAME = {name: row for row in REFUSED for name in row.names}


def refuse_unbuilt_modes(arguments: Mapping[str, object]) -> None:
    """Refuse arguments of ``generate`` that request a feature which is not built (GG0904).

    Args:
        arguments: by name; those of other names pass.
    """
    for name, row in _BY_NAME.items():
        value = arguments.get(name)
        if name == "use_cache":
            value = value is False
        if value is None or value is False or _equals_one_of(value, row.inactive):
            continue
        raise GraphgenError(
            "GG0904",
            f"{name} of generate: {row.feature} is not built yet",
            help=row.remedy,
        )


def _equals_one_of(value: object, inactive: tuple[object, ...]) -> bool:
    """Compare plain numbers only: tensors and lists are requests."""
    return isinstance(value, int | float) and value in inactive


# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportIncompatibleMethodOverride=false


try:
    import torch
    from transformers import (
        AutoConfig,
        GenerationConfig,
        GenerationMixin,
        LogitsProcessorList,
        PreTrainedConfig,
        StoppingCriteriaList,
    )
    from transformers.generation import (
        GenerateBeamDecoderOnlyOutput,
        GenerateDecoderOnlyOutput,
        GenerationMode,
    )

    from graphgen.runtime.aws_nxdi.beam_search import BeamModel, check_beams
    from graphgen.runtime.aws_nxdi.steps_ahead import steps_ahead
    from graphgen.runtime.aws_nxdi.token_loop import TokenLoop, TokenStreamer
except ImportError as _error:
    raise GraphgenError(
        "GG0908",
        f"HuggingFaceGenerationAdapter needs torch and transformers: {_error}",
        help="pip install torch transformers",
    ) from _error


class HuggingFaceGenerationAdapter(GenerationMixin):
    """An application as a model of transformers that generates.

    ``generate`` takes transformers' arguments: greedy decoding, sampling and beam search with all
    logits processors, stopping criteria and streamers. Each call starts with empty rows; a beam
    takes a row.

    Prompts may be padded on either side: a token's position is the number of tokens before it in
    its row, and new tokens stand after the prompts as given. Right-padded prompts therefore give
    the tokens of left-padded ones, where transformers' own models count padding. ``generate`` takes
    ``sampling_params`` too, f32 [B,3] of top_k, top_p and temperature, instead of those settings.

    Args:
        model: a loaded application.

    Attributes:
        neuron_model: the application.
        neuron_config: its NeuronConfig.
        config: its model as a configuration of transformers.
        generation_config: the defaults, of ``generation_config.json`` or of the model.

    Raises:
        GraphgenError: GG0902 for an object that is not an application.
    """

    main_input_name = "input_ids"
    base_model_prefix = "neuron_model"
    _is_stateful = False

    def __init__(self, model: GenerationModel) -> None:
        missing = [
            name for name in ("forward", "neuron_config", "config") if not hasattr(model, name)
        ]
        if missing:
            raise GraphgenError(
                "GG0902",
                f"HuggingFaceGenerationAdapter got a {type(model).__name__}, which has no "
                f"{missing[0]}",
                help="give a loaded application, such as NeuronLlamaForCausalLM",
            )
        self.neuron_model = model
        self.neuron_config = model.neuron_config
        attributes = dict(model.config.to_hf())
        self.config = _pretrained_config(attributes)
        self.generation_config = _generation_config(model.model_path, attributes)

    @property
    def device(self) -> torch.device:
        """The device of inputs and outputs."""
        return torch.device("cpu")

    @property
    def on_device_sampling(self) -> bool:
        """True if the programs choose the tokens."""
        return self.neuron_config.value("on_device_sampling_config") is not None

    @property
    def padding_side(self) -> str:
        """The padded side of shorter prompts, ``left`` or ``right``, for tokenizers."""
        return str(self.neuron_config.value("padding_side"))

    @classmethod
    def can_generate(cls) -> bool:
        """True: transformers tests it before it generates."""
        return True

    @classmethod
    def is_remote_code(cls) -> bool:
        """False: the class is not part of a checkpoint."""
        return False

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        # The cache is the application's.
        return False

    def eval(self) -> HuggingFaceGenerationAdapter:
        """The adapter itself: an application only evaluates."""
        return self

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        seq_ids: torch.Tensor | None = None,
        sampling_params: torch.Tensor | None = None,
        input_capture_hook: Callable[..., None] | None = None,
        adapter_ids: object = None,
    ) -> object:
        """One call of the application; see its ``forward``."""
        return self.neuron_model.forward(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            seq_ids=seq_ids,
            sampling_params=sampling_params,
            input_capture_hook=input_capture_hook,
            adapter_ids=adapter_ids,
        )

    __call__ = forward

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        sampling_params: torch.Tensor | None = None,
        input_capture_hook: Callable[..., None] | None = None,
        adapter_ids: object = None,
    ) -> dict[str, object]:
        """The inputs of :meth:`forward` for prompts; its arguments are those of ``generate``."""
        return {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "sampling_params": sampling_params,
            "input_capture_hook": input_capture_hook,
            "adapter_ids": adapter_ids,
        }

    @in_attributes
    def generate(
        self,
        inputs: torch.Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        logits_processor: LogitsProcessorList | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        **kwargs: object,
    ) -> torch.Tensor | GenerateDecoderOnlyOutput:
        """Generate, as transformers' ``generate`` does; see its documentation for all arguments.

        Args:
            inputs: integers [B,S], prompts padded on either side.
            generation_config: the settings; ``kwargs`` replace them one by one.
            logits_processor: applied beside those that the settings request.
            stopping_criteria: applied beside those that the settings request.
            kwargs: fields of ``GenerationConfig``, ``attention_mask`` [B,S], ``sampling_params``
                f32 [B,3] or [1,3], ``adapter_ids`` as ``forward`` takes them, ``streamer``,
                ``prefix_allowed_tokens_fn``, ``tokenizer``, and
                ``assistant_model``, an application that proposes tokens, or its adapter.

        Returns:
            Integers [B,S+N]: prompts as given and new tokens, padded after the end of sequence; or
            with ``return_dict_in_generate`` an output with ``sequences``.

        Raises:
            GraphgenError: GG0904 for a mode that is not built, GG0705 for more sequences than the
                compiled batch and for settings of another kind, GG0701 for more tokens than the
                cache holds, GG0903 for settings that the programs do not implement, GG0402 and
                GG0702 for the inputs.
            ValueError: from transformers, for arguments it refuses.
        """
        given = {} if generation_config is None else vars(generation_config)
        check_numbers({**given, **kwargs})
        refuse_unbuilt_modes(kwargs)
        self._limit_new_tokens(generation_config, kwargs)
        ids = inputs if inputs is not None else kwargs.get("input_ids")
        mask = kwargs.get("attention_mask")
        # Before transformers drops a mask without padding.
        if isinstance(ids, torch.Tensor) and isinstance(mask, torch.Tensor):
            check_mask(ids, mask)
        with _without_padding_warning():
            # transformers types its mixin as a model with a mixin.
            return super().generate(  # pyright: ignore
                inputs, generation_config, logits_processor, stopping_criteria, **kwargs
            )

    def _limit_new_tokens(self, given: GenerationConfig | None, kwargs: dict[str, object]) -> None:
        """Set the configured limit of new tokens in ``kwargs`` if the caller gives none."""
        most = self.neuron_config.value("max_new_tokens")
        configs = [given, self.generation_config]
        names = ("max_length", "max_new_tokens")
        limits = [kwargs.get(name) for name in names]
        limits += [getattr(config, name, None) for config in configs for name in names]
        if most is not None and all(limit is None for limit in limits):
            kwargs["max_new_tokens"] = most

    def flag_names(self) -> Mapping[str, str]:
        """The attribute of each flag of graphgen's, for errors."""
        return nxdi_names(self.neuron_config)

    def generate_batch(self, *args: object, **kwargs: object) -> NoReturn:
        """Refused: transformers' continuous batching runs PyTorch models (GG0904)."""
        raise GraphgenError(
            "GG0904",
            "transformers' continuous batching runs PyTorch models, not compiled programs",
            help="call generate with at most batch_size prompts",
        )

    def init_continuous_batching(self, *args: object, **kwargs: object) -> NoReturn:
        """Refused, as :meth:`generate_batch` is (GG0904)."""
        self.generate_batch()

    def continuous_batching_context_manager(self, *args: object, **kwargs: object) -> NoReturn:
        """Refused, as :meth:`generate_batch` is (GG0904)."""
        self.generate_batch()

    def _prepare_generation_config(
        self, *args: Any, **kwargs: Any
    ) -> tuple[GenerationConfig, dict[str, Any]]:
        generation, others = super()._prepare_generation_config(*args, **kwargs)  # pyright: ignore
        refuse_unbuilt_modes({**vars(generation), **others})
        configs = [args[0] if args else None, self.generation_config]
        for name in DRAFT_SETTINGS:
            # transformers has filled in defaults.
            given = [kwargs.get(name), *(getattr(config, name, None) for config in configs)]
            setattr(generation, name, next((v for v in given if v is not None), None))
        return generation, others

    def _validate_generation_mode(self, *args: Any, **kwargs: Any) -> None:
        mode, _, arguments = args
        if mode != GenerationMode.ASSISTED_GENERATION:
            super()._validate_generation_mode(*args, **kwargs)  # pyright: ignore
            return
        # transformers' loop has one sequence and one vocabulary; this one has not.
        if arguments.get("streamer") is not None:
            refuse_with_proposals("streamer", "leave streamer out")
        if arguments.get("assistant_tokenizer") is not None:
            refuse_with_proposals("assistant_tokenizer", "give a draft with the same tokenizer")

    def _expand_inputs_for_generation(
        self, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        params, ids = kwargs.get("sampling_params"), kwargs.get("input_ids")
        if params is not None and ids is not None:
            params = torch.as_tensor(params, dtype=torch.float32)
            same = params.ndim == 2 and len(params) == 1
            kwargs["sampling_params"] = params.expand(len(ids), -1) if same else params
        if (ids := kwargs.get("adapter_ids")) is not None:
            kwargs["adapter_ids"] = repeated(ids, kwargs.get("expand_size", 1))
        return super()._expand_inputs_for_generation(*args, **kwargs)  # pyright: ignore

    def _sample(
        self,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        streamer: TokenStreamer | None = None,
        **kwargs: object,
    ) -> torch.Tensor | GenerateDecoderOnlyOutput:
        """The loop that ``generate`` calls for greedy decoding and sampling."""
        if has_eagle(self.neuron_model) or has_fused(self.neuron_model):
            if streamer is not None:
                refuse_with_proposals(
                    "a streamer", "leave it out, or set enable_fused_speculation=False"
                )
            given = (input_ids, logits_processor, stopping_criteria, generation_config)
            return self._assisted_decoding(*given, **kwargs)
        prompts = self._prompts(input_ids, kwargs.get("attention_mask"))
        self._check_sizes(prompts.lengths, input_ids, generation_config)
        params = cast("torch.Tensor | None", kwargs.get("sampling_params"))
        rows, processors = len(input_ids), cast("Sequence[ScoreProcessor]", logits_processor)
        ignore_padding(processors, prompts.padding)
        device = self.neuron_config.value("on_device_sampling_config")
        if device is not None:
            gives = bool(self.neuron_config.value("output_logits"))
            refuse_host_only(processors, generation_config, gives_logits=gives)
            device = cast(AttributeValues, device)
            params = on_device_choice(device, generation_config, params, rows).sampling_params
        elif params is not None:
            settings = settings_of_params(params.numpy(), rows)
            processors = host_processors(processors, generation_config, settings)
            params = None
        ends = any(hasattr(rule, "eos_token_id") for rule in stopping_criteria)
        hook = cast("Callable[..., None] | None", kwargs.get("input_capture_hook"))
        loop = TokenLoop(
            self.neuron_model,
            prompts,
            processors,
            cast(DoneRows, stopping_criteria),
            generation_config,
            getattr(generation_config, "_pad_token_tensor", None) if ends else None,
            streamer,
            params,
            hook,
            kwargs.get("adapter_ids"),
        )
        # Tokens alone stay on the devices: captured inputs and logits are the host's.
        reads = hook is not None or loop.logits is not None
        asynchronous = None if reads else self.neuron_model
        with (
            _torch_numbers(self.neuron_model),
            _one_torch_thread(),
            steps_ahead(asynchronous, params) as loop.ahead,
        ):
            sequences = loop.run()
        if not generation_config.return_dict_in_generate:
            return sequences
        parts: dict[str, Any] = {"scores": loop.scores, "logits": loop.logits}
        return GenerateDecoderOnlyOutput(sequences=sequences, **parts)  # pyright: ignore[reportArgumentType]

    def _beam_search(
        self,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **kwargs: object,
    ) -> torch.Tensor | GenerateBeamDecoderOnlyOutput:
        """The search that ``generate`` calls for beams: transformers' own, over this cache."""
        if has_eagle(self.neuron_model) or has_fused(self.neuron_model):
            refuse_with_proposals("num_beams", "leave it out")
        check_beams(self.neuron_model, kwargs.get("sampling_params"))
        prompts = self._prompts(input_ids, kwargs.get("attention_mask"))
        self._check_sizes(prompts.lengths, input_ids, generation_config)
        processors = cast("Sequence[ScoreProcessor]", logits_processor)
        ignore_padding(processors, prompts.padding)
        hook = cast("Callable[..., None] | None", kwargs.get("input_capture_hook"))
        beams = BeamModel(self.neuron_model, prompts, self.config, kwargs.get("adapter_ids"), hook)
        with _one_torch_thread():
            return beams.search(logits_processor, stopping_criteria, generation_config)

    def _assisted_decoding(
        self,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        assistant_model: object = None,
        **kwargs: object,
    ) -> torch.Tensor | GenerateDecoderOnlyOutput:
        """The loop that ``generate`` calls for a draft model and for prompt lookup."""
        settings = cast(AssistedSettings, generation_config)
        check_assisted(settings, kwargs.get("input_capture_hook"))
        prompts = self._prompts(input_ids, kwargs.get("attention_mask"))
        self._check_sizes(prompts.lengths, input_ids, generation_config)
        params = cast("torch.Tensor | None", kwargs.get("sampling_params"))
        choices = self._choices(
            cast("Sequence[ScoreProcessor]", logits_processor),
            generation_config,
            params,
            len(input_ids),
        )
        ends, target = end_rules(stopping_criteria), cast(SpeculatingModel, self.neuron_model)
        new = ends.length - input_ids.shape[1]
        needs = [size + new - 1 for size in prompts.lengths.tolist()]
        pad = getattr(generation_config, "_pad_token_tensor", None) if ends.tokens else None
        with _one_torch_thread():
            speculator = open_speculator(target, assistant_model, settings, needs)
            sequences = decode_assisted(
                target, speculator, prompts, choices, ends, pad, kwargs.get("adapter_ids")
            )
        if not generation_config.return_dict_in_generate:
            return sequences
        return GenerateDecoderOnlyOutput(sequences=sequences)  # pyright: ignore[reportArgumentType]

    def _choices(
        self,
        processors: Sequence[ScoreProcessor],
        how: GenerationConfig,
        params: torch.Tensor | None,
        rows: int,
    ) -> list[Sampling]:
        """The sampling settings of each row, where tokens are proposed."""
        device = self.neuron_config.value("on_device_sampling_config")
        if device is not None:
            refuse_host_only(processors, how, gives_logits=False)
            on_device_choice(cast(AttributeValues, device), how, params, rows)
        settings = None if params is None else settings_of_params(params.numpy(), rows)
        if settings is not None and device is None:
            host_processors(processors, how, settings)
        seed = int(torch.randint(1 << 62, (1,))) if how.do_sample else 0
        made = sampling_rows(
            processors, settings, rows=rows, do_sample=bool(how.do_sample), seed=seed
        )
        if device is None:
            return made
        return device_rows(made, cast(SpeculatingModel, self.neuron_model).running().session)

    def _prompts(self, input_ids: torch.Tensor, mask: object) -> PromptRows:
        """The prompts, cut where they are too long and the configuration allows it."""
        found = prompt_rows(input_ids, cast("torch.Tensor | None", mask))
        most = getattr(self.neuron_model, "prompt_limit", None)
        if most is None:
            return found
        cast(Any, self.neuron_model).note_cut(int((found.lengths > most).sum()))
        return found.cut(most)

    def _check_sizes(self, lengths: torch.Tensor, ids: torch.Tensor, how: GenerationConfig) -> None:
        """Refuse more sequences or tokens than the programs hold (GG0705, GG0701)."""
        chunks = sequences_of_chunks(cast(Values, self.neuron_config))
        batch = chunks or cast(int, self.neuron_config.value("batch_size"))
        if len(ids) > batch:
            answers = max(how.num_return_sequences or 1, how.num_beams or 1)
            times = f" ({len(ids) // answers} prompts x {answers})" if answers > 1 else ""
            more = "ChunkedPrefillConfig(max_num_seqs=" if chunks else "NeuronConfig(batch_size="
            raise GraphgenError(
                "GG0705",
                f"{len(ids)} sequences{times}, but the programs were compiled for {batch}",
                help=f"compile with {more}{len(ids)}), or give fewer prompts",
            )
        slots = cast(int, self.neuron_config.value("max_length"))
        longest, new = int(lengths.max()), cast(int, how.max_length) - ids.shape[1]
        # The last new token is not an input any more.
        if longest + new - 1 > slots:
            raise GraphgenError(
                "GG0701",
                f"a prompt of {longest} tokens and {new} new ones exceed {slots} positions",
                help=f"generate with max_new_tokens={max(slots - longest + 1, 0)} at most, or "
                f"compile with {self._compile_for(longest + new)}",
            )

    def _compile_for(self, length: int) -> str:
        """The configuration of sequences of ``length`` tokens."""
        config = self.neuron_config
        sizes = [length_attribute(config)]
        if cast(int, config.value("seq_len")) >= length:
            sizes = ["max_length"]
        elif sizes != ["seq_len"]:
            sizes.insert(0, "seq_len")
        return f"NeuronConfig({', '.join(f'{name}={length}' for name in sizes)})"


def _pretrained_config(attributes: Mapping[str, object]) -> PreTrainedConfig:
    """A model's attributes as a configuration of transformers."""
    others: dict[str, Any] = {k: v for k, v in attributes.items() if k != "model_type"}
    try:
        return AutoConfig.for_model(str(attributes.get("model_type")), **others)
    except ValueError:
        # A family of the user's own.
        return PreTrainedConfig(**others)


def _generation_config(model_path: str, attributes: Mapping[str, object]) -> GenerationConfig:
    """The defaults that a checkpoint has for generation."""
    try:
        folder = locate(model_path, plain_names=True) or Path(model_path)
    except GraphgenError:
        if not is_plain_name(model_path):
            raise
        # A word may name a folder that is gone, or one that a state dictionary stands for.
        folder = Path(model_path)
    if (folder / "generation_config.json").is_file():
        return GenerationConfig.from_pretrained(folder)
    return GenerationConfig.from_model_config(dict(attributes))


@contextmanager
def _torch_numbers(model: GenerationModel) -> Generator[None]:
    """Let programs that draw take their random numbers from torch's generator, as the host does."""
    before = model.random
    model.random = lambda count: torch.rand(count, dtype=torch.float64).numpy()
    try:
        yield
    finally:
        model.random = before


@contextmanager
def _one_torch_thread() -> Generator[None]:
    """Run torch in the calling thread alone.

    Threads of torch spin between its calls, on the cores that the compiled programs run on: with
    them sampling took 15 times as long on two cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _without_padding_warning() -> Generator[None]:
    """Leave out transformers' warning about right padding: the adapter's results are the same."""
    logger = logging.getLogger("transformers.generation.utils")

    def keep(record: logging.LogRecord) -> bool:
        return "right-padding was detected" not in record.getMessage()

    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
