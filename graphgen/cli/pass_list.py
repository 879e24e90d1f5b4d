"""Every pass there is, with its options and its page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from inspect import getdoc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from passes.core import Pass


def load_passes() -> Mapping[str, type[Pass]]:
    """Every pass there is, ours and those of installed packages, by name."""
    from passes.core.registry import all_passes

    return all_passes()


def options_of(item: type[Pass]) -> dict[str, tuple[str, str]]:
    """Type and default of each option, as pipelines write them; no default is ``""``."""
    from passes.core.pass_ import format_option

    return {
        field.name: (
            str(field.type),
            "" if field.default is MISSING else format_option(field.default),
        )
        for field in fields(item)
    }


def page_of(item: type[Pass]) -> str:
    """The pass's docstring."""
    return getdoc(item) or ""


def summary_of(item: type[Pass]) -> str:
    """The first line of the page."""
    return page_of(item).partition("\n")[0]
