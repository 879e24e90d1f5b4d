"""Raising: primitive ops of a language model are replaced by the composite op they compute.

Read :mod:`~graphgen.passes.raising.raise_composites` first: the pass, and its rules in order.
"""
