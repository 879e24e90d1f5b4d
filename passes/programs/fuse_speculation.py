"""Fused speculation: the draft's steps, the model's verification and acceptance in one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from graphgen.build import Builder
from graphgen.composites.drawing import draw
from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import STEP_COUNTS, STEP_RANDOM, STEP_TOKENS
from graphgen.exec.speculative_step import DRAFT, DRAFT_PHASE, TOKEN_LOGITS
from graphgen.ir import VERIFY, Function, Loc, Module, Role, Value, tensor
from graphgen.ir.dtype import f32
from graphgen.ir.loc import UNKNOWN
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.relation import OutputChanges
from graphgen.passes.programs.multi_step import STEP_INPUTS, SteppedProgram
from graphgen.passes.programs.threaded_calls import ThreadedCalls
from graphgen.passes.programs.token_choice import greedy, remaining, sample
from graphgen.passes.programs.token_rule import CANDIDATES, KEPT, LOGITS, PARAMS, RANDOM, TOKENS

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
        self.looks_at = module.stated_number(CANDIDATES, 0)

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


# In front of the names of the model's functions, once a program that calls them has the old one.
TARGET = "target."
# Sums and shares of f32 probabilities are off by less.
_SUMS = 1e-5
# Tokens that programs draw from: more would take gigabytes to compare in pairs.
_MOST_CANDIDATES = 1024


@register
@dataclass(frozen=True)
class FuseSpeculation(Pass):
    """Fuse draft and target: propose, verify and accept ``length`` tokens a row in one launch.

    The module is one of a model and its draft (``join_modules``). Every program that verifies
    becomes one of the phase ``steps``, whose inputs and output are those of ``unroll-steps``. It
    calls the draft ``length`` times, the last time for its cache alone; the model once, for the
    last token and ``length`` - 1 proposals; and ``accept``. A row gets 1 to ``length`` tokens, at
    most ``step_counts``, and none after one that ends it; -1 stands in the other places of
    ``step_tokens``. Refused tokens are in the caches beyond a row's length.

    Every other program calls the draft's of the same sizes too, so that its cache has the same
    tokens. Where the model draws, so does the draft, and ``step_random`` f32 [B,N,3] has for each
    place the number of the acceptance, of the draw that replaces a proposal, and of the draft's.

    Options:
        length: k, tokens of a row that a launch verifies: the last one and k - 1 proposals.

    Given:
        module @m level=canonical {
          input %tokens : s32[B,S]
          input %positions : s32[B,S]
          input %lengths : s32[B]
          input %seq_ids : s32[B]
          weight %w : f32[3,4]
          weight %draft.w : f32[3,4]
          output %next_tokens : s32[B]
          output %token_logits : f32[B,S,4]
          output %draft.logits : f32[B,4]
        }

        func @decode.b1.c8 phase=decode dims={B=1,C=8,S=1,R=1,M=8} {
          arg %tokens : s32[1,1]
          arg %positions : s32[1,1]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          arg %w : f32[3,4]
          %0 = embedding(%w, %lengths) : f32[1,4]
          %1, %2 = top_k(%0) k=1 : f32[1,1], s32[1,1]
          %3 = reshape(%2) shape=[1] : s32[1]
          return next_tokens = %3
        }

        func @verify.b1.s2.c8 phase=verify dims={B=1,C=8,S=2,R=1,M=8} {
          arg %tokens : s32[1,2]
          arg %w : f32[3,4]
          %0 = embedding(%w, %tokens) : f32[1,2,4]
          return token_logits = %0
        }

        func @draft.decode.b1.c8 phase=draft_decode dims={B=1,C=8,S=1,R=1,M=8} {
          arg %lengths : s32[1]
          arg %draft.w : f32[3,4]
          %0 = embedding(%draft.w, %lengths) : f32[1,4]
          return draft.logits = %0
        }

    Result (``fuse-speculation{length=2}``):
        module @m level=canonical {
          input %tokens : s32[B,S]
          input %positions : s32[B,S]
          input %lengths : s32[B]
          input %seq_ids : s32[B]
          weight %w : f32[3,4]
          weight %draft.w : f32[3,4]
          output %next_tokens : s32[B]
          input %step_counts : s32[B]
          input %stop_tokens : s32[B,8]
          output %step_tokens : s32[B,N]
        }

        func @target.decode.b1.c8 dims={B=1,C=8,S=1,R=1,M=8} {
          arg %tokens : s32[1,1]
          arg %positions : s32[1,1]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          arg %w : f32[3,4]
          %0 = embedding(%w, %lengths) : f32[1,4]
          %1, %2 = top_k(%0) k=1 : f32[1,1], s32[1,1]
          %3 = reshape(%2) shape=[1] : s32[1]
          return next_tokens = %3
        }

        func @target.verify.b1.s2.c8 dims={B=1,C=8,S=2,R=1,M=8} {
          arg %tokens : s32[1,2]
          arg %w : f32[3,4]
          %0 = embedding(%w, %tokens) : f32[1,2,4]
          return token_logits = %0
        }

        func @draft.decode.b1.c8 dims={B=1,C=8,S=1,R=1,M=8} {
          arg %lengths : s32[1]
          arg %draft.w : f32[3,4]
          %0 = embedding(%draft.w, %lengths) : f32[1,4]
          return draft.logits = %0
        }

        func @decode.b1.c8 phase=decode dims={B=1,C=8,S=1,R=1,M=8} {
          arg %tokens : s32[1,1]
          arg %positions : s32[1,1]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          arg %w : f32[3,4]
          arg %draft.w : f32[3,4]
          %0 = call(%tokens, %positions, %lengths, %seq_ids, %w) \
to_apply=target.decode.b1.c8 results=[s32[1]] : s32[1]
          %1 = call(%lengths, %draft.w) to_apply=draft.decode.b1.c8 results=[f32[1,4]] : f32[1,4]
          return next_tokens = %0
        }

        func @speculate.b1.c8.k2 phase=steps dims={B=1,C=8,S=1,R=1,M=8,N=2} {
          arg %tokens : s32[1,1]
          arg %positions : s32[1,1]
          arg %lengths : s32[1]
          arg %seq_ids : s32[1]
          arg %step_counts : s32[1]
          arg %stop_tokens : s32[1,8]
          arg %w : f32[3,4]
          arg %draft.w : f32[3,4]
          %0 = constant() value=s32[](-1) : s32[]
          %1 = broadcast_in_dim(%0) shape=[1,1] : s32[1,1]
          %2 = constant() value=s32[](0) : s32[]
          %3 = broadcast_in_dim(%2) shape=[1] : s32[1]
          %4 = constant() value=s32[](1) : s32[]
          %5 = broadcast_in_dim(%4) shape=[1] : s32[1]
          %6 = constant() value=s32[](0) : s32[]
          %7 = broadcast_in_dim(%6) shape=[1] : s32[1]
          %8 = compare(%step_counts, %7) direction=GT : pred[1]
          %9 = constant() value=s32[](1) : s32[]
          %10 = broadcast_in_dim(%9) shape=[1] : s32[1]
          %11 = compare(%step_counts, %10) direction=GT : pred[1]
          %12 = broadcast_in_dim(%8) shape=[1,1] dimensions=[0] : pred[1,1]
          %13 = select(%12, %positions, %1) : s32[1,1]
          %14 = select(%8, %lengths, %3) : s32[1]
          %15 = select(%8, %seq_ids, %5) : s32[1]
          %16 = constant() value=s32[](1) : s32[]
          %17 = broadcast_in_dim(%16) shape=[1,1] : s32[1,1]
          %18 = add(%positions, %17) : s32[1,1]
          %19 = broadcast_in_dim(%11) shape=[1,1] dimensions=[0] : pred[1,1]
          %20 = select(%19, %18, %1) : s32[1,1]
          %21 = constant() value=s32[](1) : s32[]
          %22 = broadcast_in_dim(%21) shape=[1] : s32[1]
          %23 = add(%lengths, %22) : s32[1]
          %24 = select(%11, %23, %3) : s32[1]
          %25 = select(%11, %seq_ids, %5) : s32[1]
          %26 = call(%14, %draft.w) to_apply=draft.decode.b1.c8 results=[f32[1,4]] : f32[1,4]
          %27 = slice(%26) start_indices=[0,0] limit_indices=[1,4] : f32[1,4]
          %28, %29 = top_k(%27) k=1 : f32[1,1], s32[1,1]
          %30 = reshape(%29) shape=[1] : s32[1]
          %31 = reshape(%30) shape=[1,1] : s32[1,1]
          %32 = constant() value=f32[](1.0) : f32[]
          %33 = broadcast_in_dim(%32) shape=[1,1] : f32[1,1]
          %34 = call(%24, %draft.w) to_apply=draft.decode.b1.c8 results=[f32[1,4]] : f32[1,4]
          %35 = constant() value=s32[](2) : s32[]
          %36 = broadcast_in_dim(%35) shape=[1] : s32[1]
          %37 = minimum(%step_counts, %36) : s32[1]
          %38 = add(%lengths, %37) : s32[1]
          %39 = constant() value=s32[](1) : s32[]
          %40 = broadcast_in_dim(%39) shape=[1] : s32[1]
          %41 = subtract(%38, %40) : s32[1]
          %42 = concatenate(%tokens, %31) dimension=1 : s32[1,2]
          %43 = concatenate(%13, %20) dimension=1 : s32[1,2]
          %44 = select(%8, %41, %3) : s32[1]
          %45 = call(%42, %w) to_apply=target.verify.b1.s2.c8 results=[f32[1,2,4]] : f32[1,2,4]
          %46 = reshape(%45) shape=[2,4] : f32[2,4]
          %47, %48 = top_k(%46) k=1 : f32[2,1], s32[2,1]
          %49 = reshape(%48) shape=[2] : s32[2]
          %50 = reshape(%49) shape=[2,1] : s32[2,1]
          %51 = constant() value=f32[](1.0) : f32[]
          %52 = broadcast_in_dim(%51) shape=[2,1] : f32[2,1]
          %53 = reshape(%50) shape=[1,2,1] : s32[1,2,1]
          %54 = reshape(%52) shape=[1,2,1] : f32[1,2,1]
          %55 = reshape(%31) shape=[1,1,1] : s32[1,1,1]
          %56 = concatenate(%55) dimension=1 : s32[1,1,1]
          %57 = reshape(%33) shape=[1,1,1] : f32[1,1,1]
          %58 = concatenate(%57) dimension=1 : f32[1,1,1]
          %59 = constant() value=f32[](0.0) : f32[]
          %60 = broadcast_in_dim(%59) shape=[1,2,2] : f32[1,2,2]
          %61 = concatenate(%31) dimension=1 : s32[1,1]
          %62, %63 = accept(%61, %step_counts, %53, %54, %56, %58, %60) : s32[1,2], s32[1]
          %64 = slice(%62) start_indices=[0,0] limit_indices=[1,1] : s32[1,1]
          %65 = reshape(%64) shape=[1] : s32[1]
          %66 = broadcast_in_dim(%65) shape=[1,8] dimensions=[0] : s32[1,8]
          %67 = compare(%66, %stop_tokens) direction=EQ : pred[1,8]
          %68 = convert(%67) dtype=s32 : s32[1,8]
          %69 = reduce(%68) dimensions=[1] kind=maximum : s32[1]
          %70 = slice(%62) start_indices=[0,1] limit_indices=[1,2] : s32[1,1]
          %71 = reshape(%70) shape=[1] : s32[1]
          %72 = constant() value=s32[](0) : s32[]
          %73 = broadcast_in_dim(%72) shape=[1] : s32[1]
          %74 = compare(%69, %73) direction=EQ : pred[1]
          %75 = broadcast_in_dim(%74) shape=[1,1] dimensions=[0] : pred[1,1]
          %76 = select(%75, %70, %1) : s32[1,1]
          %77 = broadcast_in_dim(%71) shape=[1,8] dimensions=[0] : s32[1,8]
          %78 = compare(%77, %stop_tokens) direction=EQ : pred[1,8]
          %79 = convert(%78) dtype=s32 : s32[1,8]
          %80 = reduce(%79) dimensions=[1] kind=maximum : s32[1]
          %81 = maximum(%69, %80) : s32[1]
          %82 = concatenate(%64, %76) dimension=1 : s32[1,2]
          return step_tokens = %82
        }
    """

    name: ClassVar[str] = "fuse-speculation"
    input_stages: ClassVar[tuple[str, ...]] = ("canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    # Drawing rounds sums of probabilities.
    rounding: ClassVar[float] = _SUMS
    length: int = 5

    def output_changes(self) -> OutputChanges | None:
        """The logits of each token, and what the draft's programs give, are not given any more."""
        return OutputChanges({}, (TOKEN_LOGITS, f"{DRAFT}{TOKEN_LOGITS}", f"{DRAFT}{LOGITS}"))

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Replace every program of the model by one of both."""
        drafts = {_size(f): f for f in module.programs() if f.phase.startswith(DRAFT_PHASE)}
        programs = [f for f in module.programs() if not f.phase.startswith(DRAFT_PHASE)]
        self._check(module, programs, drafts)
        if rewriter.exhausted:
            return
        pairs = [(f, _partner(drafts, f)) for f in programs if f.phase != VERIFY]
        verifies = [f for f in programs if f.phase == VERIFY and f.dims["S"] == self.length]
        steps = [(_decode_of(programs, f), f) for f in verifies]
        names = {f: (f.name, f.phase) for f in programs}
        unused = {f.name for f in drafts.values()} - {f.name for _, f in pairs}
        unused |= {f.name for f in programs if f.phase == VERIFY and f not in verifies}
        module.functions = {n: f for n, f in module.functions.items() if n not in unused}
        _called_only(module, [f for f in (*programs, *drafts.values()) if f.name not in unused])
        for function, draft in pairs:
            module.add(_both(module, names[function], function, draft, self.name))
        partners = dict(pairs)
        for decode, verify in steps:
            name = f"speculate.{names[decode][0].partition('.')[2]}.k{self.length}"
            calls, loc = (decode, partners[decode], verify), _last_loc(verify).through(self.name)
            module.add(SpeculativeProgram(module, calls, name, self.length, loc).program())
        for row in list(module.entries(Role.OUTPUT)):
            if row.name == TOKEN_LOGITS or row.name.startswith(DRAFT):
                del module.interface[row.name]
        rewriter.note(None, f"speculate {self.length} tokens")

    def _check(
        self,
        module: Module,
        programs: list[Function],
        drafts: dict[tuple[object, ...], Function],
    ) -> None:
        """Refuse a module that has nothing to fuse (GG0302, GG0304)."""
        if self.length < 2:
            raise GraphgenError("GG0302", f"{self.name}: length={self.length} proposes no token")
        if not drafts:
            raise GraphgenError("GG0304", f"{self.name}: the module has no draft", help="join one")
        if TOKENS not in module.interface:
            raise GraphgenError(
                "GG0304",
                f"{self.name}: no program of the model chooses tokens",
                help="let its programs choose tokens first: on-device-sampling",
            )
        if not any(f.phase == VERIFY and f.dims["S"] == self.length for f in programs):
            raise GraphgenError(
                "GG0304",
                f"{self.name}: no program verifies {self.length} tokens",
                help=f"compile the model with speculation_length={self.length}",
            )
        if PARAMS in module.interface:
            self._check_candidates(module)

    def _check_candidates(self, module: Module) -> None:
        """Refuse draws from more tokens than can be compared in pairs (GG0304)."""
        vocabulary = module.interface[TOKEN_LOGITS].logical.shape[2]
        assert isinstance(vocabulary, int)
        count = min(module.stated_number(CANDIDATES, 0) or vocabulary, vocabulary)
        if count > _MOST_CANDIDATES:
            raise GraphgenError(
                "GG0304",
                f"{self.name}: the candidates of model and draft are compared in pairs, and the "
                f"programs draw from {count} tokens",
                help=f"let them draw from the best ones, at most {_MOST_CANDIDATES}: --global-topk "
                "256, or on-device-sampling{do_sample=true,global_topk=256}",
            )


def _size(function: Function) -> tuple[object, ...]:
    phase = function.phase.removeprefix(DRAFT_PHASE)
    return (phase, *[function.dims.get(key) for key in "BSC"])


def _partner(drafts: dict[tuple[object, ...], Function], function: Function) -> Function:
    """The draft's program of the same phase and sizes (GG0304)."""
    found = drafts.get(_size(function))
    if found is None:
        phase, *sizes = _size(function)
        shown = ", ".join(f"{key}={size}" for key, size in zip("BSC", sizes, strict=True))
        raise GraphgenError(
            "GG0304",
            f"the draft has no {phase} program of {shown}",
            help="compile the model and its draft for the same sizes",
        )
    return found


