"""Whether a model fits, and on what: memory, collectives and degrees from dimensions alone."""
