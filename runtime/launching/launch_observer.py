"""The observer of a session's launches, for measurements and captured inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from graphgen.runtime.session import Session


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
