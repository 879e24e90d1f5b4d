"""The sixty unseen bugs, and those that thorough validation does not catch, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from tests.oracles.unseen_bugs_programs import PROGRAM_BUGS
from tests.oracles.unseen_bugs_situations import SITUATION_BUGS
from tests.oracles.unseen_bugs_sizes import SIZE_BUGS
from tests.oracles.unseen_bugs_values import VALUE_BUGS

UNSEEN_BUGS = (*PROGRAM_BUGS, *SITUATION_BUGS, *SIZE_BUGS, *VALUE_BUGS)

MISSED: Mapping[str, str] = {
    "full-batch-in-place": "no call with all rows of the cache has them in another order",
    "idle-row-clamped": "idle rows of this bucket come beside new tokens of the last row",
}
