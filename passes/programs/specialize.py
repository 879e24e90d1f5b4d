"""Bucket specialization: one program for each size that will be compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from graphgen.analysis import called, free_symbols, run_by_programs
from graphgen.config.bucket_ladder import powers
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY, VERIFY_TREE, Dim, Function, Module, Role
from graphgen.ir.clone import Cloner
from graphgen.ir.dims import symbols
from graphgen.ops.control import CONTROL, renamed
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.programs.bucket_sizes import (
    SERVING,
    Sizes,
    context_sizes,
    named_sizes,
    token_sizes,
)


def bind_bodies(
    module: Module, program: Function, cloner: Callable[[], Cloner], rewriter: Rewriter
) -> Iterator[Function]:
    """Functions with symbols that ``program`` runs, bound as it is, which runs them from now on.

    Args:
        module: has the functions with symbols.
        program: a bucket's program, whose loops, choices and calls still name those.
        cloner: makes cloners like the one that bound it.
        rewriter: whose pass it is.
    """
    symbolic = [item for item in called(module, program) if free_symbols([item])]
    names = {item.name: f"{item.name}.{program.name}" for item in symbolic}
    if not names:
        return
    for item in symbolic:
        made = Function(names[item.name], dims=dict(program.dims))
        rewriter.copied(cloner().function(item, made))
        _rename(made, names)
        yield made
    _rename(program, names)


def _rename(function: Function, names: dict[str, str]) -> None:
    for op in function.block:
        if op.name in CONTROL:
            op.attrs = renamed(op, names)


def drop_unused(module: Module, functions: dict[str, Function]) -> None:
    """Take those out of ``functions`` that programs of ``module`` ran and nothing runs any more."""
    left = run_by_programs(Module(module.name, functions=functions))
    for name in run_by_programs(module) - left:
        del functions[name]


@dataclass(frozen=True, slots=True)
class Ladders:
    """Sizes in order, each once.

    Attributes:
        batch: B of the decode programs.
        prefill_batch: B of the prefill and chunk programs.
        context: S, and C, of the prefill programs.
        tokens: C of the decode programs.
        chunk: S of the chunk programs.
        speculation_length: S of the verify programs; 0 for none.
        tree_nodes: S of the verify_tree programs; 0 for none.
        verify_lengths: further S of the verify programs.
        verify_batch: B of the verify programs; empty for ``batch``.
    """

    batch: tuple[int, ...]
    prefill_batch: tuple[int, ...]
    context: tuple[int, ...]
    tokens: tuple[int, ...]
    chunk: tuple[int, ...] = ()
    speculation_length: int = 0
    tree_nodes: int = 0
    verify_lengths: tuple[int, ...] = ()
    verify_batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bucket:
    """One program.

    Attributes:
        name: of its sizes, as ``b1.s128``; that of a chunk program, or of one that verifies tokens,
            has C too, ``b1.s64.c256``.
        dims: B, S and C; empty where the program has none of them.
    """

    name: str
    dims: Mapping[str, Dim]


def program_buckets(
    function: Function, ladders: Ladders, own: Mapping[str, int]
) -> Iterator[Bucket]:
    """The buckets of a symbolic program; one where they would all be the same.

    Args:
        function: the program.
        ladders: sizes of B, S and C.
        own: sizes of other symbols.

    Raises:
        GraphgenError: GG0302 for a chunk, or a number of tokens to verify, that no decode bucket
            has room for, and for programs that verify no number of tokens.
    """
    free = free_symbols([function])
    decodes = function.phase == "decode"
    batches = ladders.batch if decodes or function.phase != "prefill" else ladders.prefill_batch
    sizes = ladders.tokens if decodes else ladders.context
    if not free & {"B", "R", "S", "C", "M"}:
        named = "".join(f".{name.lower()}{own[name]}" for name in sorted(free))
        yield Bucket(named.removeprefix("."), {})
        return
    verified = {VERIFY: "speculation_length", VERIFY_TREE: "tree_nodes"}
    if function.phase in verified and "S" in free:
        yield from _verified(ladders, verified[function.phase])
        return
    fixed = not free & {"S", "C"}
    for batch in batches:
        for size in sizes[-1:] if fixed else sizes:
            if decodes:
                dims: dict[str, Dim] = {"B": batch, "C": size}
                yield Bucket(f"b{batch}.c{size}", dims)
            else:
                dims = {"B": batch, "S": size, "C": size}
                yield Bucket(f"b{batch}.s{size}", dims)
    if function.phase == "prefill" and not fixed:
        yield from _chunks(ladders)


def _verified(ladders: Ladders, option: str) -> Iterator[Bucket]:
    """A program for each number of tokens and each decode bucket that has room for them."""
    tokens: int = getattr(ladders, option)
    plain = option == "speculation_length"
    fewer = ladders.verify_lengths if plain else ()
    if tokens < 2 or tokens > max(ladders.tokens):
        raise GraphgenError(
            "GG0302",
            f"specialize: {option}={tokens} for programs that verify tokens, over decode "
            f"buckets {list(ladders.tokens)}",
            help="give the tokens a row that one call verifies, from 2 to the largest bucket",
        )
    if any(not 2 <= size < tokens for size in fewer) or len(set(fewer)) < len(fewer):
        raise GraphgenError(
            "GG0302",
            f"specialize: verify_lengths={list(fewer)} beside speculation_length={tokens}",
            help=f"give each number once, from 2 to {tokens - 1}",
        )
    for batch in (ladders.verify_batch if plain else ()) or ladders.batch:
        for size in (*sorted(fewer), tokens):
            for attended in (bucket for bucket in ladders.tokens if bucket >= size):
                dims: dict[str, Dim] = {"B": batch, "S": size, "C": attended}
                yield Bucket(f"b{batch}.s{size}.c{attended}", dims)


def _chunks(ladders: Ladders) -> Iterator[Bucket]:
    """A program for each chunk size and each decode bucket that is larger."""
    for batch in ladders.prefill_batch:
        for tokens in ladders.chunk:
            attended = [size for size in ladders.tokens if size > tokens]
            if not attended:
                raise GraphgenError(
                    "GG0302",
                    f"specialize: chunk={list(ladders.chunk)}, but no decode bucket has more than "
                    f"{tokens} slots",
                    help="give smaller chunks, or leave them out: a prefill program takes as many",
                )
            for size in attended:
                dims: dict[str, Dim] = {"B": batch, "S": tokens, "C": size}
                yield Bucket(f"b{batch}.s{tokens}.c{size}", dims)


@register
@dataclass(frozen=True)
class Specialize(Pass):
    """Replace each symbolic program by one program a bucket, over one shared cache.

    A prefill program of bucket n takes S = n tokens a row and attends to C = n slots; a decode
    program of bucket n takes one token a row and attends to C = n slots. A chunk program has the
    body of a prefill program, and takes S tokens a row after those that the row holds: there is
    one for each size of ``chunk`` and each larger decode bucket C. A verify program of bucket n
    takes S = ``speculation_length`` tokens a row after those that the row holds, a verify_tree
    program S = ``tree_nodes`` tokens that form a tree. All of them share the weights and
    a cache of R rows and M slots.

    Options:
        batch: sizes of B.
        prefill_batch: sizes of B of the prefill programs; by default those of ``batch``.
        context: buckets of the prefill programs.
        tokens: buckets of the decode programs.
        chunk: sizes of S of the chunk programs; by default there are none.
        speculation_length: S of the verify programs, which models have on request.
        verify_lengths: further sizes of S of these, less than that.
        verify_batch: sizes of B of these; by default those of ``batch``.
        tree_nodes: S of the verify_tree programs, likewise.
        max_batch_size: instead of ``batch``: powers of two from 1, and this size.
        max_context_length: instead of ``context``: powers of two from 128, and this size.
        seq_len: instead of ``tokens``: powers of two from 128, and this size.
        n_positions: instead of ``tokens``, as in transformers-neuronx: a list of buckets, or the
            largest of a ladder; without ``context_length_estimate``, prefill buckets are halves.
        context_length_estimate: instead of ``context``, as in transformers-neuronx: a list of
            buckets, the only bucket, or 0 for no prefill program.
        rows: R; by default the largest batch.
        slots: M; by default the largest bucket.
        dims: sizes of symbols by name, of any name: ``dims=[N=8]``. Those of B, S, C, R and M
            stand for ``batch``, ``context``, ``tokens``, ``rows`` and ``slots``.
        in_place: promise that row b of a call is cache row b or idle, where B = R.

    Given:
        module @m level=logical {
          input %positions : s32[B,S]
          input %lengths : s32[B]
          output %m : pred[B,S,C]
        }

        func @decode phase=decode dims={S=1} {
          arg %positions : s32[B,1]
          arg %lengths : s32[B]
          %p = key_positions(%lengths) attended=C : s32[B,C]
          %m = attention_mask(%positions, %p) : pred[B,1,C]
          return m = %m
        }

    Result (``specialize{batch=[2],tokens=[64,128]}``):
        module @m level=logical {
          input %positions : s32[B,S]
          input %lengths : s32[B]
          output %m : pred[B,S,C]
        }

        func @decode.b2.c64 phase=decode dims={S=1,B=2,C=64,R=2,M=128} {
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          %p = key_positions(%lengths) attended=64 : s32[2,64]
          %m = attention_mask(%positions, %p) : pred[2,1,64]
          return m = %m
        }

        func @decode.b2.c128 phase=decode dims={S=1,B=2,C=128,R=2,M=128} {
          arg %positions : s32[2,1]
          arg %lengths : s32[2]
          %p = key_positions(%lengths) attended=128 : s32[2,128]
          %m = attention_mask(%positions, %p) : pred[2,1,128]
          return m = %m
        }
    """

    name: ClassVar[str] = "specialize"
    provides: ClassVar[tuple[str, ...]] = ("specialized",)
    batch: tuple[int, ...] = (1,)
    prefill_batch: tuple[int, ...] = ()
    context: tuple[int, ...] = (128,)
    tokens: tuple[int, ...] = (128,)
    chunk: tuple[int, ...] = ()
    speculation_length: int = 0
    verify_lengths: tuple[int, ...] = ()
    verify_batch: tuple[int, ...] = ()
    tree_nodes: int = 0
    max_batch_size: int = 0
    max_context_length: int = 0
    seq_len: int = 0
    n_positions: Sizes | None = None
    context_length_estimate: Sizes | None = None
    rows: int = 0
    slots: int = 0
    dims: tuple[str, ...] = ()
    in_place: bool = False

    def ladders(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Sizes of B, of the prefill buckets and of the decode buckets, each in order.

        Raises:
            GraphgenError: GG0302 for sizes below 1 or given twice.
        """
        self._said_once("batch", "max_batch_size")
        self._said_once("context", "max_context_length", "context_length_estimate")
        self._said_once("tokens", "seq_len", "n_positions")
        batch = powers(self.max_batch_size, 1) if self.max_batch_size else self.batch
        context, tokens = self.context, self.tokens
        if self.seq_len:
            tokens = powers(self.seq_len)
        elif self.n_positions is not None:
            tokens = token_sizes(self.n_positions)
        if self.max_context_length:
            context = powers(self.max_context_length)
        elif self.context_length_estimate is not None or (
            self.n_positions is not None and not self._said("context")
        ):
            context = context_sizes(self.context_length_estimate, tokens)
        batch, tokens = _in_order("batch", batch), _in_order("tokens", tokens)
        none = self.context_length_estimate == 0 and not context
        return batch, () if none else _in_order("context", context), tokens

    @property
    def own_sizes(self) -> dict[str, int]:
        """The sizes of symbols that have no option of their own."""
        return {n: size for n, size in named_sizes(self.dims).items() if n not in SERVING}

    def _said(self, key: str) -> bool:
        return getattr(self, key) != type(self).__dataclass_fields__[key].default

    def _said_once(self, *keys: str) -> None:
        """At most one of several options for the same sizes (GG0302)."""
        said = [key for key in keys if self._said(key)]
        if len(said) > 1:
            raise GraphgenError(
                "GG0302", f"specialize: {' and '.join(said)} say the same sizes; give one of them"
            )

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Clone every program once a bucket with its sizes bound."""
        sizes = named_sizes(self.dims)
        if sizes.keys() & SERVING:
            _with_sizes(self, sizes).run(module, rewriter)
            return
        _check_sized(module, sizes)
        batch, context, tokens = self.ladders()
        prefill_batch = _in_order("prefill_batch", self.prefill_batch or batch)
        chunk = _in_order("chunk", self.chunk) if self.chunk else ()
        verify_batch = _in_order("verify_batch", self.verify_batch or batch)
        verified = self.speculation_length, self.tree_nodes, self.verify_lengths, verify_batch
        ladders = Ladders(batch, prefill_batch, context, tokens, chunk, *verified)
        batches = {*batch, *prefill_batch, *(verify_batch if self.speculation_length else ())}
        most = max(batches)
        rows = self.rows or most
        slots = self.slots or max((*context, *tokens))
        if slots < max((*context, *tokens)):
            raise GraphgenError("GG0302", f"specialize: slots={slots} is less than a bucket")
        if rows < most:
            raise GraphgenError("GG0302", f"specialize: rows={rows} is less than a batch")
        tied = _tied(module, tuple(sorted(batches)))
        shared: dict[str, Dim] = {"R": rows, "M": slots, **tied, **sizes}
        functions: dict[str, Function] = {}
        for function in module.functions.values():
            if not function.phase or not free_symbols([function]):
                functions[function.name] = function
                continue
            buckets = list(program_buckets(function, ladders, own=sizes))
            new = list(self._programs(module, function, buckets, shared, rewriter))
            functions |= {each.name: each for each in new}
            made = [each for each in new if each.phase]
            if not buckets and not rewriter.exhausted:
                rewriter.note(function, "no bucket")
            elif len(made) < len(buckets) or not buckets:
                # Stopped: the symbolic program still serves the sizes that have none of their own.
                functions[function.name] = function
        drop_unused(module, functions)
        module.functions = functions
        _bind_states(module, shared, rewriter)

    def _programs(
        self,
        module: Module,
        function: Function,
        buckets: Sequence[Bucket],
        shared: Mapping[str, Dim],
        rewriter: Rewriter,
    ) -> Iterator[Function]:
        """The program of each bucket after its callees, as far as the fuel goes."""
        for bucket in buckets:
            if rewriter.exhausted:
                return
            made = Function(f"{function.name}.{bucket.name}", phase=function.phase)
            # A program without rows and slots has sizes of its own only.
            own = shared if bucket.dims else self.own_sizes
            made.dims = {**function.dims, **bucket.dims, **own}
            whole = self.in_place and made.dims.get("B") == shared["R"]
            override = {"rows": "in_place"} if whole else {}
            cloner = partial(Cloner, symbols=made.dims, overrides=override, via=self.name)
            rewriter.copied(cloner().function(function, made))
            yield from bind_bodies(module, made, cloner, rewriter)
            rewriter.note(made, f"bucket {bucket.name}")
            yield made


def _in_order(key: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes in order, each once (GG0302 for none, or one below 1)."""
    if not sizes or min(sizes) < 1:
        raise GraphgenError("GG0302", f"specialize: {key}={list(sizes)} needs sizes above 0")
    return tuple(sorted(set(sizes)))


