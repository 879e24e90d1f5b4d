"""NeuronBaseForCausalLM: the forward function of causal language models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.runtime.aws_config.flag_names import in_attributes
from graphgen.runtime.aws_config.inference_config import InferenceConfig
from graphgen.runtime.aws_config.lora_settings import lora_config, with_adapter_files
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.application_base import NeuronApplicationBase
from graphgen.runtime.aws_nxdi.block_inputs import BLOCK_ARGUMENTS, read_arrays
from graphgen.runtime.aws_nxdi.caller_blocks import BlockCall, CallerBlocks, caller_blocks
from graphgen.runtime.aws_nxdi.forward_inputs import RowInput, cut_rows, read_rows
from graphgen.runtime.aws_nxdi.program_forms import ProgramForms
from graphgen.runtime.aws_nxdi.row_adapters import RowAdapters, refuse_adapters
from graphgen.runtime.aws_nxdi.row_sampling import RandomNumbers, row_draw
from graphgen.runtime.aws_nxdi.steps_ahead import ForwardAhead, hands_over
from graphgen.runtime.aws_nxdi.user_arrays import UserArray, as_numpy, as_user_array
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import BuiltModel
from graphgen.runtime.session.session import RowResults, Session, check_token_ids, reserve_blocks
from graphgen.runtime.session.step_call import Draw, packed

Embeddings = npt.NDArray[np.float32]
# Outputs with a column for each token, as ``router_logits.0``.
_PER_TOKEN = ("hidden_states", "router_logits", "expert_index")


def run_rows(
    session: Session,
    rows: Sequence[RowInput],
    width: int,
    draw: Draw | None,
    embeds: Embeddings | None = None,
) -> RowResults:
    """The results of each row of a call, in its order.

    Rows with several tokens and rows with one go through different programs, and so do prompts and
    parts that continue a sequence: each kind is a step of its own, and so is each turn.

    Args:
        session: the programs.
        rows: of the call.
        width: S, columns of the call; outputs per token have as many.
        draw: sampling inputs of each row, for programs that sample.
        embeds: f32 [B,S,E], for programs that take embeddings.
    """
    kinds: dict[tuple[int, bool, bool], list[int]] = {}
    for index, row in sorted(enumerate(rows), key=lambda item: item[1].turn):
        several = len(row.tokens) > 1
        kinds.setdefault((row.turn, several, several and row.start > 0), []).append(index)
    numbered = {f"{name}.0" for name in _PER_TOKEN}
    if len(kinds) == 1 and numbered.isdisjoint(session.module.interface):
        # As it is, without a copy: logits of some rows are megabytes.
        return _step(session, rows, range(len(rows)), draw, embeds)
    made: dict[str, npt.NDArray[np.generic]] = {}
    lines = max(row.line for row in rows) + 1
    for chosen in kinds.values():
        part = _step(session, rows, chosen, draw, embeds)
        for name, array in part.outputs.items():
            per_token = name.partition(".")[0] in _PER_TOKEN
            shape = (lines, width, *array.shape[2:])
            if not per_token:
                shape = (len(rows), *array.shape[1:])
            home = made.setdefault(name, np.zeros(shape, array.dtype))
            if not per_token:
                home[chosen] = array
                continue
            for place, index in enumerate(chosen):
                home[rows[index].line, _columns(rows[index])] = array[
                    place, : len(rows[index].tokens)
                ]
    return RowResults(made)


def _columns(row: RowInput) -> slice:
    """The columns of a row's tokens in the call."""
    return slice(row.column, row.column + len(row.tokens))


def _step(
    session: Session,
    rows: Sequence[RowInput],
    chosen: Sequence[int],
    draw: Draw | None,
    embeds: Embeddings | None,
) -> RowResults:
    """Run some rows of a call; ``chosen`` are their places in it."""
    picked = [rows[index] for index in chosen]
    tokens, positions = packed([row.tokens for row in picked], [row.start for row in picked])
    given: npt.NDArray[np.int32 | np.float32] = tokens
    if embeds is not None:
        given = np.zeros((*tokens.shape, embeds.shape[2]), np.float32)
        for place, row in enumerate(picked):
            given[place, : len(row.tokens)] = embeds[row.line, _columns(row)]
    seq_ids = np.array([row.row for row in picked], np.int32)
    part = None if draw is None else draw.of(np.array(chosen, np.intp))
    return session.step(given, positions, seq_ids, part)


