"""MLIR text without the meaning of its ops: tokens, attributes, types, the generic form of ops.

Read :mod:`~graphgen.lowering.mlir.mlir_parser` first. A dialect parses ops in a form of
their own.
"""
