"""One known model for each mini twin there is: models of a family often differ in size alone."""

from __future__ import annotations

import json

from graphgen.models import SHAPES, known_shape, read_model_config

MINIS: tuple[str, ...] = tuple(
    {
        json.dumps(read_model_config(config).mini().to_hf(), sort_keys=True): name
        for name, config in reversed(list(SHAPES.items()))
    }.values()
)
# Models whose q, k and v come fused are split over ranks once shardings are followed backward.
MINI_RANKS: tuple[tuple[str, int], ...] = tuple(
    (name, tp)
    for name in MINIS
    for tp in (1, 2)
    if tp == 1 or known_shape(name)["model_type"] not in ("gpt2", "bloom", "gpt_neox")
)