# Argument to feature and remedy.
_SPECULATION = ("fused and tree speculation", "leave it out")
_IMAGES = ("multimodal input", "leave it out")
_ACTIVATIONS = ("capture of activations", "leave it out")
UNBUILT: Mapping[str, tuple[str, str]] = {
    "prev_hidden": _SPECULATION,
    "medusa_args": _SPECULATION,
    "accepted_indices": _SPECULATION,
    "current_length": _SPECULATION,
    "medusa_mask": _SPECULATION,
    "scatter_index": _SPECULATION,
    "active_mask": _SPECULATION,
    "rotary_position_ids": _SPECULATION,
    "past_key_values": ("a cache of the caller", "leave it out: the cache stays on the device"),
    "labels": ("training", "leave it out"),
    "use_cache": ("generation without a cache", "leave it out"),
    "output_attentions": ("attention weights as output", "leave it out"),
    "llava_args": _IMAGES,
    "vision_embeddings": _IMAGES,
    "vision_mask": _IMAGES,
    "tf_args": _ACTIVATIONS,
    "tensor_capture_hook": _ACTIVATIONS,
}


# Arguments that are built, for the hint of a misspelled one.
_BUILT = (
    *("inputs_embeds", "adapter_ids", "output_hidden_states", "input_capture_hook"),
    *BLOCK_ARGUMENTS,
)
# Values that request nothing.
_INACTIVE: Mapping[str, object] = {
    "use_cache": True,
    "output_attentions": False,
}


def refuse_unbuilt(given: Mapping[str, object]) -> None:
    """Refuse arguments that request something; ``None`` requests nothing.

    Raises:
        GraphgenError: GG0904 for a feature that is not built, GG0901 for an unknown argument.
    """
    for name, value in given.items():
        if name not in UNBUILT:
            raise GraphgenError(
                "GG0901",
                f"forward has no argument '{name}'",
                help=did_you_mean(name, (*_BUILT, *UNBUILT)) or "see NeuronBaseForCausalLM.forward",
            )
        if value is not None and value is not _INACTIVE.get(name):
            feature, remedy = UNBUILT[name]
            what = f"{name} of forward: {feature} is not built yet"
            raise GraphgenError("GG0904", what, help=remedy)


# Called with the inputs of forward: input_ids, attention_mask, position_ids, seq_ids, and
# sampling_params, as they were given.
CaptureHook = Callable[[object, object, object, object, object], None]


@dataclass(frozen=True, slots=True)
class CausalLMOutput:
    """The result of a call, in torch or NumPy as ``input_ids`` was.

    Attributes:
        logits: f32 [B,1,V], of each row's last token, or [1,n,V] of that of each chunk; ``None``
            where programs choose tokens, unless ``output_logits`` is set.
        tokens: integers [B] or [n], the tokens that follow; ``None`` without on-device sampling.
        hidden_states: f32 [B,S,E] each, as in transformers: before each layer, and after the last
            norm; zeros at padding. ``None`` unless ``output_hidden_states`` is set.
        router_logits: f32 [B,S,E] of each mixture of experts; zeros at padding. ``None`` unless the
            configuration has ``return_router_logits``.
        expert_index: integers [B,S,K] of each mixture, the experts of a token; zeros at padding.
            ``None`` unless the configuration has ``return_expert_index``.
    """

    logits: UserArray | None = None
    tokens: UserArray | None = None
    hidden_states: tuple[UserArray, ...] | None = None
    router_logits: tuple[UserArray, ...] | None = None
    expert_index: tuple[UserArray, ...] | None = None

    def __iter__(self) -> Iterator[UserArray | tuple[UserArray, ...]]:
        """The parts that are there, as in a tuple."""
        parts = (self.logits, self.tokens, self.hidden_states)
        parts += (self.router_logits, self.expert_index)
        return iter([part for part in parts if part is not None])

    def __getitem__(self, index: int) -> UserArray | tuple[UserArray, ...]:
        """A part of those that are there."""
        return list(self)[index]


