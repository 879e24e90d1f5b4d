"""A session: programs, weights and one KV cache, advanced step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STEP_TOKENS, STEPS
from graphgen.exec.inputs import stated_vocabulary
from graphgen.exec.weights import default_layouts
from graphgen.ir import RANK, VERIFY, Module, Role
from graphgen.lowering.cpu import DeviceValue
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.program_kernels import plans_products
from graphgen.runtime.session.adapter_slots import adapter_slots
from graphgen.runtime.session.block_table import block_table_of
from graphgen.runtime.session.buckets import ProgramSize, ProgramTable
from graphgen.runtime.session.devices import SessionDevices
from graphgen.runtime.session.feature_log import FeatureLog
from graphgen.runtime.session.launch import LaunchOutputs, launch_inputs
from graphgen.runtime.session.pending_step import DeviceToken, PendingStep, handed_tokens
from graphgen.runtime.session.row_results import Logits, Outputs, RowResults, StepOutput, collected
from graphgen.runtime.session.step_call import (
    Draw,
    Index,
    Ints,
    StepCall,
    StepLimits,
    next_tokens,
    padded,
    step_call,
)


class LaunchObserver(Protocol):
    """Observes each launch of a session's programs; warm-up launches are not observed."""

    def before_launch(
        self, session: Session, program: str, inputs: Mapping[str, npt.NDArray[np.generic]]
    ) -> None:
        """Notify of the next launch, whose states the session still has.

        Args:
            session: the session.
            program: the function's name.
            inputs: the program's inputs by name.
        """
        ...

    def after_launch(self, session: Session, program: str) -> None:
        """Notify of the end of a launch: its outputs were read."""
        ...


def reserve_blocks(session: Session, needs: Mapping[int, int]) -> None:
    """Give rows blocks for their next positions; rows of plain slots have them already.

    Rows keep the blocks that their tokens are in; of the others they give up what they do not need.

    Args:
        session: whose table of blocks changes.
        needs: the number of positions from 0 on, by row.

    Raises:
        GraphgenError: GG0701 where there are too few blocks; nothing has changed then.
    """
    if session.blocks is None:
        return
    table = session.blocks.reserved(needs, session.lengths)
    if table is not session.blocks.table:
        session.use_layout(session.blocks.name, table)


def check_token_ids(prompt: Sequence[int], count: int, name: str) -> None:
    """Refuse tokens that programs would read as others.

    Args:
        prompt: token ids.
        count: number of token ids that the programs take; 0 for no check.
        name: of the prompt, in the error.

    Raises:
        GraphgenError: GG0706 for a token id that is not below ``count``.
    """
    wrong = next((token for token in prompt if not 0 <= token < count), None) if count else None
    if wrong is not None:
        raise GraphgenError(
            "GG0706",
            f"{name} has the token {wrong}; the token ids of this model are 0 to {count - 1}",
            help="encode the text with the tokenizer of this model",
        )


def check_weights(module: Module, given: Collection[str]) -> None:
    """Refuse weights that do not suffice for the programs (GG0705).

    Args:
        module: the programs.
        given: names of the prepared weights.
    """
    entries = [*module.entries(Role.WEIGHT), *module.entries(Role.PARAM)]
    used = {value.name for program in module.programs() for value in program.args}
    missing = sorted(({row.name for row in entries} & used) - {*given, RANK})
    if missing:
        raise GraphgenError(
            "GG0705",
            f"{len(missing)} weights of the programs are missing, the first is '{missing[0]}'",
            help="prepare all weights of this module",
        )


def checked_layout(module: Module, name: str, table: npt.ArrayLike) -> Ints:
    """A layout such as a table of blocks as s32 (GG0705 for an unknown name or another shape)."""
    row = module.interface.get(name)
    given = np.asarray(table, np.int32)
    if row is None or row.role is not Role.LAYOUT or given.shape != row.logical.dims:
        wanted = row.logical.text if row is not None else "no such layout"
        what = f"layout {name} of shape {list(given.shape)}: the programs have {wanted}"
        raise GraphgenError("GG0705", what, help="compile with page_cache for a block table")
    return given