def _decode_of(programs: list[Function], verify: Function) -> Function:
    """The decode program that attends to as many slots of as many rows (GG0304)."""
    for function in programs:
        same = all(function.dims[key] == verify.dims[key] for key in "BC")
        if function.phase == "decode" and same:
            return function
    raise GraphgenError("GG0304", f"no decode program has the sizes of @{verify.name}")


def _both(
    module: Module, named: tuple[str, str], function: Function, draft: Function, via: str
) -> Function:
    """A program that calls the model's and then the draft's; it gives what the model's gives."""
    name, phase = named
    made = Function(name, phase, dict(function.dims))
    with Builder(made, loc=_last_loc(function).through(via)) as b:
        calls = ThreadedCalls(b, module)
        calls.declare_arguments(function, draft)
        outputs = calls.call(function, {})
        calls.call(draft, {})
        made.outputs = list(outputs.items())
        calls.return_states()
    return made


def _called_only(module: Module, functions: list[Function]) -> None:
    """Let programs be functions that others call, the model's under new names."""
    for function in functions:
        if not function.phase.startswith(DRAFT_PHASE):
            function.name = f"{TARGET}{function.name}"
        function.phase = ""
    module.functions = {function.name: function for function in module.functions.values()}


def _last_loc(function: Function) -> Loc:
    """The location of what a program gives."""
    made = [value.op.loc for _, value in function.outputs if value.op is not None]
    return made[-1] if made else UNKNOWN