class NeuronBaseForCausalLM(NeuronApplicationBase):
    """An application for text generation: prompts in, logits or tokens out.

    Attributes:
        kv_cache_populated: a prompt was run since the last :meth:`reset`.
        random: gives the random numbers of on-device sampling: a count to f32 numbers in [0, 1).
        adapters: those of ``lora_config``, once the model is loaded; ``None`` for none.
        blocks: those that callers hand out, once a model that takes their tables is loaded.
    """

    def __init__(
        self,
        model_path: str | Path,
        config: InferenceConfig | None = None,
        neuron_config: NeuronConfig | None = None,
    ) -> None:
        super().__init__(model_path, config, neuron_config)
        self.adapters: RowAdapters | None = None
        self.blocks: CallerBlocks | None = None
        self.kv_cache_populated = False
        self.random: RandomNumbers = np.random.default_rng().random
        self._ahead = ForwardAhead(self)

    @classmethod
    def model_type(cls) -> str:
        """The ``model_type`` of the configurations that the class runs."""
        return cls._model_cls.registered_family().model_type

    def compile_config(self, target: str = "cpu") -> CompileConfig:
        """See :class:`NeuronApplicationBase`; with what the files of adapters need."""
        made = super().compile_config(target)
        return with_adapter_files(made, self.neuron_config, self.model_config())

    def _start(
        self, model: BuiltModel, programs: ExecutableCache, weights: Mapping[str, object]
    ) -> Session:
        session, lora = super()._start(model, programs, weights), lora_config(self.neuron_config)
        self.adapters = None if lora is None else RowAdapters(session, model, lora)
        self._ahead = ForwardAhead(self)
        self.blocks = caller_blocks(session, self.neuron_config)
        return session

    @in_attributes
    def forward(
        self,
        input_ids: object = None,
        seq_ids: object = None,
        attention_mask: object = None,
        position_ids: object = None,
        sampling_params: object = None,
        *,
        inputs_embeds: object = None,
        adapter_ids: object = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        input_capture_hook: CaptureHook | None = None,
        slot_mapping: object = None,
        block_table: object = None,
        full_context_lens: object = None,
        computed_context_lens: object = None,
        **others: object,
    ) -> CausalLMOutput | tuple[object, ...]:
        """Run prompts, or one more token of sequences; rows of the cache not named stay.

        A row whose first position is 0 is a prompt and replaces the contents of its cache row;
        another one is the next token of its sequence. With ``is_prefix_caching`` or
        ``is_chunked_prefill`` a call may bring a table of blocks, of which sequences share some;
        ``input_ids`` [1,T] of chunks has those of n sequences side by side.

        Args:
            input_ids: integers [B,S], padded on either side; B at most the compiled batch.
            seq_ids: [B], row of the cache of each sequence, in any order; by default 0, 1, ...
            attention_mask: [B,S] for prompts, [B,A] over earlier tokens too; 1 for tokens.
            position_ids: [B,S], counted from 0 at the first token; the value at padding is ignored.
            sampling_params: f32 [B,3] of top_k, top_p, temperature, for dynamic on-device sampling.
            inputs_embeds: f32 [B,S,E] in place of ``input_ids``, as transformers takes them.
            adapter_ids: [B], of each prompt its adapter's id or place among ``lora_ckpt_paths``
                from 0, ``None`` or -1 for the base model. A sequence keeps what its prompt had.
            output_hidden_states: return the hidden states of every token too.
            return_dict: False for a tuple.
            input_capture_hook: called with input_ids, attention_mask, position_ids, seq_ids and
                sampling_params.
            slot_mapping: [B,N] or [T], ``block * pa_block_size + offset`` of new tokens, or -1.
            block_table: [B,M] or [n,M], each sequence's blocks in order of positions; -1 for none.
            full_context_lens: [B,1] or [n], tokens of each sequence after the call.
            computed_context_lens: those of them that its blocks hold.
            others: AWS's arguments for features that are not built, which request nothing.

        Raises:
            GraphgenError: GG0908 before the model is loaded, GG0904, GG0903 and GG0901 for
                arguments, GG0402 for inputs that do not fit, GG0705 for an adapter, GG0701 for a
                sequence without room, GG0702 for a row without a token, GG0706 for its tokens.
        """
        self.forms()
        refuse_unbuilt(others)
        ids, embeds, like = _tokens_or_embeddings(input_ids, inputs_embeds)
        if input_capture_hook is not None:
            input_capture_hook(like, attention_mask, position_ids, seq_ids, sampling_params)
        blocks = (slot_mapping, block_table, full_context_lens, computed_context_lens)
        rows, call = self._sequences(ids, attention_mask, position_ids, seq_ids, blocks)
        forms = (as_numpy(ids).shape[1], bool(output_hidden_states), embeds)
        result = self._run(rows, sampling_params, adapter_ids, call, forms)
        return _output(result, like, bool(call and call.chunks), return_dict)

    def running(self) -> ProgramForms:
        """The loaded model (GG0908); a step that ``async_mode`` started is taken back."""
        running = self.forms()
        self._ahead.forget(running.session)
        return running

    def hands_over(self) -> bool:
        """True if the programs hand the tokens of a step to the next one on the devices."""
        return hands_over(self.forms().session)

    @property
    def _goes_ahead(self) -> bool:
        """True if calls of ``forward`` start the step that follows; ``generate`` has its own."""
        return bool(self.neuron_config.value("async_mode")) and not self.starts_ahead

    def _run(
        self,
        rows: Sequence[RowInput],
        sampling_params: object,
        adapter_ids: object,
        call: BlockCall | None,
        forms: tuple[int, bool, Embeddings | None],
    ) -> RowResults:
        """The results of the rows of a call; ``async_mode`` starts the step after it.

        Args:
            rows: with new tokens.
            sampling_params, adapter_ids: of ``forward``.
            call: brings the blocks of the rows; ``None`` for none.
            forms: columns of the call, whether hidden states are returned, and embeddings.
        """
        self.note_async_mode()
        width, hidden, embeds = forms
        plain = not hidden and embeds is None and call is None
        ahead = self._ahead if plain and self._goes_ahead else None
        if ahead is not None and all(row.start for row in rows):
            self._give_adapters(rows, adapter_ids, begins=False)
            done = ahead.results(rows, sampling_params, self.forms().session)
            if done is not None:
                return done
        draw = self._prepare_rows(rows, sampling_params, adapter_ids, call)
        taken = embeds is not None
        with self.running().chosen(hidden_states=hidden, inputs_embeds=taken) as session:
            result = run_rows(session, rows, width, draw, embeds)
        self.kv_cache_populated = True
        if ahead is not None:
            ahead.after(rows, sampling_params, session, result)
        return call.done(result) if call else result

    @property
    def prompt_limit(self) -> int | None:
        """Tokens that longer prompts are cut to, where the configuration allows it."""
        if not self.neuron_config.value("allow_input_truncation"):
            return None
        return max(self.forms().model.settings.context)

    def _rows(self, *given: object) -> list[RowInput]:
        """The rows of a call, cut where prompts are too long and the configuration allows it."""
        rows = read_rows(*given, lengths=self._ahead.lengths(self.forms().session))
        if (most := self.prompt_limit) is None:
            return rows
        made, cut = cut_rows(rows, most)
        self.note_cut(cut)
        return made

    def note_cut(self, count: int) -> None:
        """Print that prompts were cut, if any were."""
        if count:
            shown = "a prompt is" if count == 1 else f"{count} prompts are"
            note = f"{shown} cut to the first {self.prompt_limit} tokens: allow_input_truncation"
            print(f"note: {note}", file=sys.stderr)

    def _sequences(
        self, ids: object, mask: object, places: object, row_ids: object, given: Sequence[object]
    ) -> tuple[Sequence[RowInput], BlockCall | None]:
        """The rows of a call, and the call, where it brings their blocks.

        Args:
            ids, mask, places, row_ids: ``input_ids``, ``attention_mask``, ``position_ids`` and
                ``seq_ids``.
            given: the values of :data:`BLOCK_ARGUMENTS`.

        Raises:
            GraphgenError: GG0908, GG0903 for a model that takes no table, otherwise as of
                :meth:`CallerBlocks.call` and :meth:`CallerBlocks.check_ended`.
        """
        named: dict[str, object] = dict(zip(BLOCK_ARGUMENTS, given, strict=True))
        found = [name for name, value in named.items() if value is not None]
        if not found:
            if self.blocks is not None:
                self.blocks.check_ended()
            return self._rows(ids, mask, places, row_ids), None
        if self.blocks is None:
            raise GraphgenError(
                "GG0903",
                f"{found[0]} of forward needs is_prefix_caching or is_chunked_prefill",
                help="compile with NeuronConfig(is_block_kv_layout=True, is_prefix_caching=True), "
                f"or leave {found[0]} out: sequences get blocks by seq_ids",
            )
        self.running()
        call = self.blocks.call(read_arrays(ids, places, mask, named), row_ids)
        return call.rows, call

    def _prepare_rows(
        self,
        rows: Sequence[RowInput],
        sampling_params: object,
        ids: object,
        call: BlockCall | None,
    ) -> Draw | None:
        """Give rows their adapters and blocks; how their tokens are drawn."""
        session = self.running().session
        if call is None:
            draw = row_draw(session, len(rows), sampling_params, self.neuron_config, self.random)
            reserve_blocks(session, {row.row: row.start + len(row.tokens) for row in rows})
            self._give_adapters(rows, ids, begins=False)
            return draw
        for row in rows:
            # A single token that continues a sequence may be padding of one that has ended.
            if row.start == 0 or len(row.tokens) > 1:
                check_token_ids(row.tokens, session.token_ids, f"the row of seq_id {row.row}")
        params = call.of_its_rows(sampling_params, session.rows)
        draw = row_draw(session, call.count, params, self.neuron_config, self.random)
        self._give_adapters(rows, ids, begins=True)
        adapters = self.adapters
        call.begin([adapters.name_of(row.row) if adapters else "" for row in rows])
        return None if draw is None else draw.of(call.places)

    def _give_adapters(self, rows: Sequence[RowInput], ids: object, *, begins: bool) -> None:
        """Let prompts use their adapters, and check those of other rows."""
        if self.adapters is None:
            refuse_adapters(ids)
        else:
            self.adapters.give(rows, ids, begins=begins)

    def use_adapters(self, adapter_ids: object, rows: int) -> None:
        """Let the next prompts, of rows 0, 1, ..., use their adapters, and other rows none.

        Args:
            adapter_ids: as ``forward`` takes them.
            rows: number of prompts.

        Raises:
            GraphgenError: GG0402 for another number of ids, GG0705 for an unknown adapter, for more
                adapters than slots and for a model without adapters.
        """
        if self.adapters is None:
            refuse_adapters(adapter_ids)
        else:
            self.adapters.use(adapter_ids, rows)

    @in_attributes
    def load_weights(self, compiled_model_path: str | Path) -> None:
        """See :class:`NeuronApplicationBase`; blocks of callers are forgotten, too."""
        super().load_weights(compiled_model_path)
        if self.blocks is not None:
            self.blocks.forget()

    def reset(self) -> None:
        """Forget all sequences; the next call has to run prompts. The cache is not cleared."""
        self.kv_cache_populated = False
        if self.adapters is not None:
            self.adapters.forget()
        if self.blocks is not None:
            self.blocks.forget()
        if self._running is not None:
            self.running().session.lengths[:] = 0

    def order_rows(self, sources: Sequence[int]) -> None:
        """Let the first rows of the cache become what rows ``sources`` were, as beams go on.

        Rows keep their adapters: beams of one prompt have the same.

        Raises:
            GraphgenError: GG0304 for states that are not caches.
        """
        self.running().session.order_rows(range(len(sources)), sources)

    def reset_kv_cache(self) -> None:
        """Forget all sequences and set the cache to zeros."""
        self.reset()
        self.running().session.reset()


