"""The programs made of one symbolic program: phase, B, S and C of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphgen.analysis import free_symbols
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY, VERIFY_TREE, Dim, Function


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
