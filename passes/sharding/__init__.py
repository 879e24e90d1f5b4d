"""Sharding: annotations, meshes, logical axes, strategies, beam search, resharding, padding.

:mod:`shard` annotates rows of the interface by names of :mod:`logical_axes`, :mod:`pad_to_mesh`
pads weights that do not divide over the mesh, and the solver (:mod:`beam_search`) finds the plan
with the least bytes sent. ``passes/spmd`` makes per-rank programs of it.
"""
