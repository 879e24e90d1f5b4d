"""Sharding: from layouts of weights, inputs and caches to the SPMD program of one rank.

Read :mod:`partition` first. Data flow::

    Shard (shard.py)           rules -> layouts of interface rows, by names of spec.logical_axes
    PadToMesh (pad_to_mesh.py) pads weights that do not divide over the mesh
    Partition (partition.py)   solver: layouts + factors of ops -> ShardingPlan (least bytes sent)
                               spmd: ShardingPlan -> per-rank program; reshard: layout changes
    MergeCollectives           collectives: merge, move and combine the collectives of the program

Sub-packages import in one direction: spec <- reshard <- solver <- spmd <- collectives, passes.
"""
