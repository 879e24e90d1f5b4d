"""Capacity planning from dimensions alone: memory, meshes, nodes, ladders of buckets."""
