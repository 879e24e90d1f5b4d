"""Several decode steps a launch: each takes the tokens that the one before it has chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import (
    COUNT,
    RANDOM_NUMBERS,
    STEP_COUNTS,
    STEP_RANDOM,
    STEP_TOKENS,
    STEPS,
    STOP_TOKENS,
    STOPS,
)
from graphgen.ir import (
    Domain,
    Function,
    Loc,
    Module,
    Role,
    TensorType,
    Value,
    as_domain,
    entry,
    symbol,
    tensor,
)
from graphgen.ir.clone import Cloner
from graphgen.ir.dtype import f32, s32
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.programs.threaded_calls import ThreadedCalls
from graphgen.passes.programs.token_rule import RANDOM, TOKENS

# Inputs of a decode step, beside weights and states.
STEP_INPUTS = ("tokens", "positions", "lengths", "seq_ids")


class SteppedProgram:
    """Builds a program of the phase ``steps`` from calls of other programs.

    Args:
        module: to whose interface its inputs and its output are added.
        decode: the program of one step.
        name: of the program.
        count: N, number of tokens.
        loc: of its ops.

    Attributes:
        function: the program.
        b: at its end.
        rows: B.
        column_type, row_type: s32 [B,1] and [B].
    """

    def __init__(self, module: Module, decode: Function, name: str, count: int, loc: Loc) -> None:
        self.function = Function(name, STEPS, {**decode.dims, COUNT: count})
        self.b = Builder(self.function, loc=loc)
        self.module, self.decode, self.count = module, decode, count
        self.rows = cast(int, decode.dims["B"])
        self.row_type, self.column_type = tensor(s32, (self.rows,)), tensor(s32, (self.rows, 1))

    def declare_arguments(self, random: Sequence[int] = ()) -> None:
        """Declare those of the decode program, and the new ones after its last input.

        Args:
            random: further sizes of the random numbers of each step.
        """
        roles = {row.name: row.role for row in self.module.interface.values()}
        given = [v for v in self.decode.args if v.name != RANDOM]
        inputs = [v for v in given if roles.get(v.name or "") is Role.INPUT]
        for value in inputs:
            self.function.block.add_arg(value.type, value.name or "")
        rows = self.module.interface[TOKENS].logical.shape[0]
        self._declare(Role.INPUT, STEP_COUNTS, tensor(s32, (rows,)))
        self._declare(Role.INPUT, STOP_TOKENS, tensor(s32, (rows, STOPS)))
        if self.decode.arg(RANDOM) is not None:
            numbers = tensor(f32, (rows, symbol(COUNT), *random))
            self._declare(Role.INPUT, STEP_RANDOM, numbers, as_domain(RANDOM_NUMBERS))
        self._declare(Role.OUTPUT, STEP_TOKENS, tensor(s32, (rows, symbol(COUNT))))
        for value in given:
            if value not in inputs:
                self.function.block.add_arg(value.type, value.name or "")

    def _declare(
        self, role: Role, name: str, type_: TensorType, domain: Domain | None = None
    ) -> None:
        self.module.interface.setdefault(name, entry(role, name, type_, domain))
        if role is Role.INPUT:
            self.function.block.add_arg(type_.bind(self.function.dims), name)

    def argument(self, name: str) -> Value:
        """The argument of that name, which there is."""
        found = self.function.arg(name)
        assert found is not None, name
        return found

    def idle(self) -> dict[str, Value]:
        """The inputs of rows that take no part in a step, which leaves their caches as they are."""
        rows = self.decode.dims["R"]
        assert isinstance(rows, int)
        return {
            "positions": self.b.full(-1, self.column_type),
            "lengths": self.b.full(0, self.row_type),
            # Row R does not exist: what is written there is dropped.
            "seq_ids": self.b.full(rows, self.row_type),
        }

    def inputs(
        self, number: int, active: Value, first: Mapping[str, Value], idle: Mapping[str, Value]
    ) -> dict[str, Value]:
        """The inputs of a step: those of the first one, ``number`` positions further.

        Args:
            number: of the step, from 0.
            active: pred [B], the rows that take part.
            first: the inputs of the first step, but with the tokens of this one.
            idle: of rows that do not take part.
        """
        b, inputs = self.b, {"tokens": first["tokens"]}
        for name, none in idle.items():
            further = number if name != "seq_ids" else 0
            value = b.binary("add", first[name], further) if further else first[name]
            takes = active if none.type.rank == 1 else b.broadcast_in_dim(active, none.shape, [0])
            inputs[name] = b.select(takes, value, none)
        return inputs

    def ended(self, token: Value) -> Value:
        """S32 [B]: 1 where ``token`` ends its row, else 0."""
        b, stops = self.b, self.argument(STOP_TOKENS)
        same = b.compare(b.broadcast_in_dim(token, stops.type.shape, [0]), stops, "EQ")
        return b.reduce(b.convert(same, s32), [1], "maximum")


@register
@dataclass(frozen=True)
class UnrollSteps(Pass):
    """Add to each decode program that samples its tokens one with several steps a launch.

    The decode program is copied as a function, which the new program calls once a step: the next
    token is the one that the last call chose, one position further, and the states are those it
    left. The new programs take four inputs more or instead, all on the host before the launch:
    ``step_counts`` s32 [B], how many steps a row takes at most, 0 for an idle row; ``stop_tokens``
    s32 [B,8], the tokens after which a row takes no further step, -1 for none; and, where tokens
    are drawn, ``step_random`` f32 [B,N] instead of ``random``, a number for each step. The output
    ``step_tokens`` s32 [B,N] has the token of each step, -1 where the row took none: such a step
    leaves the row's caches as they are. Other outputs of the decode program are not computed.

    Options:
        steps: N, at least 2.

    Given:
        module @m level=target {
          input %tokens : s32[B,S]
          input %positions : s32[B,S]
          input %lengths : s32[B]
          input %seq_ids : s32[B]
          state %k : s32[2,8]
          output %next_tokens : s32[B]
        }

        func @decode.b2.c8 phase=decode dims={B=2,C=8,S=1,R=2,M=8} {
          arg %tokens : s32[2,1]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          arg %k : s32[2,8]
          %0 = reshape(%tokens) shape=[2] : s32[2]
          %1 = add(%0, %lengths) : s32[2]
          return next_tokens = %1
          return k = %k
        }

    Result (``unroll-steps{steps=2}``):
        module @m level=target {
          input %tokens : s32[B,S]
          input %positions : s32[B,S]
          input %lengths : s32[B]
          input %seq_ids : s32[B]
          state %k : s32[2,8]
          output %next_tokens : s32[B]
          input %step_counts : s32[B]
          input %stop_tokens : s32[B,8]
          output %step_tokens : s32[B,N]
        }

        func @decode.b2.c8 phase=decode dims={B=2,C=8,S=1,R=2,M=8} {
          arg %tokens : s32[2,1]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          arg %k : s32[2,8]
          %0 = reshape(%tokens) shape=[2] : s32[2]
          %1 = add(%0, %lengths) : s32[2]
          return next_tokens = %1
          return k = %k
        }

        func @decode.b2.c8.step dims={B=2,C=8,S=1,R=2,M=8} {
          arg %tokens : s32[2,1]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          arg %k : s32[2,8]
          %0 = reshape(%tokens) shape=[2] : s32[2]
          %1 = add(%0, %lengths) : s32[2]
          return next_tokens = %1
          return k = %k
        }

        func @decode.b2.c8.n2 phase=steps dims={B=2,C=8,S=1,R=2,M=8,N=2} {
          arg %tokens : s32[2,1]
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          arg %seq_ids : s32[2]
          arg %step_counts : s32[2]
          arg %stop_tokens : s32[2,8]
          arg %k : s32[2,8]
          %0 = constant() value=s32[](-1) : s32[]
          %1 = broadcast_in_dim(%0) shape=[2,1] : s32[2,1]
          %2 = constant() value=s32[](0) : s32[]
          %3 = broadcast_in_dim(%2) shape=[2] : s32[2]
          %4 = constant() value=s32[](2) : s32[]
          %5 = broadcast_in_dim(%4) shape=[2] : s32[2]
          %6 = compare(%step_counts, %3) direction=GT : pred[2]
          %7 = broadcast_in_dim(%6) shape=[2,1] dimensions=[0] : pred[2,1]
          %8 = select(%7, %positions, %1) : s32[2,1]
          %9 = select(%6, %lengths, %3) : s32[2]
          %10 = select(%6, %seq_ids, %5) : s32[2]
          %11, %12 = call(%tokens, %8, %9, %10, %k) \
to_apply=decode.b2.c8.step results=[s32[2],s32[2,8]] : s32[2], s32[2,8]
          %13 = reshape(%11) shape=[2,1] : s32[2,1]
          %14 = broadcast_in_dim(%6) shape=[2,1] dimensions=[0] : pred[2,1]
          %15 = select(%14, %13, %1) : s32[2,1]
          %16 = constant() value=s32[](1) : s32[]
          %17 = broadcast_in_dim(%16) shape=[2] : s32[2]
          %18 = compare(%step_counts, %17) direction=GT : pred[2]
          %19 = broadcast_in_dim(%11) shape=[2,8] dimensions=[0] : s32[2,8]
          %20 = compare(%19, %stop_tokens) direction=EQ : pred[2,8]
          %21 = convert(%20) dtype=s32 : s32[2,8]
          %22 = reduce(%21) dimensions=[1] kind=maximum : s32[2]
          %23 = compare(%22, %3) direction=EQ : pred[2]
          %24 = and(%18, %23) : pred[2]
          %25 = and(%6, %24) : pred[2]
          %26 = constant() value=s32[](1) : s32[]
          %27 = broadcast_in_dim(%26) shape=[2,1] : s32[2,1]
          %28 = add(%positions, %27) : s32[2,1]
          %29 = broadcast_in_dim(%25) shape=[2,1] dimensions=[0] : pred[2,1]
          %30 = select(%29, %28, %1) : s32[2,1]
          %31 = constant() value=s32[](1) : s32[]
          %32 = broadcast_in_dim(%31) shape=[2] : s32[2]
          %33 = add(%lengths, %32) : s32[2]
          %34 = select(%25, %33, %3) : s32[2]
          %35 = select(%25, %seq_ids, %5) : s32[2]
          %36, %37 = call(%13, %30, %34, %35, %12) \
to_apply=decode.b2.c8.step results=[s32[2],s32[2,8]] : s32[2], s32[2,8]
          %38 = reshape(%36) shape=[2,1] : s32[2,1]
          %39 = broadcast_in_dim(%25) shape=[2,1] dimensions=[0] : pred[2,1]
          %40 = select(%39, %38, %1) : s32[2,1]
          %41 = concatenate(%15, %40) dimension=1 : s32[2,2]
          return step_tokens = %41
          return k = %37
        }
    """

    name: ClassVar[str] = "unroll-steps"
    input_stages: ClassVar[tuple[str, ...]] = ("target",)
    requires: ClassVar[tuple[str, ...]] = ("specialized",)
    steps: int = 4

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Add a program for each decode program, after it."""
        if self.steps < 2:
            raise GraphgenError("GG0302", f"{self.name}: steps={self.steps} is below 2")
        programs = [f for f in module.programs() if _chooses(f)]
        if not programs:
            raise GraphgenError(
                "GG0304",
                f"{self.name}: no decode program takes tokens and gives {TOKENS}",
                help="let programs choose tokens first: on-device-sampling",
            )
        functions: dict[str, Function] = {}
        for function in module.functions.values():
            functions[function.name] = function
            if function not in programs or rewriter.exhausted:
                continue
            step = Function(f"{function.name}.step", dims=dict(function.dims))
            rewriter.copied(Cloner(via=self.name).function(function, step))
            made = _Unrolled(module, function, step, self.steps, self.name).program()
            functions |= {step.name: step, made.name: made}
            rewriter.note(made, f"{self.steps} steps of {function.name}")
        module.functions = functions


