"""MLIR text without the meaning of its ops: tokens, attributes, types, the generic form of ops.

A dialect parses ops in a form of their own.
"""