def check_takes_tokens(input_name: str) -> None:
    """Refuse tokens for programs that take embeddings (GG0705)."""
    if input_name != "tokens":
        what = f"these programs take {input_name}, not tokens"
        call = "call step with the embeddings, or compile without inputs_embeds"
        raise GraphgenError("GG0705", what, help=call)


__all__ = ["LaunchObserver", "Logits", "RowResults", "Session", "StepOutput"]


class Session:
    """Runs the entry programs of a module over one cache of R rows.

    Args:
        programs: the compiled programs.
        weights: device values by name.

    Attributes:
        table: the programs by phase, rows and bucket.
        rows, slots: R and M, rows of the cache and positions of each; programs may take fewer rows.
        limit: longest sequence that the decode programs reach and the cache has room for.
        blocks: the table of a paged cache; ``None`` where each row has its own slots.
        lengths: s32 [R], tokens in each row so far.
        input_name: ``tokens``, or ``inputs_embeds`` for programs that take embeddings.
        chooses: programs return tokens, beside or instead of logits.
        draws: those tokens are sampled, with settings given at each step.
        deterministic: sampling uses a constant instead of random numbers.
        vocabulary, token_ids: numbers of logits and of ids that the programs take; 0 for none.
        candidates: number of best tokens that sampling considers; 0 for all.
        devices: what the session has on them, and all calls that change or read it.
        outputs: reads what launches return, and counts the tokens that experts dropped.
        adapters: slots for those of the rows; ``None`` for programs without.
        observers, feature_log: notified of each launch; the log keeps its features, if it is set.
        keeps: sampling takes the least number of tokens that top_p keeps.
        changes: number of launches and resets so far: rows are as they were while it is the same.
        steps: decode steps that :meth:`decode_steps` makes at most; 1 without programs for it.
    """

    def __init__(self, programs: ExecutableCache, weights: Mapping[str, DeviceValue]) -> None:
        self.programs = programs
        self.module: Module = programs.module
        interface = self.module.interface
        states = list(self.module.entries(Role.STATE))
        self._states = [row.name for row in states]
        self._rings: Final = any(row.last for row in states)
        self.outputs: Final = LaunchOutputs(self.module)
        self.input_name: Final = "tokens" if "tokens" in interface else "inputs_embeds"
        _, self._tokens_of_call, *embedded = interface[self.input_name].logical.shape
        self._width: Final = cast(int, embedded[0]) if embedded else 0
        self.chooses: Final = "next_tokens" in interface
        self.draws: Final = "sampling_params" in interface
        self.deterministic: Final = self.draws and "random" not in interface
        logits = interface["logits"].logical.shape if "logits" in interface else (0,)
        self.vocabulary, self.token_ids = cast(int, logits[-1]), stated_vocabulary(self.module)
        self.keeps: Final = "top_p_min_tokens" in interface
        self.candidates: Final = self.module.stated_number("global_topk", 0)
        self._warm: set[str] = set()
        self.observers: list[LaunchObserver] = []
        self.feature_log: FeatureLog | None = None
        self.table: Final = ProgramTable(self.module)
        self.rows, self.slots, self.steps = self.table.rows, self.table.slots, self.table.steps
        self.blocks: Final = block_table_of(self.module)
        self.limit: Final = min(
            self.table.limit, self.blocks.longest if self.blocks else self.slots
        )
        self.lengths: Ints = np.zeros(self.rows, np.int32)
        self.changes = 0
        self.adapters: Final = adapter_slots(programs, self.rows)
        self._inputs: Final = launch_inputs(self.module, self.input_name, self.rows, self.adapters)
        self.devices: Final = SessionDevices(
            programs, self.rows, self.blocks, self.table.tree_nodes, self.outputs, self.adapters
        )
        self.load_weights(weights)

    def load_weights(self, weights: Mapping[str, DeviceValue]) -> None:
        """Replace all weights and empty all rows; loaded programs stay.

        Args:
            weights: device values by name, prepared for this module.

        Raises:
            GraphgenError: GG0705 for a weight that is missing.
        """
        check_weights(self.module, weights)
        self.devices.values = dict(self.programs.placed(weights))
        for name, table in default_layouts(self.module).items():
            self.use_layout(name, table)
        self.reset()

    @property
    def weights(self) -> Mapping[str, DeviceValue]:
        """Device values of the weights, by name."""
        others = {*self._states, *(row.name for row in self.module.entries(Role.LAYOUT))}
        return {name: value for name, value in self.devices.values.items() if name not in others}

    def use_layout(self, name: str, table: npt.ArrayLike) -> None:
        """Replace a layout, such as the table of blocks; cache contents stay in place.

        Args:
            name: of the layout.
            table: of its type, s32 [R,T] for blocks; negative for none.

        Raises:
            GraphgenError: GG0705 for an unknown name or a table of another shape.
        """
        given = checked_layout(self.module, name, table)
        if self.blocks is not None:
            self.blocks.table = given
        self.devices.use_layout(name, given)
        self.changes += 1

    def assign_blocks(self, row: int, blocks: Sequence[int], length: int | None = None) -> None:
        """Give a row these blocks of a paged cache.

        Args:
            row: the row; the blocks that it had before stay as they are.
            blocks: in the order of positions.
            length: tokens that the row holds in them; ``None`` for as many as before.
        """
        assert self.blocks is not None, "the cache is not paged"
        self.use_layout(self.blocks.name, self.blocks.assigned(row, blocks))
        if length is not None:
            self.lengths[row] = length

    def take_cache(self, other: Session) -> None:
        """Go on with the rows of another session with the same states.

        The other session must not run before it has taken them back: launches reuse the memory.
        """
        self.lengths = other.lengths
        for name in self._states:
            self.devices.values[name] = other.state(name)

    def reset(self) -> None:
        """Empty all rows."""
        self.changes += 1
        self.lengths = np.zeros(self.rows, np.int32)
        self.devices.empty()

    def may_start(self, row: int, position: int) -> bool:
        """True if a row can go on at a position; caches that are rings go back to 0 only."""
        held = self.lengths[row]
        return position in (0, held) or (position < held and not self._rings)

    def move_slots(self, seq_ids: Sequence[int], moves: Sequence[Sequence[int]]) -> None:
        """Let slots of each row become those before its length, in all states at once (GG0304)."""
        self.devices.move_slots(seq_ids, moves, self.lengths)
        self.changes += 1

    def order_rows(self, seq_ids: Sequence[int], sources: Sequence[int]) -> None:
        """Let rows ``seq_ids`` become what rows ``sources`` were, in all states (GG0304)."""
        order = np.arange(self.rows, dtype=np.int32)
        order[list(seq_ids)] = list(sources)
        if (order == np.arange(self.rows)).all():
            return
        self.devices.order_rows(order)
        self.lengths = self.lengths[order]
        self.changes += 1

    @property
    def copies_rows(self) -> bool:
        """True if :meth:`copy_row` finds the rows of all states."""
        return self.blocks is None and self.devices.row_copy.possible

    def copy_row(self, source: int, target: int) -> None:
        """Copy one row of the cache to another (GG0705)."""
        self.copy_block(source, target)
        self.lengths[target] = self.lengths[source]

    def copy_block(self, source: int, target: int) -> None:
        """Copy one block of a paged cache to another (GG0705)."""
        self.devices.copy(source, target)
        self.changes += 1

    def warm_up(self, *, in_flight: bool = False, copies: bool = False) -> None:
        """Compile or load every program and launch it once; no row changes.

        Args:
            in_flight: those that hand tokens from step to step, too.
            copies: that which copies rows or blocks, too, if they can be copied.
        """
        for size in (size for size in self.table.sizes if size.name not in self._warm):
            self._warm_up(size)
        if in_flight:
            given = sorted({size.batch for size in self.table.sizes})
            self.devices.warm_feed(given, self.table.batches("decode"))
        if copies and self.devices.row_copy.possible:
            (self.copy_block if self.blocks else self.copy_row)(0, 0)

    def step(
        self,
        tokens: npt.ArrayLike,
        positions: npt.ArrayLike,
        seq_ids: npt.ArrayLike | None = None,
        draw: Draw | None = None,
        *,
        verify: bool = False,
        features: npt.ArrayLike | None = None,
        ancestors: npt.ArrayLike | None = None,
    ) -> RowResults:
        """Append tokens to some rows of the cache.

        A row goes on at its first position: what it held from there on is replaced, so position 0
        begins it again. Rows that are not in ``seq_ids`` keep their cache.
        :meth:`~graphgen.runtime.session.buckets.ProgramTable.phase_of` says which programs the
        tokens go through. A call of more rows than the largest program is split.

        Args:
            tokens: s32 [n,S], or f32 [n,S,E] for programs that take ``inputs_embeds``.
            positions: s32 [n,S], consecutive in each row; -1 for padding, left or right.
            seq_ids: s32 [n], the cache row of each row, each at most once; by default 0 to n - 1.
            draw: sampling inputs of the n rows, for programs that sample.
            verify: go through the programs that give ``token_logits``, at most ``table.verifies``.
            features: f32 [n,S,W], for drafts of EAGLE: what their programs take beside tokens.
            ancestors: s32 [n,S,S] of a tree of tokens, not 0 where a node reads another one.

        Raises:
            GraphgenError: GG0701 for a prompt longer than the largest prefill bucket or a sequence
                longer than the largest decode bucket; GG0705 for inputs that contradict each other
                or the lengths of the rows; GG0706 for a token outside of the vocabulary.
        """
        call = step_call(
            tokens, positions, seq_ids, draw, self._width, self.lengths, features, ancestors
        )
        if not verify and ancestors is None:
            # Proposals may be anything, and are not accepted then.
            self._check_tokens(call)
        columns = np.flatnonzero((call.positions >= 0).any(0))
        phase = VERIFY if verify else self.table.phase_of(call, len(columns))
        return self._collect(call, self._run_parts(phase, call, columns))

    def _check_tokens(self, call: StepCall) -> None:
        """Refuse tokens outside of the vocabulary, but for padding (GG0706)."""
        if self._width:
            return
        # A single token that continues a row may be padding of one that has ended.
        given = call.positions >= 0 if call.positions.shape[1] > 1 else call.positions == 0
        for row in np.flatnonzero(given.any(1)).tolist():
            name = f"the row of seq_id {call.seq_ids[row]}"
            check_token_ids(call.tokens[row, given[row]].tolist(), self.token_ids, name)

    def start(
        self,
        tokens: npt.ArrayLike,
        positions: npt.ArrayLike,
        seq_ids: npt.ArrayLike,
        draw: Draw | None = None,
        fed: Mapping[int, DeviceToken] | None = None,
    ) -> PendingStep:
        """Append tokens to some rows as :meth:`step` does, and return without waiting.

        Launches run in the order in which they were started. A step of several launches, and any
        step while there are observers, is read at once.

        Args:
            tokens: as for :meth:`step`, one or more in each row.
            positions, seq_ids, draw: as for :meth:`step`.
            fed: of rows with one token, those whose token an earlier step chooses.

        Raises:
            GraphgenError: as for :meth:`step`.
        """
        call = step_call(tokens, positions, seq_ids, draw, self._width, self.lengths)
        waiting = fed or {}
        columns = np.flatnonzero((call.positions >= 0).any(0))
        phase = self.table.phase_of(call, len(columns))
        at_once = len(call.seq_ids) <= self.table.batches(phase)[-1]
        if at_once and not self.watched and len(self.table.parts(phase, columns)) == 1:
            return self._started(phase, call.part(np.arange(len(call.seq_ids)), columns), waiting)
        for row, token in waiting.items():
            call.tokens[row, call.positions[row] >= 0] = token.read()
        done = self._collect(call, self._run_parts(phase, call, columns))
        return PendingStep((), call.seq_ids, lambda: done)

    def _started(self, phase: str, call: StepCall, fed: Mapping[int, DeviceToken]) -> PendingStep:
        """Start the one launch of a step."""
        size = self._ready(phase, call)
        inputs, home = self._inputs.of(size, call), self._inputs.home(size, call)
        places = {int(home[row]): token for row, token in fed.items()}
        handed = handed_tokens(inputs[self.input_name], places)
        started = self.devices.launch(size.name, inputs, handed)
        self._advance(call)

        def read() -> RowResults:
            outputs = self.devices.read(started)
            return RowResults(self._inputs.results(outputs, size, call, self._is_per_token))

        return PendingStep(started.outputs.get("next_tokens", ()), home, read, started.number)

    def prefill(
        self,
        prompts: Sequence[Sequence[int]],
        padding: str = "right",
        draw: Draw | None = None,
    ) -> StepOutput:
        """Process prompts, replacing the contents of their rows.

        Args:
            prompts: token ids per row; an empty prompt leaves its row unchanged.
            padding: the padded side of shorter prompts, ``left`` or ``right``; the result does not
                depend on it.
            draw: sampling inputs of R rows, for programs that sample.

        Returns:
            f32 [R,V]: the logits of each prompt's last token, or s32 [R]: the tokens that follow;
            rows without a prompt are undefined.

        Raises:
            GraphgenError: GG0701 if a prompt is longer than the largest bucket.
        """
        check_takes_tokens(self.input_name)
        width = max((len(prompt) for prompt in prompts), default=0)
        phase = self.table.prompt_phase(width)
        if phase == "prefill":
            width = self.table.find(phase, 1, width).bucket
        tokens, positions = padded(prompts, self.rows, width, padding)
        call = StepCall(tokens, positions, np.arange(self.rows, dtype=np.int32), draw)
        return self.answer(self._collect(call, self._run_parts(phase, call, np.arange(width))))

    def decode(
        self,
        tokens: Sequence[int],
        active: Sequence[bool] | None = None,
        draw: Draw | None = None,
    ) -> StepOutput:
        """Append one token to each active row.

        Args:
            tokens: one token per row; ignored for idle rows.
            active: True for the rows that take part, all by default. The cache of an idle row does
                not change.
            draw: sampling inputs of R rows, for programs that sample.

        Returns:
            f32 [R,V]: the logits after that token, or s32 [R]: the tokens that follow; idle rows
            are undefined.

        Raises:
            GraphgenError: GG0701 if a row has no slot left.
        """
        check_takes_tokens(self.input_name)
        call = next_tokens(self.lengths, tokens, active, draw)
        return self.answer(self._collect(call, self._run_parts("decode", call, np.arange(1))))

    def decode_steps(
        self, tokens: Sequence[int], limits: StepLimits, draw: Draw | None = None
    ) -> Ints:
        """Append a token to each active row and decode the following ones, in one launch.

        Args:
            tokens: one token per row; ignored for idle rows.
            limits: of R rows: at most N steps, N of :attr:`steps`, and the tokens that end a row.
            draw: sampling inputs of R rows and N steps, for programs that sample.

        Returns:
            s32 [R,N]: the tokens that follow, -1 from the step on that a row did not take.

        Raises:
            GraphgenError: GG0701 if a row has no slot left for its steps.
        """
        active = limits.counts > 0
        call = next_tokens(self.lengths, tokens, active, draw, limits)
        made = self._collect(call, self._run_parts(STEPS, call, np.arange(1)))
        chosen = cast(Ints, np.where(active[:, None], made.outputs[STEP_TOKENS], -1))
        # The launch was noted as one step.
        self.lengths += np.maximum((chosen >= 0).sum(1) - 1, 0).astype(np.int32)
        return chosen

    def take_back(self, lengths: Ints) -> None:
        """Let rows be of ``lengths`` s32 [R]: without the last tokens of a step that verifies."""
        self.lengths, self.changes = lengths.astype(np.int32), self.changes + 1

    def state(self, name: str) -> DeviceValue:
        """The device value of a state (GG0705 for an unknown name)."""
        if name not in self._states:
            raise GraphgenError("GG0705", f"no state is called {name}")
        return self.devices.values[name]

    def answer(self, result: RowResults) -> StepOutput:
        """The tokens of programs that choose them, else the logits."""
        return cast(StepOutput, result.outputs["next_tokens" if self.chooses else "logits"])

    def _run_parts(
        self, phase: str, call: StepCall, columns: Index
    ) -> Iterator[tuple[Index, Index, Outputs]]:
        """Run some columns after the others, each for as many rows as a program has.

        Raises:
            GraphgenError: GG0701 for a step that is too long, before any part of it runs.
        """
        needed = int(call.ends.max(initial=0))
        self.table.find(phase, 1, max(needed, len(columns)) if phase == "prefill" else needed)
        most = self.table.batches(phase)[-1]
        for part in self.table.parts(phase, columns):
            active = np.flatnonzero((call.positions[:, part] >= 0).any(1))
            groups = [active[start : start + most] for start in range(0, len(active), most)]
            begun = (self._begun(phase, call.part(rows, part)) for rows in groups)
            # Stages of a pipeline work on several groups of rows at a time.
            for rows, read in zip(groups, begun if self.watched else [*begun], strict=True):
                yield rows, part, read()

    def _collect(self, call: StepCall, parts: Iterable[tuple[Index, Index, Outputs]]) -> RowResults:
        """The outputs of all parts in the rows and columns of the call."""
        return collected(call.positions.shape, parts, self._is_per_token)

    @property
    def watched(self) -> bool:
        """True if every step is read at once, for observers or for the features of a draft."""
        return bool(self.observers) or self.feature_log is not None

    def _is_per_token(self, name: str) -> bool:
        return self.module.interface[name].logical.shape[1:-1][:1] == (self._tokens_of_call,)

    def _begun(self, phase: str, call: StepCall) -> Callable[[], Outputs]:
        """Start a program for at most as many rows as it has; reads the outputs of those rows."""
        size = self._ready(phase, call)
        inputs = self._inputs.of(size, call)
        self._advance(call)
        for observer in tuple(self.observers):
            observer.before_launch(self, size.name, inputs)
        started = self.devices.launch(size.name, inputs)

        def read() -> Outputs:
            outputs = self.devices.read(started)
            for observer in tuple(self.observers):
                observer.after_launch(self, size.name)
            results = self._inputs.results(outputs, size, call, self._is_per_token)
            if self.feature_log is not None:
                self.feature_log.note(call, results)
            return results

        return read

    def _ready(self, phase: str, call: StepCall) -> ProgramSize:
        """The program of a launch, launched before if XLA has products of its own to plan."""
        (count, width), needed = call.positions.shape, int(call.ends.max())
        if self.blocks is not None:
            self.blocks.check(call)
        slots = max(needed, width) if phase == "prefill" else needed
        size = self.table.find(phase, count, slots, width)
        if size.name not in self._warm and plans_products(self.module, size.name):
            self._warm_up(size)
        self._warm.add(size.name)
        return size

    def _advance(self, call: StepCall) -> None:
        """Note the lengths of rows after a launch."""
        self.lengths[call.seq_ids] = call.lengths
        self.changes += 1

    def _warm_up(self, size: ProgramSize) -> None:
        """Launch once with all rows idle: what XLA plans then counts as compilation."""
        self.devices.prepare(size.name)
        start = time.perf_counter()
        self.devices.read(self.devices.launch(size.name, self._inputs.idle(size)), counted=False)
        self.programs.charge(size.name, time.perf_counter() - start)
        self._warm.add(size.name)
