"""NeuronBaseForCausalLM: the forward function of causal language models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.application.application_base import NeuronApplicationBase
from graphgen.runtime.aws.application.forward_inputs import RowInput, read_rows
from graphgen.runtime.aws.application.row_sampling import RandomNumbers, row_draw
from graphgen.runtime.aws.application.unbuilt_inputs import refuse_unbuilt
from graphgen.runtime.aws.application.user_arrays import UserArray, as_numpy, as_user_array
from graphgen.runtime.aws.config.inference_config import InferenceConfig
from graphgen.runtime.aws.config.neuron_config import NeuronConfig
from graphgen.runtime.session import RowResults, Session
from graphgen.runtime.step_call import Draw

# Called with the inputs of forward: input_ids, attention_mask, position_ids, seq_ids, and
# sampling_params, as they were given.
CaptureHook = Callable[[object, object, object, object, object], None]


@dataclass(frozen=True, slots=True)
class CausalLMOutput:
    """The result of a call, in torch or NumPy as ``input_ids`` was.

    Attributes:
        logits: f32 [B,1,V], of each row's last token; ``None`` where programs choose tokens,
            unless ``output_logits`` is set.
        tokens: integers [B], the tokens that follow; ``None`` without on-device sampling.
        hidden_states: ``None`` unless ``output_hidden_states`` is set.
    """

    logits: UserArray | None = None
    tokens: UserArray | None = None
    hidden_states: tuple[UserArray, ...] | None = None

    def __iter__(self) -> Iterator[UserArray]:
        """The parts that are there, as in a tuple."""
        parts = (self.logits, self.tokens)
        return iter([part for part in parts if part is not None])

    def __getitem__(self, index: int) -> UserArray:
        """A part of those that are there."""
        return list(self)[index]


class NeuronBaseForCausalLM(NeuronApplicationBase):
    """An application for text generation: prompts in, logits or tokens out.

    Attributes:
        kv_cache_populated: a prompt was run since the last :meth:`reset`.
        random: gives the random numbers of on-device sampling: a count to f32 numbers in [0, 1).
    """

    def __init__(
        self,
        model_path: str | Path,
        config: InferenceConfig | None = None,
        neuron_config: NeuronConfig | None = None,
    ) -> None:
        super().__init__(model_path, config, neuron_config)
        self.kv_cache_populated = False
        self.random: RandomNumbers = np.random.default_rng().random

    def forward(
        self,
        input_ids: object = None,
        seq_ids: object = None,
        attention_mask: object = None,
        position_ids: object = None,
        sampling_params: object = None,
        *,
        return_dict: bool | None = None,
        input_capture_hook: CaptureHook | None = None,
        **others: object,
    ) -> CausalLMOutput | tuple[UserArray, ...]:
        """Run prompts, or one more token of sequences; rows of the cache not named stay.

        A row whose first position is 0 is a prompt and replaces the contents of its cache row;
        another one is the next token of its sequence.

        Args:
            input_ids: integers [B,S], padded on either side; B at most the compiled batch.
            seq_ids: [B], row of the cache of each sequence, in any order; by default 0, 1, ...
            attention_mask: [B,S] for prompts, [B,A] over earlier tokens too; 1 for tokens.
            position_ids: [B,S], counted from 0 at the first token; the value at padding is ignored.
            sampling_params: f32 [B,3] of top_k, top_p, temperature, for dynamic on-device sampling.
            return_dict: False for a tuple.
            input_capture_hook: called with input_ids, attention_mask, position_ids, seq_ids and
                sampling_params.
            others: AWS's arguments for features that are not built; only ``None``, or what
                requests nothing (``use_cache=True``), is accepted.

        Raises:
            GraphgenError: GG0908 before the model is loaded, GG0904 for an argument of a feature
                that is not built, GG0901 for an unknown one, GG0402 for inputs that do not fit,
                GG0701 for a prompt or sequence that is too long, GG0702 for a row without a token.
        """
        session = self.running().session
        refuse_unbuilt(others)
        if input_ids is None:
            raise GraphgenError("GG0402", "forward needs input_ids", help="integers [B,S]")
        if input_capture_hook is not None:
            input_capture_hook(input_ids, attention_mask, position_ids, seq_ids, sampling_params)
        rows = read_rows(input_ids, attention_mask, position_ids, seq_ids, lengths=session.lengths)
        draw = row_draw(session, len(rows), sampling_params, self.neuron_config, self.random)
        result = self._run(session, rows, draw)
        self.kv_cache_populated = True
        output = self._output(result, input_ids)
        return output if return_dict is not False else tuple(output)

    def __call__(self, *args: object, **kwargs: object) -> CausalLMOutput | tuple[UserArray, ...]:
        """See :meth:`forward`."""
        return self.forward(*args, **kwargs)  # pyright: ignore[reportArgumentType]

    @staticmethod
    def _run(session: Session, rows: Sequence[RowInput], draw: Draw | None) -> RowResults:
        """The results of each row of a call, in its order.

        Rows with several tokens and rows with one go through different programs, and so do
        prompts and parts that continue a sequence: each kind is a step of its own.
        """
        kinds: dict[tuple[bool, bool], list[int]] = {}
        for index, row in enumerate(rows):
            several = len(row.tokens) > 1
            kinds.setdefault((several, several and row.start > 0), []).append(index)
        if len(kinds) == 1:
            # As it is, without a copy: logits of some rows are megabytes.
            return _step(session, rows, draw, range(len(rows)))
        made: dict[str, npt.NDArray[np.generic]] = {}
        for chosen in kinds.values():
            part = _step(session, [rows[index] for index in chosen], draw, chosen)
            for name, array in part.outputs.items():
                home = made.setdefault(name, np.zeros((len(rows), *array.shape[1:]), array.dtype))
                home[chosen] = array
        return RowResults(made)

    @staticmethod
    def _output(result: RowResults, like: object) -> CausalLMOutput:
        logits, tokens = result.logits, result.tokens
        return CausalLMOutput(
            logits=None if logits is None else as_user_array(logits[:, None, :], like),
            tokens=None
            if tokens is None
            else as_user_array(tokens.astype(as_numpy(like).dtype), like),
        )

    def reset(self) -> None:
        """Forget all sequences; the next call has to run prompts. The cache is not cleared."""
        self.kv_cache_populated = False
        if self._running is not None:
            self._running.session.lengths[:] = 0

    def reset_kv_cache(self) -> None:
        """Forget all sequences and set the cache to zeros."""
        self.kv_cache_populated = False
        self.running().session.reset()


def _step(
    session: Session, rows: Sequence[RowInput], draw: Draw | None, chosen: Sequence[int]
) -> RowResults:
    """Run some rows of a call; ``chosen`` are their places in it."""
    width = max(len(row.tokens) for row in rows)
    tokens = np.zeros((len(rows), width), np.int32)
    positions = np.full((len(rows), width), -1, np.int32)
    for index, row in enumerate(rows):
        size = len(row.tokens)
        tokens[index, :size] = row.tokens
        positions[index, :size] = np.arange(row.start, row.start + size)
    places = np.array(chosen, np.intp)
    part = None if draw is None else draw.of(places)
    return session.step(tokens, positions, np.array([row.row for row in rows], np.int32), part)
