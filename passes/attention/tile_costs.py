"""Costs of attention whole and in tiles: scores that are computed, bytes and seconds.

With B rows, S tokens, C slots, H heads, keys of D and values of W elements, a form computes n
scores, those of the tiles that some token reads, if the tokens are the last ones of the slots::

    CPU: seconds = n (2 (D + W) / flops + score_s) + tiles tile_s

where whole scores, which do not fit in the processor's caches, take longer each. The kernel that
``select-kernels`` calls for attention as a whole has rates of its own. On an accelerator,
whose compiler fuses by rules of its own, a form costs the bytes of its scores, ``4 B H`` times the
scores of a tile, and tiles are as large as :data:`MOST_SCORES` allows. Where a window is known, the
tiles of a block of tokens are those of the slots that it reads, if these are half of all at most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from graphgen.ir import Op, Value
from graphgen.passes.attention.tile_sizes import TileSizes
from graphgen.report.units import size
from graphgen.targets import Target

# Bytes of scores and masks that an accelerator's program may have at once: 256 MiB and a sixteenth.
# Attention holds about five arrays of scores: their powers, masks and copies in other types.
MOST_SCORES = 17 << 24
# Positions and the mask of a score, 5 bytes whatever the heads, as a part of one array of five.
MASK_BYTES = 1
# Tokens and slots of these tiles are multiples of the rows that a core's memory has.
LANES = 128
# Tiles of an attention that are written out, at most.
MOST_TILES = 256
# Tokens of a block that reads the slots of its window, at least.
TOKENS = 512
# Blocks of tokens and of slots that are tried on the CPU.
BLOCKS = (128, 256)
# There attention of fewer tokens is whole: its products take as long as reading the keys.
LEAST_TOKENS = 32


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The sizes of one attention, which are fixed.

    Attributes:
        rows, tokens, slots, heads: B, S, C and H.
        widths: D + W.
        reach: slots that a token reads at most; 0 for all up to its own.
        causal: token s reads no slot after slot s where a call begins a sequence; one that goes on
            with a sequence runs the same program.
        ordered: slots follow each other as positions do.
        bits: of an element of queries, keys and values.
        window: slots that a token reads at most, where tiles begin at the first of them; else 0.
    """

    rows: int
    tokens: int
    slots: int
    heads: int
    widths: int
    reach: int
    causal: bool
    ordered: bool = True
    bits: int = 32
    window: int = 0

    @staticmethod
    def of(op: Op, *, prompt: bool) -> AttentionShape:
        """The shape of an attention.

        Args:
            op: the composite.
            prompt: the program reads prompts.
        """
        rows, tokens, heads, width = op.operands[0].type.dims
        slots, mask = op.operands[1].type.dims[1], op.operands[3]
        producer = mask.producer("attention_mask") or mask.producer("tree_mask")
        reach = 0
        if producer is not None:
            limits = [producer.attrs.integer(name) for name in ("window", "chunk")]
            reach = min([limit for limit in limits if limit], default=0)
        plain = producer is not None and _plain(producer)
        causal = prompt and plain and tokens == slots
        widths = width + op.operands[2].type.dims[3]
        ordered = producer is not None and _ordered(producer) and slots >= tokens
        bits = op.operands[0].dtype.bits
        return AttentionShape(rows, tokens, slots, heads, widths, reach, causal, ordered, bits)

    def tiles(self, tokens: int, slots: int) -> TileSizes:
        """Tiles of these sizes, or of all tokens or slots where there are fewer."""
        tokens, slots = min(tokens, self.tokens), min(slots, self.slots)
        read = tokens + self.window - 1
        if self.window and 2 * read <= self.slots:
            return TileSizes(self.tokens, self.slots, tokens, min(slots, read), read)
        return TileSizes(self.tokens, self.slots, tokens, slots)

    @property
    def whole(self) -> TileSizes:
        """One tile."""
        return TileSizes(self.tokens, self.slots, self.tokens, self.slots)


def _plain(mask: Op) -> bool:
    """True for a mask of the positions that the caller gives, over plain rows."""
    positions, keys = mask.operands[:2]
    given = positions.op is None and positions.name == "positions"
    return mask.name == "attention_mask" and given and _held(keys)


def _held(keys: Value) -> bool:
    return keys.producer("key_positions") is not None


def _ordered(mask: Op) -> bool:
    """True for plain rows, and for a ring and the tokens of the call after it."""
    return _held(mask.operands[1]) or mask.operands[1].producer("concatenate") is not None