def _chooses(function: Function) -> bool:
    """True for a decode program that gives the input of the step after it."""
    chosen = function.outputs.get(TOKENS)
    return (
        function.phase == "decode"
        and function.dims.get("S") == 1
        and chosen is not None
        and chosen.op is not None
        and all(function.arg(name) is not None for name in STEP_INPUTS)
    )


class _Unrolled(SteppedProgram):
    """Builds the program of several steps.

    Args:
        module: to whose interface its inputs and its output are added.
        decode: the program of one step.
        step: the same as a function.
        count: number of steps.
        via: name of the pass.
    """

    def __init__(
        self, module: Module, decode: Function, step: Function, count: int, via: str
    ) -> None:
        chosen = decode.outputs.get(TOKENS)
        assert chosen is not None
        assert chosen.op is not None
        loc = chosen.op.loc.through(via)
        super().__init__(module, decode, f"{decode.name}.n{count}", count, loc)
        self.step = step

    def program(self) -> Function:
        """The program."""
        self.declare_arguments()
        b, first = self.b, {name: self.argument(name) for name in STEP_INPUTS}
        calls, chosen = ThreadedCalls(b, self.module), list[Value]()
        idle = self.idle()
        active = b.compare(self.argument(STEP_COUNTS), idle["lengths"], "GT")
        for number in range(self.count):
            inputs = {**self.inputs(number, active, first, idle), **self._random(number)}
            token = calls.call(self.step, inputs)[TOKENS]
            column = b.reshape(token, (self.rows, 1))
            wide = b.broadcast_in_dim(active, (self.rows, 1), [0])
            chosen.append(b.select(wide, column, idle["positions"]))
            if number + 1 < self.count:
                active = b.binary("and", active, self._goes_on(number + 1, token, idle["lengths"]))
                first["tokens"] = column
        self.function.outputs.append((STEP_TOKENS, b.concatenate(chosen, 1)))
        calls.return_states()
        return self.function

    def _random(self, number: int) -> dict[str, Value]:
        """The random numbers of a step, for programs that take such."""
        every = self.function.arg(STEP_RANDOM)
        if every is None:
            return {}
        column = self.b.slice_dim(every, 1, number, number + 1)
        return {RANDOM: self.b.reshape(column, (self.rows,))}

    def _goes_on(self, number: int, token: Value, zeros: Value) -> Value:
        """Pred [B]: whether a row takes step ``number`` after it has chosen ``token``."""
        b = self.b
        left = b.compare(self.argument(STEP_COUNTS), b.full(number, self.row_type), "GT")
        return b.binary("and", left, b.compare(self.ended(token), zeros, "EQ"))
