"""Fusion of sibling ops into one; start at :mod:`graphgen.passes.fusion.fuse_projections`."""
