"""The adapters of a session: slots on the devices, and the slot of each row of the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.adapters import adapter_rows, prepare_adapter, resident_rows, whole_adapter
from graphgen.ir import Module
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import join, put
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.session.empty_states import zeros_for

# The slot of a row without an adapter.
NO_ADAPTER = -1


@dataclass(frozen=True, slots=True)
class PreparedAdapter:
    """One adapter as each rank holds it.

    Attributes:
        parts: per rank, an array [1, ...] for each tensor that the programs read.
    """

    parts: Sequence[Mapping[str, Array]]

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> PreparedAdapter:
        """The adapter that :meth:`arrays` gave."""
        parts: dict[int, dict[str, Array]] = {}
        for name, array in arrays.items():
            rank, _, tensor = name.partition("/")
            parts.setdefault(int(rank), {})[tensor] = array
        return cls([parts[rank] for rank in sorted(parts)])

    def arrays(self) -> dict[str, Array]:
        """The parts of all ranks under names of their own, for other processes."""
        return {
            f"{rank}/{name}": array
            for rank, part in enumerate(self.parts)
            for name, array in part.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all ranks."""
        return sum(array.nbytes for part in self.parts for array in part.values())


class AdapterSlots:
    """Slots for adapters; all are empty at first, and no row has an adapter.

    Args:
        programs: of the session, whose module has tensors of adapters.
        rows: R, rows of the cache.

    Attributes:
        slots, rank: number of adapters at once, and the largest low rank.
        targets: by projection, the shapes (r, in) of its A and (out, r) of its B; those of experts
            have the number of experts in front.
        of_rows: s32 [R], the slot of each row of the cache, -1 for none.
        values: what the programs read, by name.
        listener: notified of each use of the program that writes, before it; ``None`` for nothing.
    """

    def __init__(self, programs: ExecutableCache, rows: int) -> None:
        self._programs: Final = programs
        self._module: Final[Module] = programs.module
        self._rows: Final = {row.name: row for row in resident_rows(self._module)}
        self._writes: ExecutableCache | None = None
        pairs = adapter_rows(self._module)
        self.targets: Final = {
            name: (a.logical.dims[1:], b.logical.dims[1:]) for name, (a, b) in pairs.items()
        }
        first = next(iter(pairs.values()))[0].logical.dims
        self.slots, self.rank = first[0], first[-2]
        self.of_rows: npt.NDArray[np.int32] = np.full(rows, NO_ADAPTER, np.int32)
        self.values: dict[str, DeviceValue] = {}
        self.listener: Callable[[int, PreparedAdapter | None], None] | None = None
        self.reset()

    def reset(self) -> None:
        """Empty all slots, and leave every row without an adapter."""
        self.of_rows[:] = NO_ADAPTER
        self.values |= zeros_for(self._rows.values(), self._module.ranks)

    def assign(self, row: int, slot: int) -> None:
        """Let launches compute a row of the cache with the adapter in ``slot``, -1 for none.

        Tokens already in the row stay: give a row its adapter before its first token.

        Raises:
            GraphgenError: GG0705 for a row or a slot that does not exist.
        """
        if not 0 <= row < len(self.of_rows):
            what = f"row {row} does not exist"
            raise GraphgenError("GG0705", what, help=f"rows are 0 to {len(self.of_rows) - 1}")
        if slot != NO_ADAPTER:
            self._check_slot(slot)
        self.of_rows[row] = slot

    def prepare(self, parts: Mapping[str, Array]) -> PreparedAdapter:
        """Prepare one adapter for each rank.

        Args:
            parts: ``P.lora_A`` [r', in] and ``P.lora_B`` [out, r'] by name, of projections P in
                :attr:`targets`, with the scale of the adapter in B. A projection without is left
                as it is; r' is at most :attr:`rank`.

        Raises:
            GraphgenError: GG0705 for unknown names, other shapes and a larger rank, GG0605 for
                numbers that are not finite.
        """
        for name, array in parts.items():
            self._check_part(name, array)
        whole = whole_adapter(self._module, parts)
        return PreparedAdapter(prepare_adapter(self._module, whole, self._module.ranks))

    def write(self, slot: int, parts: Mapping[str, Array]) -> None:
        """Put one adapter into a slot, as :meth:`prepare` takes it; launches go on after it.

        Raises:
            GraphgenError: as of :meth:`prepare`, and GG0705 for a slot that does not exist.
        """
        self._check_slot(slot)
        self.write_prepared(slot, self.prepare(parts))

    def write_prepared(self, slot: int, adapter: PreparedAdapter) -> None:
        """Put a prepared adapter into a slot (GG0705 for a slot that does not exist)."""
        from graphgen.passes.lora.slot_program import PART, SLOT, WRITE_SLOT

        self._check_slot(slot)
        self._note(slot, adapter)
        inputs = {
            f"{name}{PART}": put([part[name] for part in adapter.parts]) for name in self._rows
        }
        inputs[SLOT] = put([np.array(slot, np.int32)] * self._module.ranks)
        results = self._program().get(WRITE_SLOT).launch({**self.values, **inputs})
        for name in self._rows:
            self.values[name] = join(results[name])

    def warm_up(self) -> None:
        """Compile or load the program that writes a slot; no slot changes."""
        from graphgen.passes.lora.slot_program import WRITE_SLOT

        self._note(NO_ADAPTER, None)
        self._program().get(WRITE_SLOT)

    def clear(self, slot: int) -> None:
        """Empty a slot: its rows go on as the base model (GG0705)."""
        self.write(slot, {})

    def repeat(self, slot: int, arrays: Mapping[str, Array]) -> None:
        """Make a call that :attr:`listener` of another process was notified of.

        Args:
            slot: that is written, -1 for :meth:`warm_up`.
            arrays: of the adapter, as :meth:`PreparedAdapter.arrays` gives them.
        """
        if slot == NO_ADAPTER:
            self.warm_up()
        else:
            self.write_prepared(slot, PreparedAdapter.of_arrays(arrays))

    def _note(self, slot: int, adapter: PreparedAdapter | None) -> None:
        if self.listener is not None:
            self.listener(slot, adapter)

    def _program(self) -> ExecutableCache:
        if self._writes is None:
            # Only here: a session whose slots stay empty runs without the builder.
            from graphgen.passes.lora.slot_program import write_slot_module

            self._writes = self._programs.beside(write_slot_module(self._module))
        return self._writes

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.slots:
            raise GraphgenError(
                "GG0705",
                f"adapter slot {slot} does not exist",
                help=f"slots are 0 to {self.slots - 1}, and {NO_ADAPTER} for no adapter",
            )

    def _check_part(self, name: str, array: Array) -> None:
        target, _, last = name.rpartition(".")
        if target not in self.targets or last not in ("lora_A", "lora_B"):
            known = ", ".join(sorted({known.rpartition(".")[2] for known in self.targets}))
            what = f"{name} is not a tensor of an adapter of this model"
            raise GraphgenError("GG0705", what, help=f"projections end with {known}")
        wanted, axis = self.targets[target][last == "lora_B"], -2 if last == "lora_A" else -1
        fits = array.ndim == len(wanted) and all(
            size == most
            for place, (size, most) in enumerate(zip(array.shape, wanted, strict=True))
            if place != len(wanted) + axis
        )
        if not fits or not 0 < array.shape[axis] <= wanted[axis]:
            raise GraphgenError(
                "GG0705",
                f"{name} is {list(array.shape)}, and the model takes {list(wanted)}",
                help=f"ranks are 1 to {self.rank}: compile with --max-lora-rank for more",
            )
        if not np.isfinite(array.astype(np.float32)).all():
            what = f"{name} has numbers that are not finite"
            raise GraphgenError("GG0605", what, help="take an adapter that was not corrupted")


def adapter_slots(programs: ExecutableCache, rows: int) -> AdapterSlots | None:
    """The slots of a session; ``None`` for programs without adapters."""
    return AdapterSlots(programs, rows) if adapter_rows(programs.module) else None
