"""Rewrite rules for neuronx-cc from AWS's published limits, one module per group of ops.

Read :mod:`graphgen.passes.legalize.neuron.gather_scatter` first; a target lists the rules that it
needs in
``graphgen/targets/NAME.json``.
"""