def _tokens_or_embeddings(
    input_ids: object, inputs_embeds: object
) -> tuple[object, npt.NDArray[np.float32] | None, object]:
    """Token ids, zeros for embeddings, the embeddings as f32, and what was given (GG0402)."""
    if (input_ids is None) == (inputs_embeds is None):
        what = "forward takes input_ids or inputs_embeds, one of both"
        raise GraphgenError("GG0402", what, help="input_ids are integers [B,S]")
    if inputs_embeds is None:
        return input_ids, None, input_ids
    array = as_numpy(inputs_embeds)
    if array.ndim != 3:
        what = f"inputs_embeds has {array.ndim} dimensions, not [B,S,E]"
        raise GraphgenError("GG0402", what, help="give the embedding of each token")
    return np.zeros(array.shape[:2], np.int64), array.astype(np.float32), inputs_embeds


def _output(
    result: RowResults, like: object, chunks: bool, return_dict: bool | None
) -> CausalLMOutput | tuple[object, ...]:
    """The results in the kind of ``like``; sequences in chunks have one row for all logits."""
    logits, tokens = result.logits, result.tokens
    if logits is not None:
        logits = logits[None] if chunks else logits[:, None]
    hidden = tuple(as_user_array(array, like) for array in result.hidden_states)
    kind = as_numpy(like).dtype
    integer = kind if kind.kind in "iu" else np.dtype(np.int64)
    output = CausalLMOutput(
        logits=None if logits is None else as_user_array(logits, like),
        tokens=None if tokens is None else as_user_array(tokens.astype(integer), like),
        hidden_states=hidden or None,
        router_logits=tuple(as_user_array(array, like) for array in result.router_logits) or None,
        expert_index=tuple(
            as_user_array(array.astype(integer), like) for array in result.expert_index
        )
        or None,
    )
    return output if return_dict is not False else tuple(output)
