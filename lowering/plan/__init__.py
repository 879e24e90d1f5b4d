"""Capacity planning from dimensions alone: read :mod:`graphgen.lowering.plan.measure` first."""
