"""Buckets and rows for known lengths; read :mod:`graphgen.lowering.plan.ladders.ladder_advice`."""