def _bind_states(module: Module, shared: Mapping[str, Dim], rewriter: Rewriter) -> None:
    """Bind the rows and slots of the states, and of the functions that pack them: one rewrite."""
    if rewriter.exhausted:
        return
    # Pack functions of a state name its rows and slots by the same symbols.
    packs = [f for f in module.functions.values() if not f.phase and free_symbols([f])]
    states = [(row, row.bind(shared)) for row in module.entries(Role.STATE)]
    changed = [bound for row, bound in states if bound != row]
    for function in packs:
        made = module.functions[function.name] = Function(function.name, dims=function.dims)
        cloner = Cloner(symbols=shared, via=rewriter.pass_name)
        rewriter.copied(cloner.function(function, made))
    for row in changed:
        module.interface[row.name] = row
    if packs or changed:
        rewriter.note(None, ", ".join(f"{n} = {size}" for n, size in shared.items() if n != "B"))


def _tied(module: Module, batch: Sequence[int]) -> dict[str, Dim]:
    """B, where states have a row for each row of a call: then all calls have as many."""
    rows = {name for row in module.entries(Role.STATE) for name in symbols(row.logical.shape)}
    if "B" not in rows:
        return {}
    if len(batch) > 1:
        raise GraphgenError(
            "GG0302",
            f"specialize: batch={list(batch)}, but states have as many rows as a call",
            help="give one size; several share a cache whose rows are a size R of their own",
        )
    return {"B": batch[0]}


