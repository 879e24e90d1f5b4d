"""Steps with outputs still on the devices, and tokens passed from them to later steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import join, put
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.session.row_results import RowResults
from graphgen.runtime.session.step_call import Ints


class PendingStep:
    """A step that was started and may not have been read.

    Args:
        tokens: s32 [B] on the devices, one value a rank, the tokens that follow; empty for steps
            that were read at once.
        home: s32 [n], the place of each row of the step in ``tokens``.
        read: waits for the outputs.
        number: of the launch; -1 for steps that were read at once.

    Attributes:
        tokens, home, number: as given.
    """

    def __init__(
        self,
        tokens: Sequence[DeviceValue],
        home: Ints,
        read: Callable[[], RowResults],
        number: int = -1,
    ) -> None:
        self.tokens: Final = tokens
        self.home: Final = home
        self.number: Final = number
        self._read: Final = read
        self._results: RowResults | None = None

    @property
    def on_devices(self) -> bool:
        """True if its tokens are on the devices, and the host has not read them."""
        return bool(self.tokens) and self._results is None

    def read(self) -> RowResults:
        """Wait for the outputs, for each row of the step in its order."""
        if self._results is None:
            self._results = self._read()
        return self._results


@dataclass(frozen=True, slots=True)
class DeviceToken:
    """A token that a step chooses and the host has not seen.

    Attributes:
        step: the step.
        place: the row of the step.
    """

    step: PendingStep
    place: int

    def read(self) -> int:
        """Wait for the token."""
        tokens = self.step.read().tokens
        assert tokens is not None
        return int(tokens[self.place])


@dataclass(frozen=True, slots=True)
class DeviceTokens:
    """Tokens of a launch that replace tokens of the host.

    Attributes:
        number: of the launch.
        tokens: s32 [G] on the devices, one value a rank.
        source: s32 [B], the place in ``tokens`` of each token of the host, -1 for those that stay.
    """

    number: int
    tokens: Sequence[DeviceValue]
    source: Ints


def handed_tokens(
    host: npt.NDArray[np.generic], fed: Mapping[int, DeviceToken]
) -> list[DeviceTokens]:
    """Tokens passed from steps to a launch; tokens already on the host are written to ``host``.

    Args:
        host: s32 [B,1], tokens of the host.
        fed: tokens that replace them, by place in B.
    """
    for place, one in fed.items():
        if not one.step.on_devices:
            host[place, 0] = one.read()
    handed: list[DeviceTokens] = []
    waiting = {place: one for place, one in fed.items() if one.step.on_devices}
    for step in {id(one.step): one.step for one in waiting.values()}.values():
        source = np.full(len(host), -1, np.int32)
        for place, one in waiting.items():
            if one.step is step:
                source[place] = step.home[one.place]
        handed.append(DeviceTokens(step.number, step.tokens, source))
    return handed


class TokenTransfer:
    """Replaces tokens of the host by tokens on the devices.

    The programs are made from the numbers of rows, and kept in the folder of the other programs
    where there is one; artifacts of any age have them.

    Args:
        programs: of the session.
    """

    def __init__(self, programs: ExecutableCache) -> None:
        self._programs: Final = programs
        self._made: Final[dict[tuple[int, int], ExecutableCache]] = {}

    def fed(self, host: npt.NDArray[np.generic], handed: Sequence[DeviceTokens]) -> DeviceValue:
        """The input of a launch: tokens s32 [B,1] of the host, and those that replace them."""
        ranks = self._programs.module.ranks
        out = put([host] * ranks)
        for one in handed:
            given = int(one.tokens[0].shape[0])
            program = self._program(given, len(host))
            inputs = {"host": out, "given": join(one.tokens), "source": put([one.source] * ranks)}
            out = join(program.get(_name(given, len(host))).launch(inputs)["fed"])
        return out

    def warm_up(self, given: Collection[int], taken: Collection[int]) -> None:
        """Compile or load the programs between launches of these numbers of rows."""
        for first in given:
            for second in taken:
                self._program(first, second).get(_name(first, second))

    def _program(self, given: int, taken: int) -> ExecutableCache:
        found = self._made.get((given, taken))
        if found is None:
            # Only here: a session without steps in flight runs without the builder.
            from graphgen.passes.programs.cache_programs import token_feed_module

            kept = self._programs
            found = kept.beside(token_feed_module(kept.module, given, taken))
            self._made[given, taken] = found
        return found


def _name(given: int, taken: int) -> str:
    return f"feed.b{given}.b{taken}"
