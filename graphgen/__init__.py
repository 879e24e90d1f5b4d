"""The graph a user builds: IR, ops, text, builder, models and the command line.

Importing this package imports nothing third-party; whatever needs NumPy or JAX imports it lazily.
"""
