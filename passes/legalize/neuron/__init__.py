"""Rewrite rules for neuronx-cc, by what AWS publishes about it, one module per group of ops.

Read :mod:`graphgen.passes.legalize.neuron.gather_scatter` first; a target lists the rules that it
needs in
``graphgen/targets/NAME.json``.
"""