@dataclass(frozen=True, slots=True)
class TileCost:
    """The work of one form.

    Attributes:
        sizes: of its tiles.
        scores: that are computed.
        bytes: of the scores of one tile.
        seconds: of a target; 0 where only bytes are known.
        kernel: whether a kernel computes it.
    """

    sizes: TileSizes
    scores: int
    bytes: int
    seconds: float
    kernel: bool = False

    @property
    def text(self) -> str:
        """The numbers, for people."""
        name = "whole" if self.sizes.whole else f"tiles of {self.sizes.text}"
        name = "the kernel" if self.kernel else name
        took = f"{self.seconds * 1e3:.3g} ms, " if self.seconds else ""
        return f"{name} ({took}{size(self.bytes)} of scores at once)"


@dataclass(frozen=True, slots=True)
class ScoreRates:
    """Throughput of attention on the CPU.

    Attributes:
        flops: operations a second of the products.
        score_s: seconds of a score beside its products, in a tile.
        once_s: of a score of attention as a whole.
        whole_s: of one that is written to memory, several times.
        cached: bytes of scores that are not written to memory.
        tile_s: seconds of a tile beside its scores.
        skip_s: of a tile that is left out.
    """

    flops: float
    score_s: float
    once_s: float
    whole_s: float
    cached: int
    tile_s: float
    skip_s: float


# The best of 8 runs by ``benchmarks/attention_tiles.py`` on two AVX2 cores, which others shared:
# 9 heads of 64 features, 256 to 2048 tokens and as many slots, tiles of 128, 256 and 512.
_CPU_WIDE = ScoreRates(80e9, 1.4e-9, 2.6e-9, 8.3e-9, 16 << 20, 300e-6, 10e-6)
_CPU_NARROW = ScoreRates(80e9, 3.4e-9, 4.4e-9, 9e-9, 16 << 20, 600e-6, 10e-6)


@dataclass(frozen=True, slots=True)
class KernelRates:
    """Throughput of the CPU's kernel, which reads all keys and values of a head for a few queries.

    Attributes:
        flops: operations a second of products that read a core's cache.
        score_s: seconds of a score beside its products.
        far_flops: operations a second that read what is not there.
        cached: bytes of the keys and values of a head that stay there.
    """

    flops: float
    score_s: float
    far_flops: float
    cached: int


# Of the same benchmark, the best of 12 runs of 256 to 1536 tokens at a load of 10 to 15. The kernel
# was faster than tiles to 640 tokens in f32, to 384 in bf16, which AVX2 widens for each product.
_KERNEL_WIDE = KernelRates(110e9, 1.1e-9, 28e9, 200_000)
_KERNEL_NARROW = KernelRates(34e9, 1.1e-9, 28e9, 130_000)
# Queries of a head that the kernel takes at a time.
_KERNEL_ROWS = 12
# It leaves out about what square tiles of this size do.
_KERNEL_BLOCK = 128


def rates_of(target: Target, bits: int) -> ScoreRates | None:
    """The rates of a target for elements of ``bits`` bits; ``None`` for an accelerator."""
    if target.is_accelerator:
        return None
    return _CPU_NARROW if bits <= 16 else _CPU_WIDE


@lru_cache(maxsize=256)
def scores_of(shape: AttentionShape, sizes: TileSizes) -> tuple[int, int]:
    """Scores and tiles that are computed, if the tokens are the last of the slots.

    Slots in another order, as in stripes, are all read.
    """
    if sizes.read:
        scores = shape.rows * shape.heads * sizes.tokens * sizes.read
        return scores, sizes.rows * sizes.columns
    scores = tiles = 0
    before = shape.slots - shape.tokens
    for first in range(0, sizes.tokens, sizes.token_block):
        tokens = min(sizes.token_block, sizes.tokens - first)
        last = before + first + tokens - 1
        begins = max(0, before + first - shape.reach + 1) if shape.reach else 0
        for slot in range(0, sizes.slots, sizes.slot_block):
            slots = min(sizes.slot_block, sizes.slots - slot)
            near = slot <= last and slot + slots > begins
            if near or sizes.whole or not shape.ordered:
                scores += tokens * slots
                tiles += 1
    return shape.rows * shape.heads * scores, tiles


