"""Projections merged into one product, and merged ones split up again.

Read :mod:`graphgen.passes.fusion.fuse_projections` first.
"""
