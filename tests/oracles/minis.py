"""One known model for each mini twin there is: models of a family often differ in size alone."""

from __future__ import annotations

import json

from graphgen.models import SHAPES, read_model_config

MINIS: tuple[str, ...] = tuple(
    {
        json.dumps(read_model_config(config).mini().to_hf(), sort_keys=True): name
        for name, config in reversed(list(SHAPES.items()))
    }.values()
)
MINI_RANKS: tuple[tuple[str, int], ...] = tuple((name, tp) for name in MINIS for tp in (1, 2))