def tile_cost(shape: AttentionShape, sizes: TileSizes, rates: ScoreRates | None) -> TileCost:
    """The cost of tiles of these sizes; without rates that in bytes alone."""
    scores, tiles = scores_of(shape, sizes)
    bytes = 4 * shape.rows * shape.heads * sizes.token_block * sizes.slot_block
    if rates is None:
        return TileCost(sizes, scores, bytes, 0.0)
    own = rates.once_s if sizes.whole else rates.score_s
    own = rates.whole_s if bytes > rates.cached else own
    seconds = scores * (2 * shape.widths / rates.flops + own)
    if not sizes.whole:
        skipped = sizes.rows * sizes.columns - tiles
        seconds += tiles * rates.tile_s + skipped * rates.skip_s
    return TileCost(sizes, scores, bytes, seconds)


def kernel_cost(shape: AttentionShape) -> TileCost:
    """The cost of the CPU's kernel, whose scores are those of some rows of queries at a time."""
    rates = _KERNEL_NARROW if shape.bits <= 16 else _KERNEL_WIDE
    scores, _ = scores_of(shape, shape.tiles(_KERNEL_BLOCK, _KERNEL_BLOCK))
    read = shape.slots * shape.widths * shape.bits // 8
    far = max(0, read - rates.cached) / read
    score_s = 2 * shape.widths * (1 / rates.flops + far / rates.far_flops) + rates.score_s
    bytes = 4 * _KERNEL_ROWS * shape.slots
    return TileCost(shape.whole, scores, bytes, scores * score_s, kernel=True)


def tile_costs(shape: AttentionShape, target: Target, *, kernel: bool = False) -> list[TileCost]:
    """The costs of the whole and of the best tiles, the one that is chosen first.

    Args:
        shape: of the attention.
        target: what runs it.
        kernel: whether the CPU's kernel computes the whole.
    """
    rates = rates_of(target, shape.bits)
    if rates is None:
        return _by_bytes(shape)
    whole = kernel_cost(shape) if kernel else tile_cost(shape, shape.whole, rates)
    forms = [shape.tiles(tokens, slots) for tokens in BLOCKS for slots in BLOCKS]
    enough = shape.tokens >= LEAST_TOKENS
    found = [tile_cost(shape, sizes, rates) for sizes in forms if enough and not sizes.whole]
    best = min(found, key=lambda cost: cost.seconds, default=whole)
    pair = [whole] if best is whole else [whole, best]
    return sorted(pair, key=lambda cost: cost.seconds)


def _by_bytes(shape: AttentionShape) -> list[TileCost]:
    """Whole up to a limit; else the largest tiles below it, or few enough of larger ones."""
    whole = tile_cost(shape, shape.whole, None)
    if shape.tokens < LEAST_TOKENS:
        shape = replace(shape, window=0)
    if shape.window:
        # As many tokens as slots before them, so that half of what is read is of use.
        tokens = max(TOKENS, 1 << (shape.window - 1).bit_length())
        if shape.tiles(tokens, 2 * tokens).read:
            return [tile_cost(shape, _few(shape, tokens, 2 * tokens), None), whole]
    if _score_bytes(shape) * shape.tokens * shape.slots <= MOST_SCORES:
        return [whole]
    return [tile_cost(shape, _below_limit(shape), None), whole]


def _below_limit(shape: AttentionShape) -> TileSizes:
    """Blocks of tokens by all slots; by some where the scores of a few tokens pass the limit.

    A tile has as many scores as the limit allows, whatever heads a rank has, so that with fewer
    ranks, or fewer slots, a program does not need more memory. Blocks of one size each would miss
    the limit by up to half.
    """
    score = _score_bytes(shape)
    tokens = _multiple(MOST_SCORES // (score * shape.slots))
    if tokens:
        return _few(shape, tokens, shape.slots)
    return _few(shape, LANES, max(_multiple(MOST_SCORES // (score * LANES)), LANES))


def _score_bytes(shape: AttentionShape) -> int:
    """Bytes of one score of all rows and heads, and of its mask."""
    return shape.rows * (4 * shape.heads + MASK_BYTES)


def _multiple(number: int) -> int:
    return number // LANES * LANES


def _few(shape: AttentionShape, tokens: int, slots: int) -> TileSizes:
    """Tiles of these sizes, or larger ones of which there are few enough."""
    sizes = shape.tiles(tokens, slots)
    while sizes.rows * sizes.columns > MOST_TILES:
        if sizes.rows >= sizes.columns:
            tokens *= 2
        else:
            slots *= 2
        sizes = shape.tiles(tokens, slots)
    return sizes


def asked_cost(shape: AttentionShape, target: Target, tokens: int, slots: int) -> TileCost:
    """The cost of tiles of this size."""
    return tile_cost(shape, shape.tiles(tokens, slots), rates_of(target, shape.bits))
