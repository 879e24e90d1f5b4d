"""The program of one speculative step: propose, verify, accept."""

from __future__ import annotations

from typing import cast

from graphgen.composites.drawing import draw
from graphgen.exec.decode_steps import STEP_COUNTS, STEP_RANDOM, STEP_TOKENS
from graphgen.exec.speculative_step import DRAFT, TOKEN_LOGITS
from graphgen.ir import Function, Loc, Module, Value, tensor
from graphgen.ir.dtype import f32
from graphgen.passes.sampling.token_choice import greedy, remaining, sample
from graphgen.passes.sampling.token_rule import CANDIDATES, KEPT, LOGITS, PARAMS, RANDOM
from graphgen.passes.steps.stepped_program import STEP_INPUTS, SteppedProgram
from graphgen.passes.steps.threaded_calls import ThreadedCalls

# Random numbers of a place: of the acceptance, of the draw instead of a proposal, of the draft.
_NUMBERS = 3


class SpeculativeProgram(SteppedProgram):
    """Builds the program of the phase ``steps`` of a model and its draft.

    Args:
        module: to whose interface its inputs and its output are added.
        calls: the model's decode program, whose inputs it takes; the draft's; and the model's
            program that verifies. They are called under the names that they will have.
        name: of the program.
        count: k, tokens that a launch verifies of a row.
        loc: of its ops.
    """

    def __init__(
        self,
        module: Module,
        calls: tuple[Function, Function, Function],
        name: str,
        count: int,
        loc: Loc,
    ) -> None:
        decode, self.draft, self.verify = calls
        super().__init__(module, decode, name, count, loc)
        # Programs that draw without random numbers draw the same token each time.
        self.draws = decode.arg(PARAMS) is not None
        self.random = decode.arg(RANDOM) is not None
        self.looks_at = int(module.meta.get(CANDIDATES, "0"))

    def program(self) -> Function:
        """The program."""
        self.declare_arguments((_NUMBERS,))
        self.calls = ThreadedCalls(self.b, self.module)
        # Arguments that the decode program does not take.
        self.calls.declare_arguments(self.verify, self.draft)
        with self.b:
            self._build()
        return self.function

    def _build(self) -> None:
        self.first = {name: self.argument(name) for name in STEP_INPUTS}
        self.nothing = self.idle()
        counts = self.argument(STEP_COUNTS)
        self.active = [
            self.b.compare(counts, self.b.full(n, self.row_type), "GT") for n in range(self.count)
        ]
        # Of each step, but for the tokens.
        self.steps = [
            self.inputs(number, active, self.first, self.nothing)
            for number, active in enumerate(self.active)
        ]
        tokens, drafted = self._proposed()
        logits = self._verified(tokens)
        made, _ = self.b.emit("accept", self._operands(tokens, drafted, logits), {}).results
        self.function.outputs.append((STEP_TOKENS, self._up_to_the_end(made)))
        self.calls.return_states()

    def _proposed(self) -> tuple[list[Value], list[tuple[Value, Value]]]:
        """The tokens s32 [B,1] that are verified, and the draft's candidates for all but the first.

        The draft's last step gives no proposal: its cache holds the last one then.
        """
        tokens, drafted = [self.first["tokens"]], list[tuple[Value, Value]]()
        for number, step in enumerate(self.steps):
            given = {**step, "tokens": tokens[-1]}
            logits = self.calls.call(self.draft, given)[f"{DRAFT}{LOGITS}"]
            if number + 1 < self.count:
                token, candidates = self._draft_token(logits, number)
                tokens.append(token)
                drafted.append(candidates)
        return tokens, drafted

    def _draft_token(self, logits: Value, number: int) -> tuple[Value, tuple[Value, Value]]:
        """A proposal s32 [B,1], and the ids and probabilities [B,D] that it was drawn from."""
        b, vocabulary = self.b, cast(int, self.module.interface[TOKEN_LOGITS].logical.shape[2])
        shared = min(vocabulary, cast(int, logits.shape[1]))
        logits = b.convert(b.slice_dim(logits, 1, 0, shared), f32)
        ids, shares = self._candidates(logits, 1)
        if not self.random:
            return ids, (ids, shares)
        token = draw(b, shares, ids, self._numbers(number, 2))
        return b.reshape(token, (self.rows, 1)), (ids, shares)

    def _candidates(self, logits: Value, places: int) -> tuple[Value, Value]:
        """The tokens that may follow, and their probabilities, which sum to 1.

        Without random numbers that is the one token that is taken.

        Args:
            logits: f32 [B*places,V].
            places: of each row.

        Returns:
            Ids s32 [B*places,K] and probabilities f32 [B*places,K].
        """
        b, rows = self.b, self.rows * places
        if not self.draws:
            token = greedy(b, logits)
        else:
            params = self._of_places(self.argument(PARAMS), places)
            kept = self.function.arg(KEPT)
            kept = kept if kept is None else self._of_places(kept, places)
            if self.random:
                left, ids = remaining(b, logits, params, self.looks_at, kept)
                whole = b.reduce(left, [1], "add")
                return ids, left / b.broadcast_in_dim(whole, left.shape, [0])
            half = b.full(0.5, tensor(f32, (rows,)))
            token = sample(b, logits, params, half, self.looks_at, kept)
        return b.reshape(token, (rows, 1)), b.full(1.0, tensor(f32, (rows, 1)))

    def _verified(self, tokens: list[Value]) -> Value:
        """The model's logits f32 [B,k,V] after each of the tokens."""
        b, places = self.b, [step["positions"] for step in self.steps]
        counts = b.binary("minimum", self.argument(STEP_COUNTS), b.full(self.count, self.row_type))
        taken = self.first["lengths"] + counts - b.full(1, self.row_type)
        given = {
            "tokens": b.concatenate(tokens, 1),
            "positions": b.concatenate(places, 1),
            "lengths": b.select(self.active[0], taken, self.nothing["lengths"]),
            "seq_ids": self.steps[0]["seq_ids"],
        }
        made = self.calls.call(self.verify, given)
        return b.convert(made[TOKEN_LOGITS], f32)

    def _operands(
        self, tokens: list[Value], drafted: list[tuple[Value, Value]], logits: Value
    ) -> list[Value]:
        """The operands of ``accept``."""
        b, rows, places = self.b, self.rows, self.count
        flat = b.reshape(logits, (rows * places, logits.shape[2]))
        found = self._candidates(flat, places)
        ids, shares = (b.reshape(x, (rows, places, x.shape[1])) for x in found)
        own_ids, own = (
            b.concatenate([b.reshape(pair[i], (rows, 1, pair[i].shape[1])) for pair in drafted], 1)
            for i in range(2)
        )
        if self.random:
            numbers = b.slice_dim(self.argument(STEP_RANDOM), 2, 0, 2)
        else:
            numbers = b.full(0.0, tensor(f32, (rows, places, 2)))
        proposals = b.concatenate(tokens[1:], 1)
        return [proposals, self.argument(STEP_COUNTS), ids, shares, own_ids, own, numbers]

    def _up_to_the_end(self, made: Value) -> Value:
        """Tokens s32 [B,k], -1 after one that ends its row."""
        b, columns = self.b, list[Value]()
        none = self.nothing["positions"]
        ended: Value | None = None
        for place in range(self.count):
            column = b.slice_dim(made, 1, place, place + 1)
            token = b.reshape(column, (self.rows,))
            if ended is not None:
                goes_on = b.compare(ended, b.full(0, ended.type), "EQ")
                wide = b.broadcast_in_dim(goes_on, column.shape, [0])
                column = b.select(wide, column, none)
            columns.append(column)
            here = self.ended(token)
            ended = here if ended is None else b.binary("maximum", ended, here)
        return b.concatenate(columns, 1)

    def _numbers(self, place: int, which: int) -> Value:
        """Random numbers f32 [B] of one place."""
        every = self.b.slice_dim(self.argument(STEP_RANDOM), 1, place, place + 1)
        return self.b.reshape(self.b.slice_dim(every, 2, which, which + 1), (self.rows,))

    def _of_places(self, x: Value, places: int) -> Value:
        """Values [B,...] of rows, repeated for each place of a row: [B*places,...]."""
        if places == 1:
            return x
        shape = (x.shape[0], places, *x.shape[1:])
        wide = self.b.broadcast_in_dim(x, shape, [0, *range(2, len(shape))])
        return self.b.reshape(wide, (self.rows * places, *x.shape[1:]))
