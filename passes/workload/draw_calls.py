"""Arrays of the calls that a script plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from graphgen.eval import Array
from graphgen.exec.decode_steps import COUNT, STEP_COUNTS, STEP_RANDOM, STOP_TOKENS, STOPS
from graphgen.exec.session import ProgramCall
from graphgen.exec.speculative_step import ancestors, depths
from graphgen.ir import ADAPTER_IDS, VERIFY_TREE, Dim, Entry
from graphgen.ops.token_tree import ANCESTORS
from graphgen.passes.workload.call_plan import CallPlan
from graphgen.passes.workload.legal_values import draw_within
from graphgen.passes.workload.program_shapes import ServingSizes
from graphgen.passes.workload.value_ranges import ArraySource, boundary_ids, own_generator

_PLANNED = ("tokens", "positions", "lengths", "seq_ids", ANCESTORS)
_OF_STEPS = (STEP_COUNTS, STOP_TOKENS, STEP_RANDOM)


@dataclass(frozen=True, slots=True)
class CallDrawer:
    """Draws the inputs of calls.

    Attributes:
        sizes: of the programs and the cache.
        inputs: rows of the interface, of all stages.
        vocabulary: number of token ids.
        source: draws inputs that are neither planned nor parameters of a sampler.
        slots: of adapters.
    """

    sizes: ServingSizes
    inputs: Mapping[str, Entry]
    vocabulary: int
    source: ArraySource
    slots: int = 0

    def draw(self, seed: int, plans: Sequence[CallPlan]) -> tuple[ProgramCall, ...]:
        """The calls of a script: s32 tokens, positions [B,S], lengths, seq_ids [B], and others.

        Token ids outside of the vocabulary go on from one call of a phase to the next, so that all
        of them have a place where each call has few tokens.
        """
        placed = Counter[str]()
        made: list[ProgramCall] = []
        for number, plan in enumerate(plans):
            made.append(self._call(seed, number, plan, placed[plan.shape.phase]))
            if plan.ids == "outside":
                real = np.count_nonzero(made[-1].inputs["positions"] >= 0)
                placed[plan.shape.phase] += min(int(real), len(outside_ids(self.vocabulary)))
        return tuple(made)

    def _call(self, seed: int, number: int, plan: CallPlan, placed: int) -> ProgramCall:
        shape = plan.shape
        dims: dict[str, Dim] = {"R": self.sizes.rows, "M": self.sizes.slots}
        dims |= {"B": shape.rows, "S": shape.active, "C": shape.attended}
        if shape.steps > 1:
            dims[COUNT] = shape.steps
        ids = own_generator(seed, number, "tokens")
        inputs = {"tokens": self._tokens(ids, plan, placed), **self._places(plan)}
        for name, row in self.inputs.items():
            rng = own_generator(seed, number, name)
            if name in _OF_STEPS and shape.steps > 1:
                inputs[name] = self._of_steps(rng, name, plan)
            elif name == ADAPTER_IDS:
                rows = self.sizes.rows
                inputs[name] = slot_of_row(inputs["seq_ids"], rows, self.slots, seed)
            elif name not in (*_PLANNED, *_OF_STEPS):
                inputs[name] = self._other(rng, row, dims, shape.rows)
        known = {name: array for name, array in inputs.items() if name in self.inputs}
        return ProgramCall(shape.phase, dims, known, plan.active, note=plan.note, exact=plan.exact)

    def _places(self, plan: CallPlan) -> dict[str, Array]:
        """Positions, lengths and seq_ids; -1, 0 and R for padding and idle rows."""
        shape = plan.shape
        positions = np.full((shape.rows, shape.active), -1, np.int32)
        lengths = np.zeros(shape.rows, np.int32)
        seq_ids = np.full(shape.rows, self.sizes.rows, np.int32)
        for index, row in enumerate(plan.rows):
            if row is not None:
                seq_ids[index], span = row
                first = shape.active - span.count if span.left else 0
                positions[index, first : first + span.count] = np.arange(span.start, span.end)
                lengths[index] = span.end
        made = {"positions": positions, "lengths": lengths, "seq_ids": seq_ids}
        return made | _trees(positions) if shape.phase == VERIFY_TREE else made

    def _tokens(self, rng: np.random.Generator, plan: CallPlan, placed: int) -> Array:
        """Token ids; those of padding are arbitrary.

        Of those outside of the vocabulary the first ``placed`` were in calls before.
        """
        shape = plan.shape
        tokens = rng.integers(0, self.vocabulary, (shape.rows, shape.active)).astype(np.int32)
        if plan.equal:
            tokens[:] = tokens[0]
        if plan.ids == "one":
            tokens[:] = tokens[0, 0]
        elif plan.ids != "random":
            ends = boundary_ids(self.vocabulary)
            outside = outside_ids(self.vocabulary)
            turned = np.roll(outside, -placed).tolist()
            ids = (ends[0], ends[-1], *ends[1:-1]) if plan.ids == "ends" else turned
            real = np.flatnonzero(self._places(plan)["positions"] >= 0)
            np.put(tokens, real[: len(ids)], ids)
        stated = self.inputs["tokens"].domain if "tokens" in self.inputs else None
        ends = stated.numbers if stated is not None else None
        return tokens if ends is None else np.clip(tokens, int(ends[0]), int(ends[1]))

    def _of_steps(self, rng: np.random.Generator, name: str, plan: CallPlan) -> Array:
        """Inputs of several steps: all of them for the first row, fewer for others, and stops."""
        shape = plan.shape
        if name == STEP_RANDOM:
            numbers = cast("tuple[int, ...]", self.inputs[name].logical.shape[2:])
            return rng.random((shape.rows, shape.steps, *numbers)).astype(np.float32)
        if name == STOP_TOKENS:
            stops = rng.integers(0, self.vocabulary, (shape.rows, STOPS))
            return np.where(rng.random(stops.shape) < 0.5, -1, stops).astype(np.int32)
        counts = np.zeros(shape.rows, np.int32)
        for place, row in enumerate(plan.active):
            counts[row] = rng.integers(1, shape.steps + 1) if place else shape.steps
        return counts

    def _other(
        self, rng: np.random.Generator, row: Entry, dims: Mapping[str, Dim], rows: int
    ) -> Array:
        if row.name == "sampling_params":
            return _sampling_params(rng, rows)
        if row.name == "random":
            return rng.random(rows).astype(np.float32)
        if row.name == "top_p_min_tokens":
            return rng.integers(1, 4, rows).astype(np.int32)
        bound = row.bind(dims)
        if bound.domain is not None:
            return draw_within(rng, bound.logical, bound.domain, turn=int(rng.integers(0, 8)))
        return self.source(rng, row, bound.logical)


def outside_ids(vocabulary: int) -> tuple[int, ...]:
    """Token ids outside of a vocabulary, which an embedding clamps."""
    return (-1, vocabulary, -(2**31), 2**31 - 1)


def slot_of_row(seq_ids: Array, rows: int, slots: int, seed: int = 0) -> Array:
    """s32 [B]: the adapter of each row; a slot that does not exist has none.

    A row of the cache has the same slot in all calls; idle rows have -1. Rows have none, the last
    slot, the first one, the one after the last, the largest number, then the others; a seed begins
    at another of these.
    """
    order = dict.fromkeys((-1, slots - 1, 0, slots, 2**31 - 1, *range(1, slots)))
    slot = np.roll(np.array([*order], np.int64), -seed)
    return np.where(seq_ids < rows, slot[seq_ids % len(slot)], -1).astype(np.int32)


def _trees(positions: Array) -> dict[str, Array]:
    """Consecutive positions s32 [B,S] as those of trees, and s32 [B,S,S] of the ancestors.

    The tree of a row depends on its place in the call and on its first position.
    """
    made, reads = positions.copy(), np.zeros((*positions.shape, positions.shape[1]), np.int32)
    for index, row in enumerate(positions):
        count = np.count_nonzero(row >= 0)
        rng = np.random.default_rng([index, max(int(row[0]), 0)])
        parents = [-1, *[int(rng.integers(max(node - 3, 0), node)) for node in range(1, count)]]
        made[index, :count] = row[0] + np.array(depths(parents[:count]), np.int32)
        reads[index, :count, :count] = ancestors(parents[:count])
    return {"positions": made, ANCESTORS: reads}


def _sampling_params(rng: np.random.Generator, rows: int) -> Array:
    """f32 [B,3]: of each row top_k, top_p and temperature, among them those that turn each off."""
    top_k = rng.choice(np.array([0, 1, 5, 50], np.float32), rows)
    top_p = rng.choice(np.array([0.1, 0.5, 0.9, 1.0], np.float32), rows)
    temperature = rng.choice(np.array([0.0, 0.5, 1.0, 2.0], np.float32), rows)
    return np.stack([top_k, top_p, temperature], axis=1)
