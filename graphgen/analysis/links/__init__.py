"""Collectives over links: what each level of a machine has to carry, and how long it takes."""
