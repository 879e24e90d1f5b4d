"""The sixty unseen bugs."""

from __future__ import annotations

from tests.oracles.unseen_bugs_programs import PROGRAM_BUGS
from tests.oracles.unseen_bugs_situations import SITUATION_BUGS
from tests.oracles.unseen_bugs_sizes import SIZE_BUGS
from tests.oracles.unseen_bugs_values import VALUE_BUGS

UNSEEN_BUGS = (*PROGRAM_BUGS, *SITUATION_BUGS, *SIZE_BUGS, *VALUE_BUGS)
