"""Merging, moving and combining of collectives; read :mod:`merge_collectives` (the pass) first."""
