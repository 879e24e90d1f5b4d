"""Resharding: the operations between two layouts of a value, and the cheapest sequence of them.

Read :mod:`reshard_ops` first, then :mod:`reshard_planner`.
"""
