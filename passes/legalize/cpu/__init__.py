"""Rewrite rules for XLA's CPU backend: read :mod:`graphgen.passes.legalize.cpu.float_products`
first."""