def _with_sizes(item: Specialize, sizes: Mapping[str, int]) -> Specialize:
    """The pass with B, S, C, R and M of ``dims`` in the options that mean them."""
    changes: dict[str, object] = {
        "dims": tuple(f"{name}={size}" for name, size in item.own_sizes.items())
    }
    for name, size in sizes.items():
        if name in SERVING:
            option = SERVING[name]
            changes[option] = size if option in ("rows", "slots") else (size,)
    if "B" in sizes:
        changes["prefill_batch"] = changes["verify_batch"] = ()
    if "S" in sizes and item.context_length_estimate == 0:
        changes["context_length_estimate"] = None
    if "M" in sizes and "C" not in sizes and max(item.tokens) > sizes["M"]:
        changes["tokens"] = (sizes["M"],)
    return replace(item, **changes)  # pyright: ignore[reportArgumentType]


def _check_sized(module: Module, sizes: Mapping[str, int]) -> None:
    """Refuse symbols of programs that no option gives a size (GG0302), and sizes below 1."""
    programs = [function for function in module.programs() if free_symbols([function])]
    missing = sorted(free_symbols(programs) - sizes.keys() - SERVING.keys())
    if missing:
        raise GraphgenError(
            "GG0302",
            f"specialize: no size for {', '.join(missing)}, which @{module.name} leaves open",
            help=f"dims=[{','.join(f'{name}=8' for name in missing)}] binds symbols of any name",
        )
